import { describe, expect, it } from "vitest";
import { Slots } from "./slots.js";

const never = new AbortController().signal;

describe("Slots", () => {
  it("lets so many in, and the others in order", async () => {
    const slots = new Slots(2);
    const entered: number[] = [];
    const enter = async (index: number): Promise<() => void> => {
      const leave = await slots.enter(never);
      entered.push(index);
      return leave;
    };
    const entries = [0, 1, 2, 3].map(enter);
    const [first, second] = [await entries[0], await entries[1]];
    expect(slots.isFull).toBe(true);
    expect(entered).toEqual([0, 1]);
    first?.();
    first?.();
    const third = await entries[2];
    expect(entered).toEqual([0, 1, 2]);
    second?.();
    third?.();
    (await entries[3])?.();
    expect(slots.isFull).toBe(false);
  });

  it("lets go of whoever does not want to wait any more", async () => {
    const slots = new Slots(1);
    const leave = await slots.enter(never);
    const stop = new AbortController();
    const gone = slots.enter(stop.signal);
    const next = slots.enter(never);
    stop.abort(new Error("enough"));
    await expect(gone).rejects.toThrow("enough");
    leave();
    (await next)();
    await expect(slots.enter(stop.signal)).rejects.toThrow("enough");
    expect(slots.isFull).toBe(false);
  });
});
