/** What programs inside are told by us, in a directory that they see read-only as /dev/holdfast. */
import { mkdirSync, readFileSync, renameSync, rmSync, writeFileSync } from "node:fs";
import { basename, join } from "node:path";
import type { SandboxId } from "@holdfast/protocol";
import { CALM_TEXT, PRESSURE_PATH } from "../governor/pressure.js";
import { SANDBOX_ID_PATH } from "../images/above.js";

const DIRECTORY = "inside";
const PRESSURE_FILE = basename(PRESSURE_PATH);
const ID_FILE = basename(SANDBOX_ID_PATH);

/** Before each start. Returns where it is. */
export function prepareInside(sandboxDirectory: string, id: SandboxId): string {
  const directory = join(sandboxDirectory, DIRECTORY);
  mkdirSync(directory, { recursive: true, mode: 0o755 });
  rmSync(join(directory, ID_FILE), { force: true });
  writeFileSync(join(directory, ID_FILE), id, { mode: 0o444 });
  tellPressure(sandboxDirectory, CALM_TEXT);
  return directory;
}

/** Whoever reads it meanwhile reads the old text or the new one. */
export function tellPressure(sandboxDirectory: string, text: string): void {
  const directory = join(sandboxDirectory, DIRECTORY);
  writeFileSync(join(directory, `.${PRESSURE_FILE}`), text, { mode: 0o444 });
  renameSync(join(directory, `.${PRESSURE_FILE}`), join(directory, PRESSURE_FILE));
}

export function toldPressure(sandboxDirectory: string): string {
  return readFileSync(join(sandboxDirectory, DIRECTORY, PRESSURE_FILE), "utf8");
}
