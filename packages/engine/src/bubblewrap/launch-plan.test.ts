import { DEFAULT_SANDBOX_LIMITS } from "@holdfast/protocol";
import { expect, it } from "vitest";
import { type LaunchPlan, launchArguments } from "./launch-plan.js";

const plan: LaunchPlan = {
  bwrapPath: "/usr/bin/bwrap",
  guestPath: "/opt/guest",
  uidBase: 0x70000000,
  cgroupProcsFiles: ["/cg/memory/s1/guest/cgroup.procs", "/cg/unified/s1/guest/cgroup.procs"],
  cgroupCommandDirs: [
    { name: "memory", path: "/cg/memory/s1/cmd" },
    { name: "unified", path: "/cg/unified/s1/cmd" },
  ],
  socketPath: "/state/s1/guest.sock",
  disk: { path: "/pool/s1", exists: false, quotaBytes: 1_000_000 },
  image: { layers: ["/skeleton/root"], mounts: [{ layers: ["/skeleton/usr", "/usr"], target: "/usr" }] },
  insidePath: "/state/s1/inside",
  mounts: [{ source: "/data", target: "/mnt/data", readOnly: true }],
  hostname: "box",
  defaultUser: "user",
  limits: DEFAULT_SANDBOX_LIMITS,
  orphanMs: 0,
  egress: false,
  spare: false,
};

/** One option with its values a line, so that a change shows as a line in a review. */
function asText(args: readonly string[]): string {
  return args.join(" ").replace(/ (--)/g, "\n$1");
}

it("the arguments are these and no others", () => {
  expect(asText(launchArguments(plan))).toMatchInlineSnapshot(`
    "start
    --status-fd 3
    --join /cg/memory/s1/guest/cgroup.procs
    --join /cg/unified/s1/guest/cgroup.procs
    --userns 1879048192 10
    --listen /state/s1/guest.sock 11
    --file /opt/guest 12
    --dir /pool/s1/spill 13
    --dir /cg/memory/s1/cmd 14
    --dir /cg/unified/s1/cmd 15
    --disk /pool/s1 1000000
    --stage /run
    --mount layer0 /skeleton/root ro,idmap
    --mount disk /pool/s1 rw,idmap
    --overlay root layer0 disk
    --dev dev 268435456
    --mount inside /state/s1/inside ro,idmap
    --nest inside dev holdfast
    --nest dev root dev
    --mount part0layer0 /skeleton/usr ro,idmap
    --mount part0layer1 /usr ro,idmap
    --overlay part0 part0layer0:part0layer1 
    --nest part0 root usr
    --mount mount0 /data ro,idmap,nolinks
    -- /usr/bin/bwrap
    --userns 10
    --unshare-ipc
    --unshare-pid
    --unshare-net
    --unshare-uts
    --as-pid-1
    --cap-add ALL
    --hostname box
    --clearenv
    --dev-bind /run/root /
    --proc /proc
    --dir /mnt
    --ro-bind /run/mount0 /mnt/data
    --chdir / /proc/self/fd/12
    --listen-fd 11
    --cgroup memory=14
    --cgroup unified=15
    --spill-fd 13
    --default-user user
    --cpu-millis 1000
    --memory-bytes 536870912
    --pids 256
    --orphan-ms 0"
  `);
});

it("a disk that begins as a layer is cloned from it", () => {
  const args = launchArguments({ ...plan, disk: { ...plan.disk, from: "/pool/layers/l1" } });
  const at = args.indexOf("--disk");
  expect(args.slice(at, at + 5)).toEqual(["--disk", "/pool/s1", "1000000", "--disk-from", "/pool/layers/l1"]);
});

it("every source but the sandbox's own disk and writable mounts is read-only outside", () => {
  const args = launchArguments({ ...plan, mounts: [{ source: "/data", target: "/x", readOnly: false }] });
  const mounts = args.flatMap((arg, i) => (arg === "--mount" ? [[args[i + 2], args[i + 3]]] : []));
  expect(mounts.filter(([, flags]) => !flags?.startsWith("ro"))).toEqual([
    ["/pool/s1", "rw,idmap"],
    ["/data", "rw,idmap,nolinks"],
  ]);
});
