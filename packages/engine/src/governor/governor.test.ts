import { spawn } from "node:child_process";
import { once } from "node:events";
import { existsSync, mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { setTimeout as sleep } from "node:timers/promises";
import { HoldfastError } from "@holdfast/protocol";
import fc from "fast-check";
import { afterEach, beforeEach, describe, expect, test, vi } from "vitest";
import { identifyProcess, ourIdentity } from "../host/processes.js";
import { type Amounts, NOTHING } from "./amounts.js";
import { type AdmissionRequest, Governor } from "./governor.js";
import { ReservationFiles } from "./reservation-files.js";
import type { HostBudget, Waiting } from "./types.js";
import { PATIENCE_MS } from "./waiting-line.js";

const GIB = 2 ** 30;
const LONG_MS = 10_000;
let directory: string;
let room: Amounts;
const governors: Governor[] = [];

beforeEach(() => {
  directory = mkdtempSync(join(tmpdir(), "holdfast-governor-"));
  room = { memoryBytes: 4 * GIB, pids: 1000, diskBytes: 100 * GIB };
});

afterEach(() => {
  for (const governor of governors.splice(0)) governor.close();
  rmSync(directory, { recursive: true });
});

function budget(): HostBudget {
  const host = {
    memoryBytes: 8 * GIB,
    memoryAvailableBytes: 8 * GIB,
    cpus: 2,
    pids: 1000,
    pidsAvailable: 1000,
    diskBytes: 100 * GIB,
    diskUsedBytes: 0,
  };
  const capacity = { memoryBytes: 8 * GIB, pids: 1000, diskBytes: 100 * GIB };
  return { host, reserve: { ...NOTHING, memoryBytes: GIB }, capacity, room, used: NOTHING };
}

function open(): Governor {
  const governor = new Governor({
    files: new ReservationFiles(join(directory, "budget"), ourIdentity()),
    readBudget: budget,
  });
  governors.push(governor);
  return governor;
}

const request = (id: string, memoryBytes: number, more: Partial<AdmissionRequest> = {}): AdmissionRequest => ({
  id,
  kind: "sandbox",
  lane: "",
  record: join(directory, id),
  amounts: { memoryBytes, pids: 10, diskBytes: GIB },
  ...more,
});

const refusalOf = async (work: Promise<unknown>): Promise<HoldfastError> => {
  const error: unknown = await work.then(
    () => undefined,
    (reason: unknown) => reason,
  );
  if (!(error instanceof HoldfastError)) throw new Error(`not refused: ${String(error)}`);
  return error;
};

describe("admission", () => {
  test("promises what there is and not a byte more", async () => {
    const governor = open();
    await governor.reserve(request("a", 3 * GIB));
    const refusal = await refusalOf(governor.reserve(request("b", GIB + 1)));
    expect(refusal.code).toBe("host_capacity");
    expect(refusal.details).toMatchObject({ resource: "memoryBytes", needed: GIB + 1, free: GIB });
    await governor.reserve(request("c", GIB));
    expect(governor.report().reserved.memoryBytes).toBe(4 * GIB);
    const sums = governor.report({ reservations: false });
    expect([sums.reserved.memoryBytes, sums.reservations]).toEqual([4 * GIB, []]);
  });

  test("counts processes and disk as it counts memory", async () => {
    const governor = open();
    const amounts = { memoryBytes: 1, pids: 600, diskBytes: 60 * GIB };
    await governor.reserve(request("a", 0, { amounts }));
    const pids = await refusalOf(governor.reserve(request("b", 0, { amounts: { ...amounts, diskBytes: 1 } })));
    expect(pids.details).toMatchObject({ resource: "pids", free: 400 });
    const disk = await refusalOf(governor.reserve(request("b", 0, { amounts: { ...amounts, pids: 1 } })));
    expect(disk.details).toMatchObject({ resource: "diskBytes", free: 40 * GIB });
  });

  test("refuses at once, with the numbers, what could never fit", async () => {
    const refusal = await refusalOf(open().reserve(request("a", 9 * GIB), { waitMs: LONG_MS }));
    expect(refusal.code).toBe("invalid_argument");
    expect(refusal.message).toContain("9 GiB");
    expect(refusal.details).toMatchObject({ field: "limits.memoryBytes", capacity: 8 * GIB, reserve: GIB });
  });

  test("refuses an id that is in use, and leaves the other's promise alone", async () => {
    const governor = open();
    await governor.reserve(request("a", GIB));
    expect((await refusalOf(governor.reserve(request("a", 2 * GIB)))).code).toBe("sandbox_exists");
    expect(governor.report().reserved.memoryBytes).toBe(GIB);
  });

  test("refuses an id that another process uses, whatever it asks for", async () => {
    const [one, other] = [open(), open()];
    await one.reserve(request("a", GIB));
    for (const memoryBytes of [GIB, 2 * GIB]) {
      expect((await refusalOf(other.reserve(request("a", memoryBytes)))).code).toBe("sandbox_exists");
    }
    expect(one.report().reservations).toEqual(other.report().reservations);
    expect(other.report().reserved.memoryBytes).toBe(GIB);
    other.adopt(request("a", GIB));
    one.removeStale(() => true);
    expect([one, other].map((each) => each.report().reserved.memoryBytes)).toEqual([GIB, GIB]);
    other.release("a");
    await one.reserve(request("a", GIB));
    one.release("a");
    expect(existsSync(join(directory, "budget"))).toBe(false);
  });

  test("whoever does not want to wait does not pass those whom nobody may pass", async () => {
    const governor = open();
    await governor.reserve(request("a", 2 * GIB));
    await governor.reserve(request("b", GIB));
    const held = governor.grow(request("a", 4 * GIB), { waitMs: LONG_MS, urgent: true });
    await expect.poll(() => governor.report().waiting).toBe(1);
    const refusal = await refusalOf(governor.reserve(request("c", GIB)));
    expect(refusal.code).toBe("host_capacity");
    expect(refusal.message).toContain("kept for somebody who waits already");
    // What it has is its own, and what the others do not lack is anybody's.
    await governor.grow(request("b", GIB));
    await governor.reserve(request("d", 0));
    governor.release("b");
    await held;
    expect(governor.report().reserved.memoryBytes).toBe(4 * GIB);
  });

  test("what grows passes those who want to begin something, however long they have waited", async () => {
    let now = 0;
    const clock = vi.spyOn(performance, "now").mockImplementation(() => now);
    const governor = open();
    await governor.reserve(request("a", 2 * GIB));
    const waiting = governor.reserve(request("b", 3 * GIB), { waitMs: LONG_MS });
    await expect.poll(() => governor.report().waiting).toBe(1);
    now = 2 * PATIENCE_MS;
    expect((await refusalOf(governor.reserve(request("c", GIB)))).message).toContain("kept for somebody");
    await governor.grow(request("a", 3 * GIB));
    clock.mockRestore();
    governor.release("a");
    await waiting;
  });

  test("refuses a second one of the same id while the first waits", async () => {
    const governor = open();
    await governor.reserve(request("a", 4 * GIB));
    const first = governor.reserve(request("b", GIB), { waitMs: LONG_MS });
    expect((await refusalOf(governor.reserve(request("b", GIB), { waitMs: LONG_MS }))).code).toBe("sandbox_exists");
    governor.release("a");
    await first;
    expect(governor.report().reserved.memoryBytes).toBe(GIB);
  });

  test("waits for room, says so with the position, and goes on as soon as somebody lets go", async () => {
    const governor = open();
    await governor.reserve(request("a", 4 * GIB));
    const seen: Waiting[] = [];
    const second = governor.reserve(request("b", 2 * GIB), { waitMs: LONG_MS, onWaiting: (each) => seen.push(each) });
    const third = governor.reserve(request("c", 2 * GIB), { waitMs: LONG_MS, onWaiting: (each) => seen.push(each) });
    await sleep(10);
    expect(seen.map(({ position }) => position)).toEqual([1, 2]);
    expect(seen[0]).toMatchObject({ resource: "memoryBytes", needed: 2 * GIB, free: 0 });
    expect(governor.report().waiting).toBe(2);
    governor.release("a");
    await Promise.all([second, third]);
    expect(governor.report()).toMatchObject({ waiting: 0, reserved: { memoryBytes: 4 * GIB } });
  });

  test("gives up at the deadline with the numbers", async () => {
    const governor = open();
    await governor.reserve(request("a", 4 * GIB));
    const refusal = await refusalOf(governor.reserve(request("b", GIB), { waitMs: 50 }));
    expect(refusal).toMatchObject({ code: "host_capacity", details: { needed: GIB, free: 0 } });
    expect(refusal.message).toContain("waiting");
    expect(governor.report().waiting).toBe(0);
  });

  test("is canceled while it waits, and those behind move up", async () => {
    const governor = open();
    await governor.reserve(request("a", 4 * GIB));
    const canceling = new AbortController();
    const positions: number[] = [];
    const canceled = refusalOf(governor.reserve(request("b", GIB), { waitMs: LONG_MS, signal: canceling.signal }));
    const behind = governor.reserve(request("c", GIB), {
      waitMs: LONG_MS,
      onWaiting: ({ position }) => positions.push(position),
    });
    await sleep(10);
    canceling.abort();
    expect((await canceled).code).toBe("canceled");
    expect(positions).toEqual([2, 1]);
    governor.release("a");
    await behind;
  });

  test("notices room that comes from outside", async () => {
    const governor = open();
    room = { ...room, memoryBytes: 0 };
    const waiting = governor.reserve(request("a", GIB), { waitMs: LONG_MS });
    await sleep(10);
    room = { ...room, memoryBytes: GIB };
    await waiting;
  });

  test("lets nobody wait for a governor that closes", async () => {
    const governor = open();
    await governor.reserve(request("a", 4 * GIB));
    const waiting = refusalOf(governor.reserve(request("b", GIB), { waitMs: LONG_MS }));
    await sleep(10);
    governor.close();
    expect((await waiting).code).toBe("canceled");
  });
});

describe("a promise", () => {
  test("grows while there is room, shrinks always, and is let go whole", async () => {
    const governor = open();
    await governor.reserve(request("a", GIB));
    await governor.reserve(request("b", GIB));
    await governor.grow(request("a", 3 * GIB));
    expect((await refusalOf(governor.grow(request("b", 2 * GIB)))).code).toBe("host_capacity");
    expect(governor.report().reserved.memoryBytes).toBe(4 * GIB);
    governor.shrink("a", { ...NOTHING, memoryBytes: GIB });
    await governor.grow(request("b", 2 * GIB));
    governor.release("a");
    governor.release("b");
    expect(governor.report().reserved).toEqual(NOTHING);
    expect(existsSync(join(directory, "budget"))).toBe(false);
  });

  test("is seen by every process on the host", async () => {
    const [one, other] = [open(), open()];
    await one.reserve(request("a", 3 * GIB));
    expect((await refusalOf(other.reserve(request("b", 2 * GIB)))).code).toBe("host_capacity");
    one.release("a");
    await other.reserve(request("b", 2 * GIB));
  });

  test("outlives its process for as long as the thing itself is there", async () => {
    const child = spawn("sleep", ["60"]);
    await once(child, "spawn");
    const owner = identifyProcess(child.pid ?? 0);
    if (owner === undefined) throw new Error("the child is gone");
    const dead = new Governor({
      files: new ReservationFiles(join(directory, "budget"), owner),
      readBudget: budget,
    });
    await dead.reserve(request("a", 3 * GIB));
    await dead.reserve(request("b", GIB));
    const governor = open();
    governor.removeStale(() => false);
    expect(governor.report().reserved.memoryBytes).toBe(4 * GIB);
    child.kill("SIGKILL");
    await once(child, "exit");
    governor.removeStale((record) => record === join(directory, "a"));
    expect(governor.report().reserved.memoryBytes).toBe(3 * GIB);
    governor.adopt(request("a", 2 * GIB));
    governor.removeStale(() => false);
    expect(governor.report()).toMatchObject({
      reserved: { memoryBytes: 2 * GIB },
      reservations: [{ id: "a", kind: "sandbox" }],
    });
  });

  test("is never made twice, whatever comes in whatever order", async () => {
    const step = fc.record({
      who: fc.nat(1),
      id: fc.constantFrom("a", "b", "c", "d", "e", "f"),
      memoryBytes: fc.integer({ min: 1, max: 4 * GIB }),
      what: fc.constantFrom("reserve", "release", "grow", "shrink"),
    });
    await fc.assert(
      fc.asyncProperty(fc.array(step, { maxLength: 30 }), async (steps) => {
        rmSync(join(directory, "budget"), { recursive: true, force: true });
        const both = [open(), open()];
        const owners = new Map<string, number>();
        for (const { who, id, memoryBytes, what } of steps) {
          const governor = both[owners.get(id) ?? who];
          if (governor === undefined) continue;
          if (what === "reserve" && !owners.has(id)) {
            await governor.reserve(request(id, memoryBytes)).then(
              () => owners.set(id, who),
              () => undefined,
            );
          } else if (owners.has(id)) {
            if (what === "release") {
              governor.release(id);
              owners.delete(id);
            }
            if (what === "grow") await governor.grow(request(id, memoryBytes)).catch(() => undefined);
            if (what === "shrink") governor.shrink(id, { ...NOTHING, memoryBytes });
          }
          const { reserved, reservations } = governor.report();
          expect(reserved.memoryBytes).toBeLessThanOrEqual(4 * GIB);
          expect(reservations.map((each) => each.id).sort()).toEqual([...owners.keys()].sort());
        }
      }),
      { numRuns: 40 },
    );
  });

  test("is made again when its file was lost, and grows all the same", async () => {
    const governor = open();
    await governor.reserve(request("a", 2 * GIB));
    await governor.reserve(request("b", GIB));
    rmSync(join(directory, "budget"), { recursive: true });
    await governor.grow(request("b", 2 * GIB));
    governor.removeStale(() => false);
    const other = open();
    expect(other.report().reserved.memoryBytes).toBe(4 * GIB);
    expect(
      other
        .report()
        .reservations.map(({ id }) => id)
        .sort(),
    ).toEqual(["a", "b"]);
    expect((await refusalOf(other.reserve(request("c", 1)))).code).toBe("host_capacity");
  });

  test("is not left behind by an attempt that fails after it was put down", async () => {
    const governor = open();
    await governor.reserve(request("a", GIB));
    // Named like a process's directory, which it is not.
    const obstacle = join(directory, "budget", "1.1.0");
    writeFileSync(obstacle, "");
    await expect(governor.reserve(request("b", GIB))).rejects.toThrow("ENOTDIR");
    await expect(governor.grow(request("a", 2 * GIB))).rejects.toThrow("ENOTDIR");
    rmSync(obstacle);
    expect(open().report()).toMatchObject({ reserved: { memoryBytes: GIB }, reservations: [{ id: "a" }] });
    await governor.reserve(request("b", 3 * GIB));
  });

  test("holds while many ask at the same moment", async () => {
    const governor = open();
    expect(existsSync(join(directory, "budget"))).toBe(false);
    await Promise.all(
      Array.from({ length: 50 }, async (_, index) => {
        const id = `p${index}`;
        await governor.reserve(request(id, GIB), { waitMs: LONG_MS });
        expect(governor.report().reserved.memoryBytes).toBeLessThanOrEqual(4 * GIB);
        await sleep(1);
        governor.release(id);
      }),
    );
    expect(governor.report().reserved).toEqual(NOTHING);
  });
});

describe("a shortage", () => {
  const warm = { kind: "warm", lane: "" } as const;

  test("is made good by who keeps what nobody needs, before anybody waits or is refused", async () => {
    const governor = open();
    await governor.reserve(request("w1", GIB, warm));
    await governor.reserve(request("w2", GIB, warm));
    const asked: { resource: string; missing: number; isShort: boolean }[] = [];
    const kept = ["w1", "w2"];
    governor.onShortage = async (resource, missing) => {
      asked.push({ resource, missing, isShort: governor.isShort });
      await sleep(1);
      const id = kept.pop();
      if (id !== undefined) governor.release(id);
      return id !== undefined;
    };
    await governor.reserve(request("a", 3 * GIB));
    expect(asked).toEqual([{ resource: "memoryBytes", missing: GIB, isShort: true }]);
    let hasWaited = false;
    const onWaiting = () => {
      hasWaited = true;
    };
    await governor.reserve(request("b", GIB), { waitMs: LONG_MS, onWaiting });
    expect(hasWaited).toBe(false);
    expect(governor.isShort).toBe(false);
    expect((await refusalOf(governor.reserve(request("c", GIB)))).code).toBe("host_capacity");
  });

  test("of what is only kept ready takes nothing from anybody", async () => {
    const governor = open();
    governor.onShortage = () => Promise.reject(new Error("it was asked"));
    await governor.reserve(request("a", 4 * GIB));
    expect((await refusalOf(governor.reserve(request("w", GIB, warm)))).code).toBe("host_capacity");
  });
});

test("a promise that is handed over is the same one, and somebody else's", async () => {
  const governor = open();
  await governor.reserve(request("a", GIB, { kind: "warm", lane: "" }));
  governor.handOver(request("a", GIB, { kind: "sandbox", lane: "key1" }));
  expect(governor.report()).toMatchObject({
    reserved: { memoryBytes: GIB },
    reservations: [{ id: "a", kind: "sandbox", lane: "key1" }],
  });
  const next = open();
  next.adopt(request("a", GIB));
  expect(next.report().reservations).toMatchObject([{ id: "a", lane: "key1" }]);
  expect(() => next.handOver(request("b", GIB))).toThrow("nothing is reserved");
});
