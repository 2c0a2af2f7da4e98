/** Time on the clock and on the CPU is bounded. */
import { describe, expect, it } from "vitest";
import { patienceMs } from "../../helpers/scale.js";
import { type OpenEngine, useSharedEngine } from "../../helpers/shared-engine.js";
import { SMALL_LIMITS, shell } from "../../helpers/use-engine.js";

export function describeTime(open: OpenEngine): void {
  describe("time", () => {
    const use = useSharedEngine(open);

    it("of a command ends it with what it has said", async () => {
      const result = await shell(await use.create(), "echo before; sleep 1000; echo after", {
        limits: { wallMs: 300 },
      });
      expect(result.cause).toEqual({ kind: "timed_out", limitMs: 300 });
      expect(result.stdout).toBe("before\n");
      expect(result.message).toContain("Timed out: limit 300 ms");
    });

    it("of a command that is quick enough says nothing", async () => {
      const result = await shell(await use.create(), "echo done", { limits: { wallMs: patienceMs(10_000) } });
      expect(result.cause).toEqual({ kind: "exited", code: 0 });
    });

    it("of a sandbox ends all its commands", async () => {
      const wallMs = patienceMs(500);
      const sandbox = await use.create({ limits: { ...SMALL_LIMITS, wallMs } });
      const commands = await Promise.all([1, 2].map(() => sandbox.start({ argv: ["sleep", "1000"] })));
      expect((await sandbox.ended).cause).toEqual({ kind: "timed_out", limitMs: wallMs });
      for (const command of commands)
        expect((await command.ended).cause).toEqual({ kind: "timed_out", limitMs: wallMs });
      await expect(sandbox.start({ argv: ["true"] })).rejects.toMatchObject({ code: "sandbox_ended" });
    });

    it("on the CPU is rationed and counted", async () => {
      const sandbox = await use.create({ limits: { ...SMALL_LIMITS, cpuMillis: 200 } });
      const result = await shell(sandbox, "while :; do :; done", { limits: { wallMs: 1500 }, graceMs: 0 });
      expect(result.cause).toMatchObject({ kind: "timed_out" });
      expect(result.usage.cpuMs).toBeGreaterThan(50);
      // A fifth of a CPU, with slack for the first period and a late kill.
      expect(result.usage.cpuMs).toBeLessThan(result.usage.wallMs * 0.2 * 2);
      expect((await sandbox.stats()).cpuMs).toBeGreaterThanOrEqual(result.usage.cpuMs * 0.9);
    });
  });
}
