/** A fork bomb stays within its limit, and everybody else goes on. */
import { readdirSync } from "node:fs";
import { describe, expect, it } from "vitest";
import { fixture } from "../../helpers/fixtures.js";
import { ready } from "../../helpers/output-reader.js";
import { type OpenEngine, useSharedEngine } from "../../helpers/shared-engine.js";
import { run, SMALL_LIMITS, shell } from "../../helpers/use-engine.js";

const countProcesses = (): number => readdirSync("/proc").filter((name) => /^\d+$/.test(name)).length;

export function describePids(open: OpenEngine): void {
  describe("processes", () => {
    const use = useSharedEngine(open);

    it("of a fork bomb stay within the limit, and everybody else goes on", async () => {
      const before = countProcesses();
      const [bombed, neighbour] = await Promise.all([use.create(), use.create()]);
      const neighbours = countProcesses() - before;
      const bomb = await bombed.start({ argv: fixture("fork-bomb.sh") });
      await ready(bomb);
      let most = 0;
      let atLimit = false;
      for (let i = 0; i < 10; i++) {
        most = Math.max(most, countProcesses());
        atLimit ||= (await bombed.stats()).pids >= SMALL_LIMITS.pids - 8;
        expect((await run(neighbour, ["echo", "through"])).stdout).toBe("through\n");
        expect((await bombed.files.stat("/etc/passwd")).type).toBe("file");
        expect((await bombed.commands()).map(({ running }) => running)).toEqual([true]);
      }
      expect(atLimit).toBe(true);
      // One more for the neighbour's command of the moment.
      expect(most - before - neighbours).toBeLessThanOrEqual(SMALL_LIMITS.pids + 1);
      const ending = await bomb.cancel("the test", { graceMs: 0 });
      expect(ending.cause).toEqual({ kind: "canceled", by: "the test" });
      expect(ending.incidents).toMatchObject([{ kind: "out_of_pids", limit: SMALL_LIMITS.pids }]);
      expect((await run(bombed, ["echo", "recovered"])).stdout).toBe("recovered\n");
    });

    it("of a fork bomb end with the sandbox", async () => {
      const sandbox = await use.create();
      await ready(await sandbox.start({ argv: fixture("fork-bomb.sh") }));
      expect((await sandbox.kill("the test")).cause).toEqual({ kind: "killed", by: "the test" });
    });

    it("that were refused are the cause of a failure", async () => {
      const result = await shell(await use.create(), "for i in $(seq 200); do sleep 1000 & done");
      expect(result.exitCode).not.toBe(0);
      expect(result.cause).toMatchObject({ kind: "out_of_pids", limit: SMALL_LIMITS.pids });
      const refused = result.cause.kind === "out_of_pids" ? result.cause.refused : 0;
      expect(refused).toBeGreaterThan(0);
      expect(result.message).toContain("Try --pids 128");
    });

    it("that were refused on the way are an incident", async () => {
      const result = await shell(await use.create(), "(for i in $(seq 200); do sleep 1000 & done); exit 0");
      expect(result.cause).toEqual({ kind: "exited", code: 0 });
      expect(result.incidents).toMatchObject([{ kind: "out_of_pids", limit: SMALL_LIMITS.pids }]);
    });

    it("of one command are its own limit, and its neighbour has the rest", async () => {
      const sandbox = await use.create();
      const limited = await shell(sandbox, "for i in $(seq 20); do sleep 1000 & done", { limits: { pids: 6 } });
      expect(limited.cause).toMatchObject({ kind: "out_of_pids", limit: 6 });
      const free = await shell(sandbox, "for i in $(seq 20); do sleep 1000 & done; echo all");
      expect(free.stdout).toBe("all\n");
      expect(free.incidents).toEqual([]);
    });

    it("that were refused to one command are not put down to its neighbour", async () => {
      const sandbox = await use.create();
      const neighbour = await sandbox.start({ argv: ["bash", "-c", "echo ready; read line; exit 3"], stdin: "open" });
      await ready(neighbour);
      await shell(sandbox, "for i in $(seq 20); do sleep 1000 & done", { limits: { pids: 6 } });
      neighbour.stdin?.end("go\n");
      expect((await neighbour.ended).cause).toEqual({ kind: "exited", code: 3 });
      expect((await neighbour.ended).incidents).toEqual([]);
    });
  });
}
