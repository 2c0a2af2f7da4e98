/** Everything that an SDK is put through, by subject. */
import { bigFileCases } from "./cases/big-files.js";
import { commandCases } from "./cases/commands.js";
import { fileCases } from "./cases/files.js";
import { gitCases } from "./cases/git.js";
import { hostCases } from "./cases/hosts.js";
import { lifecycleCases } from "./cases/lifecycle.js";
import { listingCases } from "./cases/listing.js";
import { pauseCases } from "./cases/pauses.js";
import { refusalCases } from "./cases/refusals.js";
import { signedUrlCases } from "./cases/signed-urls.js";
import { snapshotCases } from "./cases/snapshots.js";
import { templateCases } from "./cases/templates.js";
import { terminalCases } from "./cases/terminals.js";
import { volumeCases } from "./cases/volumes.js";
import { watchCases } from "./cases/watches.js";
import type { Cases } from "./cell.js";

export const tables: Readonly<Record<string, Cases>> = {
  commands: commandCases,
  terminals: terminalCases,
  files: fileCases,
  "big files": bigFileCases,
  watches: watchCases,
  git: gitCases,
  "signed links": signedUrlCases,
  hosts: hostCases,
  "lists of sandboxes": listingCases,
  "pause and resume": pauseCases,
  "a sandbox's life": lifecycleCases,
  "snapshots and forks": snapshotCases,
  templates: templateCases,
  volumes: volumeCases,
  refusals: refusalCases,
};
