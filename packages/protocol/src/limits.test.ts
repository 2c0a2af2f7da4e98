import { describe, expect, it } from "vitest";
import { HoldfastError } from "./errors.js";
import { createSandboxId, parseSandboxId } from "./ids.js";
import { DEFAULT_SANDBOX_LIMITS, resolveSandboxLimits, validateCommandLimits } from "./limits.js";

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
