import type { Waited, Waiting } from "@holdfast/engine";
import { afterEach, beforeEach, expect, test, vi } from "vitest";
import { type WaitingNews, waitingNews } from "./waiting-news.js";

const at = (position: number): Waiting => ({ position, resource: "memoryBytes", needed: 2, free: 1 });
const ENDED: Waited = { kind: "sandbox", waitedMs: 300, outcome: "admitted" };

let told: (number | string)[];
let news: WaitingNews;
beforeEach(() => {
  vi.useFakeTimers();
  told = [];
  news = waitingNews(
    ({ position }) => told.push(position),
    ({ outcome }) => told.push(outcome),
  );
});
afterEach(() => vi.useRealTimers());

test("the first position is told at once, and the last of each second after it", () => {
  for (const position of [9, 8, 7]) news.onWaiting(at(position));
  expect(told).toEqual([9]);
  vi.advanceTimersByTime(1000);
  expect(told).toEqual([9, 7]);
});

test("no position is told once the waiting has ended", () => {
  news.onWaiting(at(3));
  news.onWaiting(at(2));
  news.onWaited(ENDED);
  vi.advanceTimersByTime(5000);
  expect(told).toEqual([3, "admitted"]);
});

test("whoever waits again is told of again", () => {
  news.onWaiting(at(2));
  news.onWaiting(at(1));
  news.onWaited(ENDED);
  news.onWaiting(at(4));
  vi.advanceTimersByTime(1000);
  expect(told).toEqual([2, "admitted", 4]);
});
