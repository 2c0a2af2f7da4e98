import { expect, test } from "vitest";
import { RateLimiter } from "./rate-limiter.js";

function useLimiter(maxBuckets?: number) {
  const clock = { ms: 1000 };
  const now = () => clock.ms;
  const limiter = new RateLimiter(maxBuckets === undefined ? { now } : { now, maxBuckets });
  const countAllowed = (name: string, rate: number, tries: number) =>
    Array.from({ length: tries }, () => limiter.take(name, rate)).filter((wait) => wait === 0).length;
  return { clock, limiter, countAllowed };
}

test("two seconds' worth may come at once, and never fewer than ten", () => {
  const { countAllowed } = useLimiter();
  expect(countAllowed("fast", 50, 500)).toBe(100);
  expect(countAllowed("slow", 0.5, 500)).toBe(10);
});

test("tokens come back at the rate, up to the burst", () => {
  const { clock, countAllowed } = useLimiter();
  countAllowed("a", 50, 200);
  clock.ms += 1000;
  expect(countAllowed("a", 50, 200)).toBe(50);
  clock.ms += 3_600_000;
  expect(countAllowed("a", 50, 200)).toBe(100);
});

test("the wait it names is enough, and hardly more than needed", () => {
  const { clock, limiter, countAllowed } = useLimiter();
  countAllowed("a", 0.3, 10);
  const wait = limiter.take("a", 0.3);
  clock.ms += wait - 10;
  expect(limiter.take("a", 0.3)).toBeGreaterThan(0);
  clock.ms += 10;
  expect(limiter.take("a", 0.3)).toBe(0);
});

test("a clock that is set back neither locks anybody out nor gives anything away", () => {
  const { clock, countAllowed } = useLimiter();
  expect(countAllowed("a", 5, 20)).toBe(10);
  clock.ms -= 500_000;
  expect(countAllowed("a", 5, 20)).toBe(0);
  clock.ms += 1000;
  expect(countAllowed("a", 5, 20)).toBe(5);
});

test("the number of buckets is bounded, and the longest unused goes first", () => {
  const { limiter, countAllowed } = useLimiter(3);
  for (const name of ["a", "b", "c"]) countAllowed(name, 1, 20);
  limiter.take("a", 1);
  limiter.take("d", 1);
  expect(limiter.size).toBe(3);
  expect(limiter.take("a", 1)).toBeGreaterThan(0);
  expect(limiter.take("b", 1)).toBe(0);
});
