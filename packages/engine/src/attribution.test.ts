import { DEFAULT_SANDBOX_LIMITS } from "@holdfast/protocol";
import { describe, expect, it } from "vitest";
import { type Evidence, explainEnding } from "./attribution.js";
import type { CommandCounters } from "./cgroups/index.js";

const MIB = 1024 ** 2;

const counters: CommandCounters = {
  memoryBytes: 0,
  memoryPeakBytes: 10 * MIB,
  memoryLimitBytes: undefined,
  oomKills: 0,
  ownLimitHits: 0,
  pids: 0,
  pidsPeak: 3,
  pidsRefused: 0,
  cpuUsec: 5000,
};

const exit: Evidence["exit"] = {
  code: 0,
  signal: undefined,
  timedOut: false,
  outputHeld: false,
  wallMs: 12,
  cpuMs: 4,
  maxRssBytes: 0,
  stdoutBytes: 1,
  stderrBytes: 2,
};

const evidence: Evidence = {
  intent: undefined,
  exit,
  counters,
  sandboxLimits: { ...DEFAULT_SANDBOX_LIMITS, memoryBytes: 256 * MIB, pids: 64, diskBytes: 100 * MIB },
  commandLimits: {},
  unattributedPidsRefused: 0,
  victims: [],
  hostWideOom: false,
  disk: { usedBytesBefore: 1 * MIB, usedBytesPeak: 1 * MIB },
  callersSignal: undefined,
};

const killed = { ...counters, oomKills: 1, memoryPeakBytes: 256 * MIB };
const failed = { ...exit, code: 137 };

describe("explainEnding", () => {
  it("takes a plain exit for what it is", () => {
    const ending = explainEnding({ ...evidence, exit: { ...exit, code: 3 } });
    expect(ending.cause).toEqual({ kind: "exited", code: 3 });
    expect(ending.exitCode).toBe(3);
    expect(ending.usage).toEqual({
      memoryPeakBytes: 10 * MIB,
      cpuMs: 5,
      wallMs: 12,
      pidsPeak: 3,
      stdoutBytes: 1,
      stderrBytes: 2,
    });
  });

  it("does not take 137 for a memory kill when the kernel counted none", () => {
    expect(explainEnding({ ...evidence, exit: failed }).cause).toEqual({ kind: "exited", code: 137 });
    expect(explainEnding({ ...evidence, exit: { ...exit, code: undefined, signal: 9 } }).cause).toEqual({
      kind: "signaled",
      signal: "SIGKILL",
      by: "program",
    });
  });

  it("says of what failed by itself that there had been no memory to be had", () => {
    const held = { kind: "memory_held", limitBytes: 256 * MIB, heldMs: 1500 };
    const ending = explainEnding({ ...evidence, heldMs: 1500, exit: { ...exit, code: 254 } });
    expect(ending).toMatchObject({ cause: { kind: "exited", code: 254 }, incidents: [held] });
    expect(ending.message).toContain("256 MiB for 1.5 s, because the host had no room");
    const crashed = { ...exit, code: undefined, signal: 11 };
    expect(explainEnding({ ...evidence, heldMs: 1500, exit: crashed }).incidents).toEqual([held]);
    // Who succeeded has nothing to explain, and who was killed for memory is explained.
    expect(explainEnding({ ...evidence, heldMs: 1500 }).incidents).toEqual([]);
    expect(explainEnding({ ...evidence, heldMs: 1500, exit: failed, counters: killed }).incidents).toEqual([]);
  });

  it("names memory, with limit, peak, victim and a next size", () => {
    const victims = [{ name: "python3", pid: 12, hostPid: 4711, rssBytes: 243 * MIB }];
    const ending = explainEnding({ ...evidence, exit: failed, counters: killed, victims });
    expect(ending.cause).toMatchObject({ kind: "out_of_memory", scope: "sandbox", limitBytes: 256 * MIB, kills: 1 });
    expect(ending.message).toBe(
      "Killed for memory: limit 256 MiB, peak 256 MiB, python3 (pid 12) held 243 MiB. Try --memory 512m.",
    );
  });

  it("keeps a hidden memory kill as an incident when the command returned 0", () => {
    const ending = explainEnding({ ...evidence, counters: killed });
    expect(ending.cause).toEqual({ kind: "exited", code: 0 });
    expect(ending.incidents).toMatchObject([{ kind: "out_of_memory", kills: 1 }]);
    expect(ending.message).toContain("1 process was killed for memory");
  });

  it("knows whose limit it was", () => {
    const own = { ...killed, memoryLimitBytes: 32 * MIB, ownLimitHits: 4 };
    expect(explainEnding({ ...evidence, exit: failed, counters: own }).cause).toMatchObject({
      scope: "command",
      limitBytes: 32 * MIB,
    });
    expect(explainEnding({ ...evidence, exit: failed, counters: killed, hostWideOom: true }).cause).toMatchObject({
      scope: "host",
      limitBytes: null,
    });
  });

  it("believes our own intent before any counter, and keeps the counter as an incident", () => {
    const ending = explainEnding({
      ...evidence,
      exit: failed,
      counters: killed,
      intent: { kind: "canceled", by: "test" },
    });
    expect(ending.cause).toEqual({ kind: "canceled", by: "test" });
    expect(ending.incidents).toMatchObject([{ kind: "out_of_memory" }]);
  });

  it("believes the guest's deadline", () => {
    const ending = explainEnding({ ...evidence, exit: { ...failed, timedOut: true }, commandLimits: { wallMs: 1500 } });
    expect(ending.cause).toEqual({ kind: "timed_out", limitMs: 1500 });
  });

  it("names processes and disk when the command failed for them", () => {
    expect(
      explainEnding({ ...evidence, exit: { ...exit, code: 1 }, counters: { ...counters, pidsRefused: 9 } }).cause,
    ).toMatchObject({
      kind: "out_of_pids",
      limit: 64,
      refused: 9,
    });
    expect(explainEnding({ ...evidence, exit: { ...exit, code: 1 }, unattributedPidsRefused: 2 }).cause).toMatchObject({
      refused: 2,
    });
    const disk = { usedBytesBefore: 1 * MIB, usedBytesPeak: 99 * MIB };
    const outOfDisk = { kind: "out_of_disk", limitBytes: 100 * MIB, usedBytes: 99 * MIB };
    expect(explainEnding({ ...evidence, exit: { ...exit, code: 1 }, disk }).cause).toEqual(outOfDisk);
    expect(explainEnding({ ...evidence, disk }).incidents).toEqual([outOfDisk]);
  });

  it("does not blame a disk that was full before, but mentions it to a command that failed", () => {
    const disk = { usedBytesBefore: 99 * MIB, usedBytesPeak: 99 * MIB };
    expect(explainEnding({ ...evidence, disk }).incidents).toEqual([]);
    const ending = explainEnding({ ...evidence, exit: { ...exit, code: 1 }, disk });
    expect(ending.cause).toEqual({ kind: "exited", code: 1 });
    expect(ending.incidents).toMatchObject([{ kind: "out_of_disk" }]);
  });

  it("tells a signal that the caller sent from one that came from inside", () => {
    const signaled = { ...exit, code: undefined, signal: 15 };
    expect(explainEnding({ ...evidence, exit: signaled, callersSignal: 15 }).cause).toMatchObject({ by: "caller" });
    expect(explainEnding({ ...evidence, exit: signaled }).cause).toMatchObject({ by: "program" });
    expect(explainEnding({ ...evidence, exit: signaled }).exitCode).toBe(143);
  });

  it("explains an exit even when the cgroup was gone", () => {
    const ending = explainEnding({ ...evidence, counters: undefined });
    expect(ending.usage).toMatchObject({ memoryPeakBytes: null, cpuMs: 4 });
  });
});
