import type { CommandCause, CommandEnding } from "@holdfast/protocol";
import { expect, test } from "vitest";
import { describeLeftovers, findLeftovers } from "./leftovers.js";
import { HOSTILE_PROGRAMS } from "./programs.js";
import { describeCause, isAsExpected } from "./result-text.js";

const [program] = HOSTILE_PROGRAMS;
if (program === undefined) throw new Error("there is no program");

function ending(cause: CommandCause): CommandEnding {
  const usage = { memoryPeakBytes: 0, cpuMs: 0, wallMs: 0, pidsPeak: 0, stdoutBytes: 209_715_200, stderrBytes: 0 };
  return { cause, incidents: [], exitCode: 1, usage, message: "" };
}

test("there are five programs with names that fit the table", () => {
  expect(HOSTILE_PROGRAMS).toHaveLength(5);
  expect(new Set(HOSTILE_PROGRAMS.map(({ name }) => name)).size).toBe(5);
  expect(HOSTILE_PROGRAMS.filter(({ name }) => name.length > 11)).toEqual([]);
});

test("a cause comes with its numbers", () => {
  const text = (cause: CommandCause): string =>
    describeCause({ program, ending: ending(cause), keptBytes: 1_114_112, ourGrowthBytes: 4096 });
  expect(text({ kind: "out_of_pids", limit: 32, peak: 28, refused: 1 })).toBe("limit 32, peak 28, 1 refused");
  expect(text({ kind: "exited", code: 0 })).toBe("code 0, wrote 200 MiB, kept 1.1 MiB, we grew by 4 KiB");
  expect(text({ kind: "timed_out", limitMs: 1500 })).toBe("limit 1.5 s, grace 1 s, then killed");
});

test("only the expected cause will do, and an exit only with code 0", () => {
  expect(isAsExpected({ program, ending: ending({ kind: "exited", code: 0 }) })).toBe(false);
  const flood = { ...program, expected: "exited" as const };
  expect(isAsExpected({ program: flood, ending: ending({ kind: "exited", code: 0 }) })).toBe(true);
  expect(isAsExpected({ program: flood, ending: ending({ kind: "exited", code: 1 }) })).toBe(false);
});

test("what is left is counted, and nothing is called nothing", () => {
  expect(describeLeftovers({ processes: 0, cgroups: 0, mounts: 0, files: 0 })).toBe("nothing");
  expect(describeLeftovers({ processes: 2, cgroups: 0, mounts: 1, files: 0 })).toBe("2 processes, 1 mounts");
  expect(findLeftovers("i0000000000neverwas00", "/nowhere")).toEqual({ processes: 0, cgroups: 0, mounts: 0, files: 0 });
});
