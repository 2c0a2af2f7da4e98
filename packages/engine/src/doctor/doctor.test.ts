import { HoldfastError } from "@holdfast/protocol";
import { expect, test } from "vitest";
import type { CgroupHost } from "../cgroups/index.js";
import { inspectBudgets } from "./budgets.js";
import { fileSystemOf, inspectIdMappedMounts } from "./id-mapped-mounts.js";
import { inspectIsolation } from "./isolation.js";
import { inspectPlatform, isAtLeast } from "./platform.js";
import { parseMeminfo } from "./resources.js";
import { type DoctorRow, reportOf } from "./row.js";

const good = { platform: "linux", kernel: "6.1.0-18-cloud-amd64", uid: 0, node: "20.19.0" };
const stateOf = (rows: readonly DoctorRow[], name: string): string | undefined =>
  rows.find((row) => row.name === name)?.state;

test("a host is well if nothing that is required is missing", () => {
  const row = { name: "x", by: "y" };
  expect(reportOf([{ ...row, state: "weak", required: true }]).ok).toBe(true);
  expect(reportOf([{ ...row, state: "missing", required: false }]).ok).toBe(true);
  expect(reportOf([{ ...row, state: "missing", required: true }]).ok).toBe(false);
});

test("versions are compared as numbers", () => {
  expect(isAtLeast("5.19.1", [5, 19])).toBe(true);
  expect(isAtLeast("5.4.0", [5, 19])).toBe(false);
  expect(isAtLeast("10.0", [5, 19])).toBe(true);
  expect(isAtLeast("no version", [0, 8])).toBe(false);
});

test("an old kernel, an ordinary user and an old Node.js are each named", () => {
  expect(inspectPlatform(good).map((row) => row.state)).toEqual(["ok", "ok", "ok"]);
  expect(stateOf(inspectPlatform({ ...good, kernel: "5.10.0" }), "kernel")).toBe("missing");
  expect(stateOf(inspectPlatform({ ...good, uid: 1000 }), "root")).toBe("missing");
  expect(stateOf(inspectPlatform({ ...good, node: "18.20.1" }), "Node.js")).toBe("missing");
  expect(inspectPlatform({ ...good, platform: "darwin" })).toMatchObject([{ name: "Linux", state: "missing" }]);
});

test("user namespaces that are switched off are missing, with the switch as the remedy", () => {
  const rows = inspectIsolation((path) => (path.endsWith("max_user_namespaces") ? "0" : undefined));
  expect(rows.find((row) => row.name === "user namespaces")).toMatchObject({
    state: "missing",
    remedy: "sysctl -w user.max_user_namespaces=10000",
  });
});

test("a switch that binds ordinary users only is told and is no obstacle", () => {
  const files: Record<string, string> = {
    "/proc/sys/user/max_user_namespaces": "9000",
    "/proc/sys/kernel/unprivileged_userns_clone": "0",
    "/proc/sys/kernel/seccomp/actions_avail": "kill_process kill_thread trap errno user_notif trace log allow",
  };
  const rows = inspectIsolation((path) => files[path]);
  expect(rows.map((row) => row.state)).toEqual(["ok", "ok"]);
  expect(rows[0]?.by).toContain("kernel.unprivileged_userns_clone=0, which does not bind root");
});

test("a host without cgroups that we may use is missing them, with the engine's own remedy", () => {
  const rows = inspectBudgets(() => {
    throw new HoldfastError("host_unsupported", "no memory controller", { hint: "Mount it." });
  });
  expect(rows).toMatchObject([{ name: "cgroups", state: "missing", remedy: "Mount it." }]);
});

test("a missing limit is missing, a missing convenience is weak", () => {
  const controllers = { memory: { by: "m" }, pids: { by: "p" }, kill: { by: "k" } };
  const host = { layout: "v1", controllers, removeIfEmptyParents: () => {} } as unknown as CgroupHost;
  const rows = inspectBudgets(() => host);
  expect(stateOf(rows, "memory limit")).toBe("ok");
  expect(stateOf(rows, "CPU limit")).toBe("missing");
  expect(stateOf(rows, "pressure")).toBe("weak");
});

test("every row that is not well says what to do", () => {
  const rows = [
    ...inspectPlatform({ ...good, kernel: "4.1", uid: 5, node: "1.0" }),
    ...inspectIsolation(() => undefined),
    ...inspectBudgets(
      () => ({ layout: "v1", controllers: {}, removeIfEmptyParents: () => {} }) as unknown as CgroupHost,
    ),
  ];
  expect(rows.filter((row) => row.state !== "ok" && row.remedy === undefined)).toEqual([]);
});

test("meminfo is read in bytes", () => {
  expect(parseMeminfo("MemTotal:       24684168 kB\nHugePages_Total:       0\n")).toEqual(
    new Map([["MemTotal", 24684168 * 1024]]),
  );
});

test("the file system of a path is that of the innermost mount", () => {
  const mountinfo = [
    "22 1 254:0 / / rw,relatime shared:1 - ext4 /dev/vda rw",
    "30 22 0:26 / /var rw - xfs /dev/vdb rw",
    "31 22 0:27 / /usr rw - overlay overlay rw",
  ].join("\n");
  expect(fileSystemOf("/var/lib/holdfast", mountinfo)).toBe("xfs");
  expect(fileSystemOf("/variable", mountinfo)).toBe("ext4");
  expect(inspectIdMappedMounts("/var/lib", mountinfo)).toMatchObject({
    state: "weak",
    by: expect.stringContaining("/usr on overlay") as string,
  });
  expect(inspectIdMappedMounts("/var/lib", mountinfo.replace("overlay overlay", "ext4 x"))).toMatchObject({
    state: "ok",
  });
});
