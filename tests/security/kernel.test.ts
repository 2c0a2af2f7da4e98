/** The kernel's doors: namespaces, mounts, tracing, devices, modules, clocks, other system call tables. */
import { existsSync, readFileSync } from "node:fs";
import { hostname } from "node:os";
import { describe, expect, it } from "vitest";
import { attack, expectAlive, tryInside, useSharedSandbox, WHO } from "../helpers/attack.js";
import { run, shell, useEngine } from "../helpers/use-engine.js";

/** How the kernel may answer an attempt that fails: refused, or there is no such thing to try it on. */
const REFUSED = /^(EPERM|EACCES|EROFS|ENOSYS|ENOENT|EAFNOSUPPORT|ESRCH|ENODEV|ENXIO|signal 31)$/;

const ATTEMPTS: Readonly<Record<string, string>> = {
  "unshare-user": "become root of a user namespace of its own",
  "unshare-mount": "unshare its mounts",
  "unshare-pid": "unshare its process ids",
  "unshare-net": "unshare its network",
  "unshare-cgroup": "unshare its cgroups",
  "unshare-time": "unshare its clocks",
  "unshare-high-bits": "unshare with flags hidden behind the 32 bits that a filter compares",
  "clone-user": "clone into a new user namespace",
  "clone-mount": "clone into a new mount namespace",
  "clone3-user": "clone3 into a new user namespace, whose flags a filter cannot see",
  "setns-user": "join the guest's namespaces",
  "setns-own-mount": "use setns at all",
  "setns-pidfd": "join the guest's namespaces by a pidfd",
  "mount-tmpfs": "mount a tmpfs",
  "mount-bind": "bind a directory over another",
  "mount-proc": "mount a fresh /proc that is not covered",
  "mount-sysfs": "mount sysfs",
  "mount-cgroup": "mount a cgroup file system, and with it release_agent (CVE-2022-0492)",
  "mount-cgroup2": "mount the unified cgroup file system",
  "mount-overlay": "mount an overlay",
  "remount-usr": "remount /usr writable (CVE-2026-46695)",
  "remount-root": "change how / is mounted",
  "umount-meminfo": "uncover the real /proc/meminfo",
  "umount-usr": "unmount /usr",
  "pivot-root": "pivot the root",
  "open-tree": "clone a mount by open_tree",
  "move-mount": "move a mount",
  fsopen: "open a file system by fsopen",
  fspick: "reconfigure a mount by fspick",
  "mount-setattr": "make a mount writable by mount_setattr",
  "open-tree-attr": "make a mount writable by open_tree_attr",
  "ptrace-seize": "trace PID 1",
  "ptrace-attach": "attach to PID 1",
  "vm-write": "write into PID 1's memory",
  "vm-read": "read PID 1's memory",
  "pidfd-getfd": "take a descriptor out of PID 1",
  kcmp: "compare its kernel objects with PID 1's",
  "io-uring": "set up io_uring",
  bpf: "load a BPF program",
  perf: "open a performance counter",
  keyctl: "reach the kernel's keyrings",
  "add-key": "add a key, which counts against nobody",
  "request-key": "request a key, which starts a helper on the host",
  userfaultfd: "handle page faults by itself",
  "userfaultfd-user-mode": "handle its user-mode page faults by itself",
  vsock: "open a socket to the hypervisor",
  "vsock-high-bits": "open a socket to the hypervisor with hidden bits",
  alg: "reach the kernel's crypto by a socket",
  xdp: "open an AF_XDP socket, which maps the kernel's packet rings",
  "int80-getpid": "use the 32-bit system call table, which the filter does not know",
  "int80-unshare": "unshare by the 32-bit system call table",
  "x32-getpid": "use the x32 system call table",
  "x32-unshare": "unshare by the x32 system call table",
  "x32-ptrace": "trace PID 1 by the x32 system call table",
  reboot: "reboot the host",
  syslog: "read the host's kernel log",
  swapon: "add swap",
  adjtimex: "turn the host's clock",
  settimeofday: "set the host's time of day",
  "clock-settime": "set the host's clock",
  "init-module": "load a kernel module from memory",
  "finit-module": "load a kernel module from a file",
  "delete-module": "remove a kernel module",
  kexec: "start another kernel",
  acct: "turn process accounting on",
  iopl: "reach I/O ports by iopl",
  ioperm: "reach I/O ports by ioperm",
  quotactl: "change the host's disk quotas",
  "open-by-handle": "open files by handle, past the mounts (the shocker escape)",
  sethostname: "rename the sandbox, and so what its log lines say",
  "mknod-mem": "make a device node for the host's memory",
  "mknod-disk": "make a device node for the host's disk",
  "mknod-kmsg": "make a device node for the kernel's log",
  "mknod-fuse": "make a device node for FUSE",
  "mknod-tun": "make a device node for network tunnels",
  nice: "put itself before everybody else on the CPU",
  "real-time": "become a real-time process",
  "io-real-time": "become a real-time user of the disk",
  "raise-nproc": "raise its limit of processes",
  "raise-nofile": "raise its limit of open files",
  "raise-memlock": "raise its limit of locked memory",
  "oom-minus-one": "hide from the OOM killer",
  "oom-minus-thousand": "make itself unkillable for memory",
  chroot: "climb out of a chroot to the host's files",
  "cap-sys-admin": "take CAP_SYS_ADMIN",
  "cap-sys-ptrace": "take CAP_SYS_PTRACE",
  "core-pattern": "have the host run a program for its core dumps",
  sysrq: "press the host's magic keys",
  "sysctl-panic": "change how the host panics",
  "sysctl-vm": "change how the host manages memory",
  "sysctl-modprobe": "choose the program that loads the host's modules",
  "sysctl-binfmt": "register an interpreter with the host's kernel",
  "uevent-helper": "choose the program that handles the host's device events",
  "setgroups-file": "change whether it may drop groups",
  immutable: "make a file that cannot be removed",
};

/** What only reaches for the guest itself: there is nothing of the host's in it, but the control channel must outlive it. */
const ON_THE_GUEST: Readonly<Record<string, string>> = {
  "guest-rlimit": "take PID 1's open files away by prlimit",
  "guest-affinity": "pin PID 1 to a CPU",
  "guest-nice": "slow PID 1 down",
  "oom-guest": "make PID 1 the first to be killed for memory",
};

for (const user of WHO) {
  describe(`the kernel's doors, tried by ${user}`, () => {
    const shared = useSharedSandbox();
    let answers: Promise<Map<string, string>> | undefined;
    const answerTo = async (name: string): Promise<string> => {
      answers ??= attack(shared.sandbox, "probe", Object.keys(ATTEMPTS), {
        user,
        env: { SECRET: shared.secret.path },
      }).then(
        ({ stdout }) =>
          new Map(
            stdout
              .trim()
              .split("\n")
              .map((line) => line.split(/ (.*)/, 2) as [string, string]),
          ),
      );
      return (await answers).get(name) ?? "no answer";
    };

    for (const [name, what] of Object.entries(ATTEMPTS)) {
      it(`cannot ${what}`, async () => {
        expect(await answerTo(name)).toMatch(REFUSED);
      });
    }

    it("cannot type into its terminal on behalf of whoever reads it (CVE-2017-5226)", async () => {
      const command = await shared.sandbox.start({
        argv: ["/tmp/attack-probe", "tiocsti", "tiocsti-high-bits", "tioclinux"],
        pty: { columns: 80, rows: 24 },
        user,
      });
      let seen = "";
      for await (const event of command.output()) if (event.kind === "data") seen += event.bytes.toString();
      expect(seen.replaceAll("\r", "")).toBe("tiocsti EPERM\ntiocsti-high-bits EPERM\ntioclinux EPERM\n");
    });

    it("cannot see more of the cgroups than that there are some", async () => {
      const seen = await tryInside(
        shared.sandbox,
        "cat /proc/self/cgroup; find / -xdev -name 'cgroup.procs' -o -name release_agent",
        user,
      );
      expect(seen).not.toContain(shared.sandbox.id);
      expect(seen).not.toContain("holdfast");
      expect(seen).not.toMatch(/cgroup\.procs|release_agent/);
    });

    it("cannot reach anything but its own loopback by netlink or raw packets", async () => {
      const seen = await tryInside(shared.sandbox, "cat /proc/net/dev /proc/net/route /proc/net/unix", user);
      expect(seen).not.toMatch(/eth|ens|veth|docker|wlan/);
      expect(seen).not.toContain("guest.sock");
    });

    it("cannot dump core anywhere", async () => {
      const { stdout } = await shell(
        shared.sandbox,
        "ulimit -H -c; cd /tmp; sh -c 'kill -SEGV $$'; ls /tmp | grep -c core",
        { user },
      );
      expect(stdout).toBe("0\n0\n");
    });
  });
}

describe("PID 1, attacked by root", () => {
  const use = useEngine();

  for (const [name, what] of Object.entries(ON_THE_GUEST)) {
    it(`cannot ${what}`, async () => {
      const sandbox = await use.create();
      const { stdout } = await attack(sandbox, "probe", [name], { user: "root" });
      expect(stdout.trim().split(/ (.*)/, 2)[1]).toMatch(REFUSED);
      await expectAlive(sandbox);
      expect((await run(sandbox, ["id", "-un"], { user: "root" })).stdout).toBe("root\n");
    });
  }

  it("cannot be killed, stopped or told to end by a signal from inside", async () => {
    const sandbox = await use.create();
    await shell(sandbox, "for s in $(seq 1 64); do kill -$s 1; done; kill -9 -1; true", { user: "root" });
    await expectAlive(sandbox);
  });

  it("cannot be ended by kill(-1) of an ordinary user either", async () => {
    const sandbox = await use.create();
    await shell(sandbox, "kill -9 -1; kill -STOP 1", { user: "user" });
    await expectAlive(sandbox);
  });
});

describe("the host after it all", () => {
  it("has its name, its core pattern and its processes", () => {
    expect(hostname()).not.toBe("evil");
    expect(readFileSync("/proc/sys/kernel/core_pattern", "utf8")).not.toContain("/tmp/x");
    expect(existsSync("/tmp/node")).toBe(false);
  });
});
