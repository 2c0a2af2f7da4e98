import { HoldfastError, type SandboxId } from "@holdfast/protocol";
import { pino } from "pino";
import { afterEach, beforeEach, expect, test, vi } from "vitest";
import type { NewEvent, SandboxRow } from "../store/store.js";
import type { EventLog } from "./event-log.js";
import { LifeRecord } from "./life-record.js";

/** A store on a disk that is full for a while. */
class FullDisk {
  readonly kinds: string[] = [];
  isFull = true;

  async apply(_id: SandboxId, _change: object, event: NewEvent): Promise<void> {
    if (this.isFull) throw new HoldfastError("no_space", "the disk is full");
    this.kinds.push(event.kind);
  }
}

const row = { id: "i1" as SandboxId, status: "running" } as SandboxRow;
const event = (kind: NewEvent["kind"]): NewEvent => ({ kind, message: "", data: {} });
const open = (disk: FullDisk) =>
  new LifeRecord({ events: disk as unknown as EventLog, log: pino({ level: "silent" }) }, row);

beforeEach(() => {
  vi.useFakeTimers();
});
afterEach(() => {
  vi.useRealTimers();
});

test("a wish that cannot be written is refused and changes nothing", async () => {
  const record = open(new FullDisk());
  await expect(record.wish({ timeoutMs: 5 }, event("timeout_changed"))).rejects.toThrow("full");
  expect(record.row.timeoutMs).toBeUndefined();
});

test("a fact is known at once, does not keep anybody waiting, and is written in order when it can be", async () => {
  const disk = new FullDisk();
  const record = open(disk);
  await record.fact({ status: "paused" }, event("paused"));
  await record.fact({ status: "ended" }, event("ended"));
  expect(record.row.status).toBe("ended");
  expect(disk.kinds).toEqual([]);
  disk.isFull = false;
  await vi.advanceTimersByTimeAsync(60_000);
  await record.written();
  expect(disk.kinds).toEqual(["paused", "ended"]);
});
