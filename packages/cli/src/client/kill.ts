/** `holdfast kill`. */
import { HoldfastError, printable } from "@holdfast/protocol";
import { note, noteError } from "../text/notes.js";
import type { ServerFlags } from "./find-server.js";
import { inParallel } from "./in-parallel.js";
import { ServerClient } from "./server-client.js";

export interface KillFlags extends ServerFlags {
  readonly all?: boolean;
}

export async function kill(names: readonly string[], flags: KillFlags): Promise<number> {
  if ((names.length === 0) !== (flags.all === true)) {
    throw new HoldfastError("invalid_argument", "SANDBOX: name the sandboxes to end, or say --all", {
      hint: "`holdfast ps` lists them.",
      details: { field: "SANDBOX" },
    });
  }
  const server = await ServerClient.open(flags);
  const targets = flags.all === true ? (await server.list({ ended: false })).map(({ id }) => id) : names;
  if (targets.length === 0) note("no sandbox runs");
  let failures = 0;
  await inParallel(targets, async (name) => {
    try {
      const sandbox = await server.find(name);
      const ending = await sandbox.kill();
      process.stdout.write(`${sandbox.id}  ${printable(ending.message)}\n`);
    } catch (error) {
      failures += 1;
      noteError(error);
    }
  });
  return failures === 0 ? 0 : 1;
}
