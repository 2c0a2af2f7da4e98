import { type CommandCause, type CommandEnding, HoldfastError } from "@holdfast/protocol";
import { expect, test } from "vitest";
import { exitCodeOfEnding, exitCodeOfError, READER_GONE } from "./exit-code.js";

function ending(cause: CommandCause, exitCode: number): CommandEnding {
  const usage = { memoryPeakBytes: 0, cpuMs: 0, wallMs: 0, pidsPeak: 0, stdoutBytes: 0, stderrBytes: 0 };
  return { cause, incidents: [], exitCode, usage, message: "" };
}

const oom = { scope: "sandbox", limitBytes: 1, peakBytes: 1, kills: 1, victims: [] } as const;

test.each<[string, CommandCause, number, number]>([
  ["the command's own code", { kind: "exited", code: 3 }, 3, 3],
  ["128 + n for signal n", { kind: "signaled", signal: "SIGSEGV", by: "program" }, 139, 139],
  ["124 for a timeout, however the command ended", { kind: "timed_out", limitMs: 1 }, 143, 124],
  ["137 for memory, whatever the shell made of it", { kind: "out_of_memory", ...oom }, 1, 137],
  ["the command's code when it ran out of processes", { kind: "out_of_pids", limit: 8, peak: 8, refused: 1 }, 2, 2],
  ["the command's code when it ran out of disk", { kind: "out_of_disk", limitBytes: 1, usedBytes: 1 }, 1, 1],
  ["128 + n when our signal n ended it", { kind: "canceled", by: "SIGINT" }, 137, 130],
  ["141 when the reader went away", { kind: "canceled", by: READER_GONE }, 137, 141],
  ["125 when we do not know", { kind: "lost", why: "?" }, 137, 125],
])("exits with %s", (_name, cause, commands, expected) => {
  expect(exitCodeOfEnding(ending(cause, commands))).toBe(expected);
});

test("errors of the start are 126 and 127, others 125", () => {
  const start = (exitCode: number) => new HoldfastError("command_failed_to_start", "", { details: { exitCode } });
  expect(exitCodeOfError(start(127))).toBe(127);
  expect(exitCodeOfError(start(126))).toBe(126);
  expect(exitCodeOfError(new HoldfastError("host_unsupported", ""))).toBe(125);
  expect(exitCodeOfError(new HoldfastError("canceled", "", { details: { exitCode: 3 } }))).toBe(125);
});
