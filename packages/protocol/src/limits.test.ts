import { describe, expect, it } from "vitest";
import { HoldfastError } from "./errors.js";
import { createSandboxId, parseSandboxId } from "./ids.js";
import {
  ceilingBytesOf,
  changedLimits,
  DEFAULT_SANDBOX_LIMITS,
  limitsInstead,
  resolveSandboxLimits,
  validateCommandLimits,
} from "./limits.js";

describe("resolveSandboxLimits", () => {
  it("fills in what is not given", () => {
    expect(resolveSandboxLimits({ pids: 64 })).toEqual({ ...DEFAULT_SANDBOX_LIMITS, pids: 64 });
  });

  it.each([
    [{ memoryBytes: 1 }, "limits.memoryBytes"],
    [{ memoryBytes: Number.NaN }, "limits.memoryBytes"],
    [{ memoryBytes: 1.5 * 1024 ** 2 + 0.5 }, "limits.memoryBytes"],
    [{ pids: 0 }, "limits.pids"],
    [{ cpuMillis: -1 }, "limits.cpuMillis"],
    [{ diskBytes: Number.POSITIVE_INFINITY }, "limits.diskBytes"],
    [{ wallMs: 0 }, "limits.wallMs"],
  ])("refuses %j and names the field", (limits, field) => {
    expect(() => resolveSandboxLimits(limits)).toThrow(HoldfastError);
    expect(() => resolveSandboxLimits(limits)).toThrow(field);
  });

  it("refuses a limit it does not know", () => {
    expect(() => resolveSandboxLimits({ memory: 1 } as never)).toThrow("limits.memory");
  });
});

describe("a memory limit that grows", () => {
  const growing = resolveSandboxLimits({ memoryBytes: 128 * 1024 ** 2, memoryMaxBytes: 1024 ** 3 });

  it("is one of its own, or the default up to the ceiling", () => {
    expect(ceilingBytesOf(growing)).toBe(1024 ** 3);
    expect(resolveSandboxLimits({ memoryMaxBytes: 64 * 1024 ** 2 }).memoryBytes).toBe(64 * 1024 ** 2);
    expect(() => resolveSandboxLimits({ memoryBytes: 2, memoryMaxBytes: 1 })).toThrow("limits.memoryBytes");
    expect(() => resolveSandboxLimits({ ...growing, memoryMaxBytes: 1024 ** 2 })).toThrow("limits.memoryMaxBytes");
  });

  it("gives way to a size that somebody asks for", () => {
    expect(limitsInstead(growing, { memoryBytes: 1024 ** 2 })).toMatchObject({
      memoryBytes: 1024 ** 2,
      memoryMaxBytes: undefined,
    });
    expect(limitsInstead(growing, { memoryMaxBytes: 1024 ** 2 })).toMatchObject({ memoryBytes: 1024 ** 2 });
    expect(limitsInstead(growing, { pids: 9 })).toEqual({ ...growing, pids: 9 });
  });

  it("is moved by its ceiling, and ended by a size", () => {
    expect(changedLimits(growing, { memoryMaxBytes: 2 * 1024 ** 3 })).toEqual({
      ...growing,
      memoryMaxBytes: 2 * 1024 ** 3,
    });
    expect(changedLimits(growing, { memoryMaxBytes: 1024 ** 2 })).toMatchObject({
      memoryBytes: 1024 ** 2,
      memoryMaxBytes: 1024 ** 2,
    });
    expect(changedLimits(growing, { memoryBytes: 1024 ** 2 })).toMatchObject({
      memoryBytes: 1024 ** 2,
      memoryMaxBytes: undefined,
    });
    expect(changedLimits(growing, { pids: 9 })).toEqual({ ...growing, pids: 9 });
  });
});

it("command limits are checked by name", () => {
  expect(() => validateCommandLimits({ memoryBytes: 10 })).toThrow("limits.memoryBytes");
  expect(() => validateCommandLimits({ wallMs: 1000, pids: 4, memoryBytes: 1024 ** 2 })).not.toThrow();
});

describe("ids", () => {
  it("are unlike each other and pass their own check", () => {
    const ids = new Set(Array.from({ length: 1000 }, createSandboxId));
    expect(ids.size).toBe(1000);
    for (const id of ids) expect(id).toMatch(/^i[a-z0-9]{20}$/);
  });

  it.each(["", "../x", "A", "a/b", "a.b", "a".repeat(33), 7, undefined])("refuses %j", (text) => {
    expect(() => parseSandboxId(text)).toThrow("sandbox id");
  });
});
