import { existsSync, mkdirSync, mkdtempSync, readdirSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { basename, join } from "node:path";
import { beforeEach, expect, onTestFinished, test } from "vitest";
import { ourIdentity } from "../host/processes.js";
import { Scraps } from "./scraps.js";

let directory: string;
let scraps: Scraps;
const dead = new Scraps("", { pid: 4194303, startTicks: "1" });

beforeEach(() => {
  directory = mkdtempSync(join(tmpdir(), "holdfast-scraps-"));
  onTestFinished(() => rmSync(directory, { recursive: true, force: true }));
  scraps = new Scraps(directory, ourIdentity());
});

test("whoever uses what is about to go waits for a slow remover to decide, however long it takes", async () => {
  const mark = scraps.path("leaving", "one");
  writeFileSync(mark, "");
  let isDecided = false;
  setTimeout(() => {
    isDecided = true;
    rmSync(mark);
  }, 600);
  await scraps.decided(["two", "one"]);
  expect(isDecided).toBe(true);
});

test("nobody waits for a dead remover, nor for one that removes something else", async () => {
  writeFileSync(join(directory, dead.path("leaving", "one")), "");
  writeFileSync(scraps.path("leaving", "two"), "");
  mkdirSync(scraps.path("rest", "three"));
  const begun = performance.now();
  await scraps.decided(["one", "three"]);
  expect(performance.now() - begun).toBeLessThan(5000);
});

test("what is in use stays where it is, even while that is found out; what is not is out of reach", () => {
  mkdirSync(join(directory, "one"));
  expect(() =>
    scraps.takeAway("one", () => {
      throw new Error(`in use, ${existsSync(join(directory, "one")) ? "there" : "away"}`);
    }),
  ).toThrow("in use, there");
  expect(readdirSync(directory)).toEqual(["one"]);
  const rest = scraps.takeAway("one", () => undefined) as string;
  expect(readdirSync(directory)).toEqual([basename(rest)]);
  expect(scraps.takeAway("one", () => undefined)).toBeUndefined();
  expect(readdirSync(directory)).toEqual([basename(rest)]);
});
