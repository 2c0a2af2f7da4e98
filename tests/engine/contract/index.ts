/** What every engine promises. Each file of this directory is a chapter or some; an engine runs all it can. */
import { describe } from "vitest";
import type { OpenEngine } from "../../helpers/shared-engine.js";
import { describeCommands } from "./commands.js";
import { describeDetached } from "./detached.js";
import { describeDial } from "./dial.js";
import { describeFiles } from "./files.js";
import { describeFlood } from "./flood.js";
import { describeKeeping } from "./keeping.js";
import { describeLiveChanges } from "./live-changes.js";
import { describeMemory } from "./memory.js";
import { describeObserving } from "./observing.js";
import { describeOutput } from "./output.js";
import { describePids } from "./processes.js";
import { describeStopping } from "./stopping.js";
import { describeTime } from "./time.js";
import { describeView } from "./view.js";

export const CHAPTERS = {
  commands: describeCommands,
  output: describeOutput,
  flood: describeFlood,
  memory: describeMemory,
  processes: describePids,
  time: describeTime,
  liveChanges: describeLiveChanges,
  stopping: describeStopping,
  keeping: describeKeeping,
  observing: describeObserving,
  detached: describeDetached,
  files: describeFiles,
  dial: describeDial,
  view: describeView,
} as const satisfies Record<string, (open: OpenEngine) => void>;
export type Chapter = keyof typeof CHAPTERS;

export function describeEngineContract(
  name: string,
  open: OpenEngine,
  chapters: readonly Chapter[] = Object.keys(CHAPTERS) as Chapter[],
): void {
  describe(name, () => {
    for (const chapter of chapters) CHAPTERS[chapter](open);
  });
}
