import type { CommandCause, CommandEnding, Incident } from "@holdfast/protocol";
import { describeCommandEnding } from "@holdfast/protocol";
import { describe, expect, test } from "vitest";
import { endFields } from "./process-end.js";

const PID = 7;
const oom = (pid: number | null): CommandCause & Incident => ({
  kind: "out_of_memory",
  scope: "sandbox",
  limitBytes: 2 ** 20,
  peakBytes: 2 ** 20,
  kills: 1,
  victims: [{ name: "python3", pid, hostPid: 4711, rssBytes: 2 ** 20 }],
});
const outOfPids: CommandCause & Incident = { kind: "out_of_pids", limit: 64, peak: 64, refused: 3 };

function ending(cause: CommandCause, exitCode: number, incidents: readonly Incident[] = []): CommandEnding {
  return {
    cause,
    incidents,
    exitCode,
    usage: { memoryPeakBytes: null, cpuMs: 0, wallMs: 0, pidsPeak: null, stdoutBytes: 0, stderrBytes: 0 },
    message: describeCommandEnding(cause, incidents),
  };
}

function end(
  cause: CommandCause,
  exitCode: number,
  more: { incidents?: readonly Incident[]; droppedBytes?: number } = {},
) {
  return endFields(ending(cause, exitCode, more.incidents), { pid: PID, droppedBytes: more.droppedBytes ?? 0 });
}

describe("the end of a command", () => {
  test("that succeeded says nothing more", () => {
    expect(end({ kind: "exited", code: 0 }, 0)).toEqual({ exitCode: 0, exited: true, status: "exit status 0" });
  });

  test("that failed repeats its status as the error", () => {
    const status = "exit status 3";
    expect(end({ kind: "exited", code: 3 }, 3)).toEqual({ exitCode: 3, exited: true, status, error: status });
  });

  test.each([
    ["SIGKILL", 137, "signal: killed"],
    ["SIGTERM", 143, "signal: terminated"],
    ["SIGSEGV", 139, "signal: segmentation fault"],
    ["SIGABRT", 134, "signal: aborted"],
    ["SIG34", 162, "signal: signal 34"],
  ] as const)("by %s has no exit code", (signal, exitCode, status) => {
    const fields = end({ kind: "signaled", signal, by: "program" }, exitCode);
    expect(fields).toEqual({ exitCode: -1, exited: false, status, error: status });
  });

  test("by the kernel for memory says so after the status", () => {
    const fields = end(oom(PID), 137);
    expect(fields).toMatchObject({ exitCode: -1, exited: false, status: "signal: killed" });
    expect(fields.error).toMatch(/^signal: killed: Killed for memory: limit 1 MiB/);
  });

  test("whose child the kernel killed keeps the exit code that the shell gave", () => {
    const fields = end(oom(null), 137);
    expect(fields).toMatchObject({ exitCode: 137, exited: true, status: "exit status 137" });
    expect(fields.error).toMatch(/^exit status 137: Killed for memory/);
  });

  test("that failed for want of processes says so", () => {
    const fields = end(outOfPids, 254);
    expect(fields).toMatchObject({ exitCode: 254, exited: true, status: "exit status 254" });
    expect(fields.error).toMatch(/^exit status 254: Ran out of processes: limit 64/);
  });

  test("that got over an incident succeeded, and tells of it", () => {
    const fields = end({ kind: "exited", code: 0 }, 0, { incidents: [oom(null)] });
    expect(fields).toMatchObject({ exitCode: 0, exited: true, status: "exit status 0" });
    expect(fields.error).toMatch(/^On the way, 1 process was killed for memory/);
  });

  test.each([
    [{ kind: "timed_out", limitMs: 1000 } as const, 137, /^signal: killed: Timed out: limit 1/],
    [{ kind: "timed_out", limitMs: 1000 } as const, 124, /^signal: killed: Timed out/],
    [{ kind: "canceled", by: "somebody" } as const, 143, /^signal: terminated: Canceled by somebody\.$/],
    [{ kind: "lost", why: "the guest is gone" } as const, -1, /^signal: killed: Lost: the guest is gone\.$/],
  ])("by us is a signal with its reason (%o)", (cause, exitCode, error) => {
    const fields = end(cause, exitCode);
    expect(fields).toMatchObject({ exitCode: -1, exited: false });
    expect(fields.error).toMatch(error);
  });

  test("names the bytes that were dropped", () => {
    const text = "5 bytes of output were dropped: nobody read them in time.";
    expect(end({ kind: "exited", code: 0 }, 0, { droppedBytes: 5 }).error).toBe(text);
    expect(end({ kind: "exited", code: 1 }, 1, { droppedBytes: 5 }).error).toBe(`exit status 1: ${text}`);
  });
});
