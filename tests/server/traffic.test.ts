/**
 * Simulated traffic: short commands, failures, timeouts, floods of output, fork bombs, hogs of memory, sandboxes killed in the
 * middle. Afterwards everything is where it was, and every ending has a cause. `npm run soak:traffic` is the long version.
 */
import { readFileSync } from "node:fs";
import { setTimeout as sleep } from "node:timers/promises";
import type { HostInfo } from "@holdfast/protocol";
import { Holdfast, type HoldfastError, type Sandbox } from "@holdfast/sdk";
import { afterAll, expect, test } from "vitest";
import { patienceMs, scaled } from "../helpers/scale.js";
import { makeSmallHost } from "../helpers/small-host.js";
import { useServer } from "../helpers/use-server.js";

const MIB = 1024 * 1024;
const COMMANDS = Number(process.env.HOLDFAST_TRAFFIC_COMMANDS ?? scaled(400, 60));
const SECONDS = Number(process.env.HOLDFAST_TRAFFIC_SECONDS ?? 10);
const WORKERS = 6;
/** How many commands a sandbox sees before it makes place for another. */
const COMMANDS_EACH = 25;
const MOST_GROWTH_MIB = 128;

const small = makeSmallHost({ memoryBytes: 3072 * MIB, pids: 1200 });
// Before the server's own, because hooks run in reverse.
afterAll(() => small.remove());
const server = useServer({ env: { HOLDFAST_CGROUP_PARENT: small.parent } });

interface Kind {
  readonly weight: number;
  readonly line: string;
  readonly timeoutMs?: number;
  readonly expected: readonly string[];
}
/** What may come of each; whatever runs when its sandbox is killed is canceled. */
const KINDS: readonly Kind[] = [
  { weight: 60, line: "echo hello", expected: ["exited"] },
  { weight: 8, line: "exit 3", expected: ["exited"] },
  { weight: 6, line: "seq 20000", expected: ["exited"] },
  { weight: 6, line: "kill -SEGV $$", expected: ["signaled"] },
  { weight: 6, line: "sleep 60", timeoutMs: 300, expected: ["timed_out"] },
  { weight: 5, line: "setsid sleep 300 & setsid sleep 300 & echo left", expected: ["exited"] },
  { weight: 5, line: "perl -e 'fork; fork; fork; exit 0'", expected: ["exited"] },
  // Both grow into their limit; what the fork bomb is refused with is its own to make something of.
  {
    weight: 2,
    line: ":(){ :|:& };:; sleep 0.3; exit 9",
    timeoutMs: 3000,
    expected: ["out_of_pids", "timed_out", "exited"],
  },
  { weight: 2, line: `perl -e 'vec($x, 400*1048576, 8) = 1'`, expected: ["out_of_memory"] },
];

function pick(): Kind {
  let at = Math.random() * KINDS.reduce((sum, { weight }) => sum + weight, 0);
  for (const kind of KINDS) {
    at -= kind.weight;
    if (at < 0) return kind;
  }
  return KINDS[0] as Kind;
}

const host = async () => (await server.call<HostInfo>("GET", "/v1/host")).body;
const residentMib = () => Number(/VmRSS:\s+(\d+)/.exec(readFileSync(`/proc/${server.pid}/status`, "utf8"))?.[1]) / 1024;
const metric = async (name: string) =>
  Number(new RegExp(`^${name} (\\d+)$`, "m").exec(await (await fetch(`${server.url}/metrics`)).text())?.[1]);

test(`${COMMANDS} commands in ${SECONDS} s of traffic leave nothing, and nothing unexplained`, {
  timeout: patienceMs(SECONDS * 4000 + 120_000),
}, async () => {
  const holdfast = new Holdfast({ url: server.url, apiKey: server.apiKey });
  const seen: Record<string, number> = {};
  const surprises: string[] = [];
  let left = COMMANDS;
  let residentBefore = 0;
  const pauseMs = (SECONDS * 1000 * WORKERS) / COMMANDS;

  const runOne = async (sandbox: Sandbox): Promise<void> => {
    const kind = pick();
    const begun = Date.now();
    try {
      const { cause } = await sandbox.run(kind.line, { timeoutMs: kind.timeoutMs ?? 20_000 });
      seen[cause.kind] = (seen[cause.kind] ?? 0) + 1;
      if (![...kind.expected, "canceled"].includes(cause.kind))
        surprises.push(`${kind.line}: ${JSON.stringify(cause)}`);
    } catch (error) {
      const { code } = error as HoldfastError;
      seen[code] = (seen[code] ?? 0) + 1;
      // Its sandbox went, or is as full as it may be.
      if (!["sandbox_ended", "sandbox_not_found", "pid_pressure", "host_pressure"].includes(code)) {
        surprises.push(`${kind.line}: ${code} ${(error as Error).message}`);
      }
    }
    await sleep(Math.max(0, Math.random() * 2 * pauseMs - (Date.now() - begun)));
  };
  const worker = async (): Promise<void> => {
    while (left > 0) {
      const sandbox = await holdfast.sandboxes.create({
        memory: { start: "64m", max: "256m" },
        limits: { pids: 64 },
        waitMs: 60_000,
      });
      const isCut = Math.random() < 0.3;
      for (let i = 0; i < COMMANDS_EACH && left > 0; i++) {
        left -= 1;
        if (isCut && Math.random() < 0.1) {
          // In the middle of a command.
          const running = runOne(sandbox);
          await sleep(Math.random() * 50);
          await sandbox.kill();
          await running;
          break;
        }
        await runOne(sandbox);
      }
      await sandbox.kill().catch(() => undefined);
      residentBefore ||= residentMib();
    }
  };
  await Promise.all(Array.from({ length: WORKERS }, worker));

  console.log(JSON.stringify(seen));
  expect(surprises).toEqual([]);
  expect(await metric("holdfast_unknown_causes_total")).toBe(0);
  expect(seen.exited).toBeGreaterThan(COMMANDS / 2);
  expect(seen.pid_pressure ?? 0).toBeLessThan(COMMANDS / 20);
  expect(small.oomKills()).toBe(0);
  await expect
    .poll(async () => (await host()).reservations.filter(({ kind }) => kind !== "warm"), {
      timeout: patienceMs(10_000),
    })
    .toEqual([]);
  // Those that are kept ready are the pool's; each has two processes of ours and the first command's place.
  const { warm } = await host();
  await expect.poll(() => small.pids(), { timeout: patienceMs(10_000) }).toBeLessThanOrEqual(4 * warm.ready);
  expect(residentMib() - residentBefore).toBeLessThan(MOST_GROWTH_MIB);
});
