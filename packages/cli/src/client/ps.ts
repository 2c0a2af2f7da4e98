/** `holdfast ps`. */
import { coloursFor } from "../text/colours.js";
import { note } from "../text/notes.js";
import type { ServerFlags } from "./find-server.js";
import { sandboxTable } from "./sandbox-table.js";
import { ServerClient } from "./server-client.js";

export interface PsFlags extends ServerFlags {
  readonly all?: boolean;
  readonly quiet?: boolean;
  readonly json?: boolean;
}

export async function ps(flags: PsFlags): Promise<void> {
  const server = await ServerClient.open(flags);
  const sandboxes = await server.list({ ended: flags.all === true });
  if (flags.json === true) process.stdout.write(`${JSON.stringify(sandboxes)}\n`);
  else if (flags.quiet === true) process.stdout.write(sandboxes.map(({ id }) => `${id}\n`).join(""));
  else if (sandboxes.length > 0) {
    const width = process.stdout.isTTY ? process.stdout.columns : undefined;
    process.stdout.write(sandboxTable(sandboxes, { colours: coloursFor(process.stdout), now: Date.now(), width }));
  } else {
    note(`no sandbox ${flags.all === true ? "is known" : "runs"}; \`holdfast create\` makes one`);
  }
}
