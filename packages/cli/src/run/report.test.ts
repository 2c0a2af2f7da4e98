import {
  type CommandCause,
  type CommandEnding,
  describeCommandEnding,
  HoldfastError,
  type Incident,
} from "@holdfast/protocol";
import { expect, test } from "vitest";
import { READER_GONE } from "./exit-code.js";
import { notesOfEnding, reportOfEnding, reportOfError } from "./report.js";

const usage = { memoryPeakBytes: 1, cpuMs: 2, wallMs: 3, pidsPeak: 4, stdoutBytes: 5, stderrBytes: 6 };
const oom: Incident = {
  kind: "out_of_memory",
  scope: "sandbox",
  limitBytes: 256 * 1024 ** 2,
  peakBytes: 256 * 1024 ** 2,
  kills: 1,
  victims: [{ name: "python3", pid: 12, hostPid: 99, rssBytes: 243 * 1024 ** 2 }],
};

function ending(cause: CommandCause, incidents: readonly Incident[] = []): CommandEnding {
  return { cause, incidents, exitCode: 1, usage, message: describeCommandEnding(cause, incidents) };
}

test("a plain exit is not commented, with whatever code", () => {
  expect(notesOfEnding(ending({ kind: "exited", code: 0 }))).toEqual([]);
  expect(notesOfEnding(ending({ kind: "exited", code: 1 }))).toEqual([]);
});

test("a reader that goes away is what pipes are for, and is not commented", () => {
  expect(notesOfEnding(ending({ kind: "canceled", by: READER_GONE }))).toEqual([]);
  expect(notesOfEnding(ending({ kind: "canceled", by: "SIGTERM" }))).toEqual(["Canceled by SIGTERM."]);
});

test("a cause is one sentence with what to do", () => {
  expect(notesOfEnding(ending(oom))).toEqual([
    "Killed for memory: limit 256 MiB, peak 256 MiB, python3 (pid 12) held 243 MiB. Try --memory 512m.",
  ]);
});

test("an incident is told although the command exited with 0", () => {
  const [note, ...others] = notesOfEnding(ending({ kind: "exited", code: 0 }, [oom]));
  expect(note).toMatch(/^On the way, 1 process was killed for memory/);
  expect(others).toEqual([]);
});

test("the object has the cause, the incidents, our exit code, the usage and the sentence", () => {
  expect(reportOfEnding(ending(oom), "i1")).toEqual({
    cause: oom,
    incidents: [],
    exitCode: 137,
    usage,
    message: expect.stringContaining("Killed for memory") as string,
    sandboxId: "i1",
  });
});

test("a failure of ours has an error and no cause", () => {
  const error = new HoldfastError("host_unsupported", "no bwrap", { hint: "apt-get install bubblewrap" });
  expect(reportOfError(error, undefined)).toEqual({
    cause: null,
    incidents: [],
    exitCode: 125,
    usage: null,
    message: "no bwrap",
    sandboxId: null,
    error: { code: "host_unsupported", message: "no bwrap", hint: "apt-get install bubblewrap" },
  });
});
