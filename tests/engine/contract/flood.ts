/** A gibibyte of output, whoever reads it or not, costs us next to nothing. */
import { createHash } from "node:crypto";
import { setTimeout as sleep } from "node:timers/promises";
import type { Command } from "@holdfast/engine";
import { describe, expect, it } from "vitest";
import { IN_VM, patienceMs, scaled } from "../../helpers/scale.js";
import { type OpenEngine, useSharedEngine } from "../../helpers/shared-engine.js";
import { MIB } from "../../helpers/use-engine.js";

const FLOOD_BYTES = IN_VM ? 128 * MIB : 1024 * MIB;
const GROWTH_ALLOWED_BYTES = 16 * MIB;
const HEAD_BYTES = 64 * 1024;
const TICK_MS = 10;

/** HEAD, then zeros, then TAIL. */
const flood = ["sh", "-c", `printf HEAD; head -c ${FLOOD_BYTES - 8} /dev/zero; printf TAIL`];

interface Watched<T> {
  readonly result: T;
  readonly growthBytes: number;
  readonly ticks: number;
  readonly longestPauseMs: number;
}

/** What happens to our memory and to a timer meanwhile. */
async function watched<T>(work: () => Promise<T>): Promise<Watched<T>> {
  globalThis.gc?.();
  const before = process.memoryUsage.rss();
  let [most, ticks, longestPauseMs, last] = [before, 0, 0, performance.now()];
  const timer = setInterval(() => {
    const now = performance.now();
    longestPauseMs = Math.max(longestPauseMs, now - last);
    last = now;
    ticks += 1;
    most = Math.max(most, process.memoryUsage.rss());
  }, TICK_MS);
  try {
    const result = await work();
    return { result, growthBytes: most - before, ticks, longestPauseMs };
  } finally {
    clearInterval(timer);
  }
}

interface Tally {
  dataBytes: number;
  gapBytes: number;
  first: string;
  last: string;
  events: number;
}

/** Reads everything, checks that offsets leave nothing out, and keeps only the ends. */
async function tally(command: Command, pause: () => Promise<void> = () => Promise.resolve()): Promise<Tally> {
  const sum: Tally = { dataBytes: 0, gapBytes: 0, first: "", last: "", events: 0 };
  for await (const event of command.output()) {
    if (event.stream !== "stdout") continue;
    if (event.offset !== sum.dataBytes + sum.gapBytes)
      throw new Error(`offset ${event.offset} after ${sum.dataBytes + sum.gapBytes} bytes`);
    sum.events += 1;
    if (event.kind === "gap") {
      sum.gapBytes += event.length;
      continue;
    }
    if (sum.dataBytes === 0) sum.first = event.bytes.subarray(0, 4).toString("latin1");
    sum.last = (sum.last + event.bytes.subarray(-4).toString("latin1")).slice(-4);
    sum.dataBytes += event.bytes.length;
    await pause();
  }
  return sum;
}

export function describeFlood(open: OpenEngine): void {
  describe("a flood of output", { timeout: patienceMs(60_000) }, () => {
    const use = useSharedEngine(open);

    it("without a reader leaves our memory and timers alone, and its head and tail are kept", async () => {
      const sandbox = await use.create();
      const { result, growthBytes, ticks, longestPauseMs } = await watched(async () => {
        const command = await sandbox.start({ argv: flood });
        return { id: command.id, ending: await command.ended };
      });
      expect(result.ending.cause).toEqual({ kind: "exited", code: 0 });
      expect(result.ending.incidents).toEqual([]);
      expect(result.ending.usage.stdoutBytes).toBe(FLOOD_BYTES);
      expect(growthBytes).toBeLessThan(GROWTH_ALLOWED_BYTES);
      expect(ticks).toBeGreaterThan(0);
      expect(longestPauseMs).toBeLessThan(patienceMs(200));
      const kept = await tally(await sandbox.attach(result.id));
      expect(kept).toMatchObject({ first: "HEAD", last: "TAIL" });
      expect(kept.dataBytes + kept.gapBytes).toBe(FLOOD_BYTES);
      expect(kept.dataBytes).toBeGreaterThanOrEqual(HEAD_BYTES + MIB / 2);
      expect(kept.dataBytes).toBeLessThanOrEqual(HEAD_BYTES + MIB);
    });

    it("into a slow reader leaves our memory and timers alone, and it is told what it missed", async () => {
      const sandbox = await use.create();
      const { result, growthBytes, longestPauseMs } = await watched(async () =>
        tally(await sandbox.start({ argv: flood }), () => sleep(20)),
      );
      expect(result).toMatchObject({ first: "HEAD", last: "TAIL" });
      expect(result.dataBytes + result.gapBytes).toBe(FLOOD_BYTES);
      expect(result.gapBytes).toBeGreaterThan(0);
      expect(growthBytes).toBeLessThan(GROWTH_ALLOWED_BYTES);
      expect(longestPauseMs).toBeLessThan(patienceMs(200));
    });

    it("into a reader that stops reading does not hold up the command", async () => {
      const sandbox = await use.create();
      const command = await sandbox.start({ argv: flood });
      for await (const event of command.output()) {
        expect(event.kind).toBe("data");
        await command.ended;
        break;
      }
      expect((await command.ended).usage.stdoutBytes).toBe(FLOOD_BYTES);
    });

    it("that blocks for its reader arrives whole", async () => {
      const sandbox = await use.create();
      const bytes = scaled(256, 16) * MIB;
      const { result, growthBytes, longestPauseMs } = await watched(async () => {
        const argv = ["bash", "-c", `head -c ${bytes} /dev/urandom | tee >(sha256sum >&2)`];
        const command = await sandbox.start({ argv, whenReaderIsSlow: "block" });
        const hash = createHash("sha256");
        let [stderr, count] = ["", 0];
        for await (const event of command.output()) {
          if (event.kind === "gap") throw new Error(`${event.length} bytes are lost`);
          if (event.stream === "stderr") stderr += event.bytes.toString();
          else {
            hash.update(event.bytes);
            count += event.bytes.length;
          }
          if (count % (8 * MIB) < event.bytes.length) await sleep(5);
        }
        return { count, theirs: stderr.slice(0, 64), ours: hash.digest("hex") };
      });
      expect(result.count).toBe(bytes);
      expect(result.ours).toBe(result.theirs);
      expect(growthBytes).toBeLessThan(64 * MIB);
      expect(longestPauseMs).toBeLessThan(patienceMs(200));
    });

    it("from twenty commands at once is kept within the guest's own bounds", async () => {
      const sandbox = await use.create();
      const { result, growthBytes } = await watched(() =>
        Promise.all(
          Array.from({ length: 20 }, async () => {
            const command = await sandbox.start({ argv: ["head", "-c", String(scaled(32, 4) * MIB), "/dev/zero"] });
            return command.ended;
          }),
        ),
      );
      expect(result.map(({ cause }) => cause)).toEqual(Array.from({ length: 20 }, () => ({ kind: "exited", code: 0 })));
      expect(growthBytes).toBeLessThan(GROWTH_ALLOWED_BYTES);
      expect((await sandbox.files.stat("/")).type).toBe("directory");
    });

    it("to a terminal is bounded too", async () => {
      const sandbox = await use.create();
      const command = await sandbox.start({
        argv: ["yes"],
        pty: { columns: 80, rows: 24 },
        limits: { wallMs: 500 },
        graceMs: 100,
      });
      const { growthBytes } = await watched(() => command.ended);
      expect((await command.ended).cause).toEqual({ kind: "timed_out", limitMs: 500 });
      expect(growthBytes).toBeLessThan(GROWTH_ALLOWED_BYTES);
    });
  });
}
