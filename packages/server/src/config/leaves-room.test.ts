import { expect, test } from "vitest";
import { requireRoom } from "./leaves-room.js";

const GIB = 2 ** 30;

test("reserves that leave nothing for sandboxes are refused by name", () => {
  const capacity = { memoryBytes: GIB, pids: 100, diskBytes: GIB };
  const reserve = { memoryBytes: GIB, pids: 400, diskBytes: GIB };
  expect(() => requireRoom({ capacity, reserve })).not.toThrow();
  expect(() => requireRoom({ capacity: { ...capacity, pids: 0 }, reserve })).toThrow(
    "reservePids: 400 processes kept for the host leave nothing for sandboxes",
  );
  expect(() => requireRoom({ capacity: { ...capacity, memoryBytes: 0 }, reserve })).toThrow("reserveMemoryMb: 1 GiB");
});
