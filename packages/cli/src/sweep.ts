/** `holdfast sweep`. */
import { existsSync } from "node:fs";
import { join } from "node:path";
import { BubblewrapEngine, DEFAULT_STATE_DIRECTORY } from "@holdfast/engine";
import { type EngineFlags, parseEngineFlags } from "./engine-options.js";
import { note } from "./text/notes.js";

export type SweepFlags = EngineFlags;

export async function sweep(flags: SweepFlags): Promise<void> {
  const log = {
    info: () => {},
    warn: ({ sandbox, error }: Record<string, unknown>, message: string) =>
      note(`${message} (${String(sandbox)}): ${String(error)}`),
  };
  const options = parseEngineFlags(flags);
  const stateDirectory = options.stateDirectory ?? process.env.HOLDFAST_STATE_DIR ?? DEFAULT_STATE_DIRECTORY;
  // Opening the engine would make a pool; where there never was a sandbox there is nothing to do.
  if (!existsSync(join(stateDirectory, "sandboxes"))) {
    note(`nothing was left to sweep away (there is nothing in ${stateDirectory})`);
    return;
  }
  const engine = await BubblewrapEngine.open({ ...options, log });
  try {
    const swept = await engine.sweep();
    for (const { id, why } of swept) process.stdout.write(`${id}  ${why}\n`);
    if (swept.length === 0) note("nothing was left to sweep away");
  } finally {
    await engine.close({ sandboxes: "keep" });
  }
}
