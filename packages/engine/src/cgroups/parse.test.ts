import { describe, expect, test } from "vitest";
import {
  cgroupPathUnderMount,
  parseCgroupMounts,
  parseCpuMax,
  parseFlatKeyed,
  parseLimit,
  parsePids,
  parseProcCgroup,
} from "./parse.js";

describe("parseProcCgroup", () => {
  test("reads v1, named and unified hierarchies", () => {
    const text = "9:name=systemd:/init.scope\n4:memory:/a/b\n1:cpu,cpuacct:/\n0::/user.slice\n";
    expect(parseProcCgroup(text)).toEqual([
      { hierarchyId: 9, controllers: ["name=systemd"], path: "/init.scope" },
      { hierarchyId: 4, controllers: ["memory"], path: "/a/b" },
      { hierarchyId: 1, controllers: ["cpu", "cpuacct"], path: "/" },
      { hierarchyId: 0, controllers: [], path: "/user.slice" },
    ]);
  });

  test("keeps colons in the path and drops the kernel's mark of a removed cgroup", () => {
    expect(parseProcCgroup("0::/a:b/c:d (deleted)\n")).toEqual([{ hierarchyId: 0, controllers: [], path: "/a:b/c:d" }]);
  });

  test("skips what is no such line", () => {
    expect(parseProcCgroup("\nnonsense\n0:\n")).toEqual([]);
  });
});

describe("parseCgroupMounts", () => {
  test("finds v1 and v2 mounts among others, with and without optional fields", () => {
    const text = [
      "31 23 0:28 / /sys/fs/cgroup rw,relatime - tmpfs tmpfs rw,mode=755",
      "35 31 0:32 / /sys/fs/cgroup/memory rw,relatime - cgroup cgroup rw,memory",
      "36 31 0:33 /docker/abc /sys/fs/cgroup/cpu,cpuacct ro,nosuid shared:9 master:3 - cgroup cgroup rw,cpu,cpuacct",
      "41 31 0:38 / /sys/fs/cgroup/unified rw shared:1 - cgroup2 cgroup2 rw,nsdelegate",
      "",
    ].join("\n");
    expect(parseCgroupMounts(text)).toMatchObject([
      { version: 1, root: "/", mountPoint: "/sys/fs/cgroup/memory", readOnly: false, superOptions: ["rw", "memory"] },
      { version: 1, root: "/docker/abc", mountPoint: "/sys/fs/cgroup/cpu,cpuacct", readOnly: true },
      { version: 2, mountPoint: "/sys/fs/cgroup/unified", superOptions: ["rw", "nsdelegate"] },
    ]);
  });

  test("undoes the octal escapes", () => {
    const [mount] = parseCgroupMounts("41 31 0:38 /a\\134b /mnt/my\\040cgroups rw - cgroup2 none rw");
    expect(mount).toMatchObject({ root: "/a\\b", mountPoint: "/mnt/my cgroups" });
  });

  test("a mount on the same point hides the earlier one", () => {
    const text = "41 31 0:38 / /cg rw - cgroup2 none rw\n42 41 0:39 / /cg rw - tmpfs none rw";
    expect(parseCgroupMounts(text)).toEqual([]);
  });
});

test("parseFlatKeyed reads counters and ignores the rest", () => {
  const values = parseFlatKeyed("oom_kill_disable 0\nunder_oom 0\noom_kill 3\nsome avg10=0.00\n");
  expect([...values]).toEqual([
    ["oom_kill_disable", 0],
    ["under_oom", 0],
    ["oom_kill", 3],
  ]);
});

test.each([
  ["max\n", undefined],
  ["-1\n", undefined],
  ["9223372036854771712\n", undefined],
  ["", undefined],
  ["0\n", 0],
  ["536870912\n", 536_870_912],
])("parseLimit of %j is %s", (text, expected) => {
  expect(parseLimit(text)).toBe(expected);
});

test("parseCpuMax tells a quota from none", () => {
  expect(parseCpuMax("max 100000\n")).toBeUndefined();
  expect(parseCpuMax("150000 100000\n")).toEqual({ quotaUsec: 150_000, periodUsec: 100_000 });
});

test("parsePids keeps the zeros of processes that our namespace cannot see", () => {
  expect(parsePids("12\n0\n7\n")).toEqual([12, 0, 7]);
});

describe("cgroupPathUnderMount", () => {
  test.each([
    [{ root: "/", mountPoint: "/cg" }, "/", "/cg"],
    [{ root: "/", mountPoint: "/cg" }, "/a/b", "/cg/a/b"],
    [{ root: "/docker/abc", mountPoint: "/cg" }, "/docker/abc", "/cg"],
    [{ root: "/docker/abc", mountPoint: "/cg" }, "/docker/abc/x", "/cg/x"],
    [{ root: "/docker/abc", mountPoint: "/cg" }, "/docker/abcd", undefined],
    [{ root: "/", mountPoint: "/cg" }, "/../other", undefined],
  ])("%j with %s is %s", (mount, path, expected) => {
    expect(cgroupPathUnderMount(mount, path)).toBe(expected);
  });
});
