import { HoldfastError } from "@holdfast/protocol";
import { afterEach, beforeEach, describe, expect, test, vi } from "vitest";
import { ElasticMemory, type ElasticSandbox } from "./elastic-memory.js";
import type { Admission, MemoryEvent, Waited } from "./types.js";

const MIB = 1024 * 1024;

/** A host with so much room, and a sandbox that needs so much. */
class Place implements ElasticSandbox {
  limitBytes = 128 * MIB;
  readonly startBytes = 128 * MIB;
  readonly ceilingBytes = 1024 * MIB;
  roomBytes = Number.POSITIVE_INFINITY;
  neededBytes = 0;
  isHolding = false;
  running = true;
  kills = 0;
  waiting: (() => void) | undefined;
  /** Resolves when there is room below a lower limit. */
  loweredAfter: Promise<void> = Promise.resolve();

  isRunning(): boolean {
    return this.running;
  }
  shortage(): "none" | "near" | "held" {
    if (this.neededBytes > this.limitBytes) return this.isHolding ? "held" : "none";
    return this.neededBytes > this.limitBytes * 0.9 ? "near" : "none";
  }
  async setHolding(holding: boolean): Promise<void> {
    this.isHolding = holding;
    if (holding || this.neededBytes <= this.limitBytes) return;
    this.kills += 1;
    this.neededBytes = 0;
  }
  oomKills(): number {
    return this.kills;
  }
  workingSetBytes(): number {
    return this.neededBytes;
  }
  async setLimit(bytes: number, admission?: Admission): Promise<void> {
    if (bytes > this.roomBytes) await this.#wait(bytes, admission);
    if (bytes < this.limitBytes) {
      const calledOff = new Promise((resolve) => admission?.signal?.addEventListener("abort", resolve));
      await Promise.race([this.loweredAfter, calledOff]);
      if (admission?.signal?.aborted === true) throw new HoldfastError("canceled", "canceled");
    }
    this.limitBytes = bytes;
  }
  #wait(bytes: number, admission?: Admission): Promise<void> {
    return new Promise((resolve, reject) => {
      const tell = (outcome: Waited["outcome"]) => admission?.onWaited?.({ kind: "sandbox", waitedMs: 0, outcome });
      const refuse = (code: "host_capacity" | "canceled") => {
        tell(code === "canceled" ? code : "refused");
        reject(new HoldfastError(code, code));
      };
      if (admission?.waitMs === undefined) return refuse("host_capacity");
      admission.onWaiting?.({ position: 1, resource: "memoryBytes", needed: bytes, free: 0 });
      admission.signal?.addEventListener("abort", () => refuse("canceled"));
      const timer = setTimeout(() => refuse("host_capacity"), admission.waitMs);
      this.waiting = () => {
        clearTimeout(timer);
        tell("admitted");
        resolve();
      };
    });
  }
}

let place: Place;
let events: MemoryEvent[];
let elastic: ElasticMemory;
const kinds = () => events.map(({ kind }) => kind);

beforeEach(() => {
  vi.useFakeTimers();
  place = new Place();
  events = [];
  elastic = new ElasticMemory(place, {
    waitMs: 1000,
    tell: (event) => events.push(event),
    onError: (error) => {
      throw error;
    },
  });
});
afterEach(() => {
  elastic.close();
  vi.useRealTimers();
});

describe("a sandbox", () => {
  test("that comes near its limit is given more before it is held", async () => {
    place.neededBytes = 120 * MIB;
    await elastic.look();
    expect(place.limitBytes).toBe(256 * MIB);
    expect(kinds()).toEqual(["grown"]);
    expect(elastic.history).toMatchObject([{ fromBytes: 128 * MIB, toBytes: 256 * MIB, heldMs: null }]);
  });

  test("that needs much grows step by step until it has it", async () => {
    place.neededBytes = 600 * MIB;
    await elastic.look();
    expect(place.limitBytes).toBe(1024 * MIB);
    expect(kinds()).toEqual(["held", "grown", "held", "grown", "held", "grown"]);
    expect(place.isHolding).toBe(false);
  });

  test("takes what room there is", async () => {
    place.neededBytes = 140 * MIB;
    place.roomBytes = 170 * MIB;
    await elastic.look();
    expect(place.limitBytes).toBe(160 * MIB);
  });

  test("without room waits, and goes on when there is some", async () => {
    place.neededBytes = 130 * MIB;
    place.roomBytes = 0;
    const looking = elastic.look();
    await vi.advanceTimersByTimeAsync(500);
    expect(kinds()).toEqual(["held", "waiting"]);
    place.waiting?.();
    await looking;
    expect(kinds()).toEqual(["held", "waiting", "waited", "grown"]);
    expect(place.kills).toBe(0);
  });

  test("without room for too long is let go, and the others are held again", async () => {
    place.neededBytes = 600 * MIB;
    place.roomBytes = 0;
    const looking = elastic.look();
    await vi.advanceTimersByTimeAsync(1100);
    await looking;
    expect(kinds()).toEqual(["held", "waiting", "waited", "let_go"]);
    expect(place.kills).toBe(1);
    expect(place.isHolding).toBe(true);
  });

  test("that comes to stand still while it waits is not killed for that", async () => {
    place.neededBytes = 600 * MIB;
    place.roomBytes = 0;
    const looking = elastic.look();
    await vi.advanceTimersByTimeAsync(100);
    place.running = false;
    elastic.interrupt();
    await looking;
    await vi.advanceTimersByTimeAsync(5000);
    expect([place.kills, place.isHolding]).toEqual([0, true]);
    place.running = true;
    place.roomBytes = Number.POSITIVE_INFINITY;
    await elastic.look();
    expect(place.limitBytes).toBe(1024 * MIB);
  });

  test("that needs more while it is being looked after is looked at again", async () => {
    place.neededBytes = 130 * MIB;
    const looking = elastic.look();
    place.neededBytes = 300 * MIB;
    await Promise.all([looking, elastic.look()]);
    expect(place.limitBytes).toBe(512 * MIB);
  });
});

describe("a limit that has grown", () => {
  beforeEach(async () => {
    place.neededBytes = 600 * MIB;
    await elastic.look();
    events.length = 0;
  });

  test("shrinks when it has been too high for a while, to what is used and a margin", async () => {
    place.neededBytes = 200 * MIB;
    await vi.advanceTimersByTimeAsync(29_000);
    expect(place.limitBytes).toBe(1024 * MIB);
    await vi.advanceTimersByTimeAsync(2000);
    expect(place.limitBytes).toBe(352 * MIB);
    expect(kinds()).toEqual(["shrunk"]);
    expect(place.isHolding).toBe(true);
  });

  test("is not lowered any more once it is needed again, and grows at once", async () => {
    place.limitBytes = 512 * MIB;
    place.isHolding = true;
    place.neededBytes = 200 * MIB;
    place.loweredAfter = new Promise(() => {});
    await vi.advanceTimersByTimeAsync(30_000);
    // A call without need does not stop it.
    await elastic.look();
    place.neededBytes = 600 * MIB;
    await elastic.look();
    await vi.advanceTimersByTimeAsync(0);
    expect(place.limitBytes).toBe(1024 * MIB);
    expect(kinds()).toEqual(["held", "grown"]);
  });

  test("is not lowered any more when it is to stand still", async () => {
    place.neededBytes = 200 * MIB;
    place.loweredAfter = new Promise(() => {});
    await vi.advanceTimersByTimeAsync(30_000);
    elastic.interrupt();
    await vi.advanceTimersByTimeAsync(0);
    place.loweredAfter = Promise.resolve();
    await vi.advanceTimersByTimeAsync(30_000);
    expect(place.limitBytes).toBe(352 * MIB);
  });

  test("stays while it is needed now and then", async () => {
    for (let i = 0; i < 6; i++) {
      place.neededBytes = i % 2 === 0 ? 200 * MIB : 800 * MIB;
      await vi.advanceTimersByTimeAsync(10_000);
    }
    expect(place.limitBytes).toBe(1024 * MIB);
  });

  test("shrinks to no less than where it began", async () => {
    place.neededBytes = 0;
    await vi.advanceTimersByTimeAsync(40_000);
    expect(place.limitBytes).toBe(128 * MIB);
  });
});
