import { HoldfastError } from "@holdfast/protocol";
import { expect, test } from "vitest";
import { findMount, kernelPath, parseParent } from "./hierarchies.js";
import { cpuQuota } from "./limits.js";
import { parseCgroupMounts, parseProcCgroup } from "./parse.js";

test.each([
  ["/", []],
  ["a", ["a"]],
  ["/machine.slice/sand-boxes/", ["machine.slice", "sand-boxes"]],
  ["user@1000.service", ["user@1000.service"]],
])("parseParent takes %j", (text, expected) => {
  expect(parseParent(text)).toEqual(expected);
});

test.each(["", "..", "a/../b", "./a", "a b", "a\nb", "x".repeat(600)])("parseParent refuses %j", (text) => {
  expect(() => parseParent(text)).toThrow(HoldfastError);
});

test("findMount prefers a writable mount that shows our own cgroup", () => {
  const mounts = parseCgroupMounts(
    [
      "1 0 0:1 / /first ro - cgroup cgroup rw,memory",
      "2 0 0:1 /other /second rw - cgroup cgroup rw,memory",
      "3 0 0:1 /ours /third rw - cgroup cgroup rw,memory",
      "4 0 0:2 / /unified rw - cgroup2 cgroup2 rw",
    ].join("\n"),
  );
  const own = parseProcCgroup("4:memory:/ours/app\n0::/\n");
  expect(findMount(mounts, own, "memory")?.mountPoint).toBe("/third");
  expect(findMount(mounts, own, undefined)?.mountPoint).toBe("/unified");
  expect(findMount(mounts, own, "pids")).toBeUndefined();
});

test("kernelPath is the path from the hierarchy's true root", () => {
  expect(kernelPath({ mountPoint: "/cg/memory", mountRoot: "/" }, "/cg/memory/holdfast/x")).toBe("/holdfast/x");
  expect(kernelPath({ mountPoint: "/cg", mountRoot: "/docker/abc" }, "/cg/holdfast/x")).toBe("/docker/abc/holdfast/x");
});

test.each([
  [1000, 100_000, 100_000],
  [1500, 150_000, 100_000],
  [10, 1000, 100_000],
  [5, 1000, 200_000],
  [1, 1000, 1_000_000],
])("cpuQuota of %i thousandths is %i us in %i us", (cpuMillis, quotaUsec, periodUsec) => {
  expect(cpuQuota(cpuMillis)).toEqual({ quotaUsec, periodUsec });
});
