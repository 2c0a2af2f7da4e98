import { getEventListeners } from "node:events";
import { afterEach, beforeEach, expect, test, vi } from "vitest";
import { Attendance } from "./attendance.js";

beforeEach(() => void vi.useFakeTimers());
afterEach(() => void vi.useRealTimers());

function attendance(comeBackMs: number) {
  const onForsaken = vi.fn();
  return { onForsaken, attended: new Attendance({ comeBackMs, onForsaken }) };
}

test("whoever goes ends it at once, or after a while in which others may come", () => {
  const gone = AbortSignal.abort();
  const atOnce = attendance(0);
  atOnce.attended.attend(gone);
  expect(atOnce.onForsaken).toHaveBeenCalledTimes(1);
  const later = attendance(5000);
  later.attended.attend(gone);
  vi.advanceTimersByTime(4999);
  expect(later.onForsaken).not.toHaveBeenCalled();
  vi.advanceTimersByTime(1);
  expect(later.onForsaken).toHaveBeenCalledTimes(1);
});

test("it goes on for as long as one of many is there, or has come back", () => {
  const { attended, onForsaken } = attendance(5000);
  const [first, second] = [new AbortController(), new AbortController()];
  attended.attend(first.signal);
  attended.attend(second.signal);
  first.abort();
  vi.advanceTimersByTime(60_000);
  second.abort();
  vi.advanceTimersByTime(4000);
  const third = new AbortController();
  attended.attend(third.signal);
  vi.advanceTimersByTime(60_000);
  expect(onForsaken).not.toHaveBeenCalled();
  attended.end();
  expect(getEventListeners(third.signal, "abort")).toEqual([]);
  third.abort();
  vi.advanceTimersByTime(60_000);
  expect(onForsaken).not.toHaveBeenCalled();
});

test("who cannot go stays", () => {
  const { attended, onForsaken } = attendance(0);
  attended.attend(undefined);
  attended.attend(AbortSignal.abort());
  expect(onForsaken).not.toHaveBeenCalled();
});
