/** A program that eats its memory dies alone, and the ending says whose limit it was. */
import { describe, expect, it } from "vitest";
import { ready } from "../../helpers/output-reader.js";
import { type OpenEngine, useSharedEngine } from "../../helpers/shared-engine.js";
import { MIB, run, SMALL_LIMITS, shell } from "../../helpers/use-engine.js";

/** tail keeps the last line, and /dev/zero has no end of it: coreutils' own memory hog. */
const MEMORY_HOG = ["tail", "/dev/zero"];

export function describeMemory(open: OpenEngine): void {
  describe("memory", () => {
    const use = useSharedEngine(open);

    it("kills the offender alone: its neighbour, the guest and the sandbox go on", async () => {
      const sandbox = await use.create();
      const neighbour = await sandbox.start({
        argv: ["bash", "-c", "echo ready; read line; echo got $line"],
        stdin: "open",
      });
      const reader = await ready(neighbour);
      const result = await run(sandbox, MEMORY_HOG);
      expect(result.cause).toMatchObject({
        kind: "out_of_memory",
        scope: "sandbox",
        limitBytes: SMALL_LIMITS.memoryBytes,
        kills: 1,
        victims: [{ name: "tail" }],
      });
      expect(result.exitCode).toBe(137);
      expect(result.message).toMatch(/^Killed for memory: limit 64 MiB, peak .*tail .*held .*Try --memory 128m\.$/);
      neighbour.stdin?.end("through\n");
      expect(await reader.rest()).toContain("got through");
      expect((await neighbour.ended).cause).toEqual({ kind: "exited", code: 0 });
      expect((await neighbour.ended).incidents).toEqual([]);
      expect((await sandbox.files.stat("/etc/passwd")).type).toBe("file");
    });

    it("is told as an incident when the shell hides the kill", async () => {
      const result = await shell(await use.create(), `${MEMORY_HOG.join(" ")}; echo went on; exit 0`);
      expect(result.stdout).toBe("went on\n");
      expect(result.cause).toEqual({ kind: "exited", code: 0 });
      expect(result.incidents).toMatchObject([
        { kind: "out_of_memory", scope: "sandbox", kills: 1, victims: [{ name: "tail" }] },
      ]);
      expect(result.message).toContain("On the way");
    });

    it("explains a failure of the shell by its child's kill", async () => {
      const result = await shell(await use.create(), `${MEMORY_HOG.join(" ")} || exit 3`);
      expect(result.exitCode).toBe(3);
      expect(result.cause).toMatchObject({ kind: "out_of_memory", kills: 1 });
    });

    it("of one command is its own limit", async () => {
      const sandbox = await use.create();
      const limits = { memoryBytes: 16 * MIB };
      const result = await run(sandbox, MEMORY_HOG, { limits });
      expect(result.cause).toMatchObject({ kind: "out_of_memory", scope: "command", limitBytes: 16 * MIB });
      const peak = result.cause.kind === "out_of_memory" ? (result.cause.peakBytes ?? 0) : 0;
      expect(peak).toBeLessThanOrEqual(16 * MIB);
      const inside = await run(sandbox, ["head", "-c", "32M", "/dev/zero"], { limits: { memoryBytes: 48 * MIB } });
      expect(inside.cause).toEqual({ kind: "exited", code: 0 });
    });

    it("of two hogs at once is told to each", async () => {
      const sandbox = await use.create();
      const results = await Promise.all([run(sandbox, MEMORY_HOG), run(sandbox, MEMORY_HOG)]);
      expect(results.map(({ cause }) => cause.kind)).toEqual(["out_of_memory", "out_of_memory"]);
    });

    it("includes /dev/shm, which is bounded too", async () => {
      const sandbox = await use.create();
      const filled = await shell(
        sandbox,
        "head -c 28M /dev/zero >/dev/shm/kept && head -c 40M /dev/zero >/dev/shm/more",
      );
      expect(filled.stderr).toContain("No space left");
      expect((await sandbox.stats()).memoryBytes).toBeGreaterThan(24 * MIB);
      const hog = await shell(sandbox, "head -c 48M /dev/zero | tail >/dev/null");
      const facts = [hog.cause, ...hog.incidents];
      expect(facts).toContainEqual(expect.objectContaining({ kind: "out_of_memory", scope: "sandbox" }));
    });

    it("says nothing of memory after a plain exit", async () => {
      const sandbox = await use.create();
      await run(sandbox, MEMORY_HOG);
      const result = await shell(sandbox, "exit 137");
      expect(result.cause).toEqual({ kind: "exited", code: 137 });
      expect(result.incidents).toEqual([]);
    });

    it("of a shared page cache is given back, not charged as a kill", async () => {
      const result = await shell(
        await use.create(),
        "head -c 48M /dev/zero >file; cat file file file >/dev/null; rm file",
      );
      expect(result.cause).toEqual({ kind: "exited", code: 0 });
      expect(result.incidents).toEqual([]);
    });
  });
}
