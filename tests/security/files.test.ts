/** The host's files: not there, not reachable, not writable. */
import { execFileSync, spawnSync } from "node:child_process";
import {
  chmodSync,
  existsSync,
  mkdirSync,
  mkdtempSync,
  readdirSync,
  readFileSync,
  rmSync,
  statSync,
  writeFileSync,
} from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { describe, expect, it } from "vitest";
import {
  attack,
  compile,
  expectAlive,
  readAll,
  runOnHost,
  tryInside,
  useSharedSandbox,
  WHO,
} from "../helpers/attack.js";
import { run, shell, useEngine } from "../helpers/use-engine.js";

const hashOf = (path: string): string => execFileSync("sha256sum", [path], { encoding: "utf8" });

for (const user of WHO) {
  describe(`files of the host, as ${user}`, () => {
    const shared = useSharedSandbox();

    it("cannot read the host's /etc/shadow", async () => {
      const seen = await tryInside(shared.sandbox, "cat /etc/shadow /etc/gshadow /etc/shadow-", user);
      const ours = "root:*:19700:0:99999:7:::";
      for (const line of readFileSync("/etc/shadow", "utf8").split("\n")) {
        if (line !== "" && line !== ours) expect(seen).not.toContain(line);
      }
    });

    it("cannot find the host's homes, state, keys or secrets", async () => {
      const seen = await tryInside(
        shared.sandbox,
        `ls -A /root; ls /home /srv /var/lib /opt; ls /work /var/lib/holdfast /etc/ssl/private /etc/ssh /etc/sudoers /etc/machine-id /var/log/* ${shared.secret.path} ${shared.stateDirectory}; grep -rl 'PRIVATE KEY' /etc`,
        user,
      );
      expect(seen).not.toContain(`\n${shared.secret.path}`);
      for (const name of ["work", "var/lib/holdfast", "etc/ssl/private", "etc/ssh", "etc/sudoers", "etc/machine-id"]) {
        expect(seen).toContain(`cannot access '/${name}'`);
      }
      expect(seen).not.toMatch(/^\/etc\/.*$/m);
    });

    it("cannot climb out by ..", async () => {
      const seen = await tryInside(
        shared.sandbox,
        `cd /; cat ../../../../../..${shared.secret.path} /proc/self/root/../../..${shared.secret.path} /proc/self/cwd/../..${shared.secret.path}`,
        user,
      );
      expect(seen).not.toContain(shared.secret.text);
    });

    it("cannot reach the host through any process's root, directory or descriptors in /proc", async () => {
      const seen = await tryInside(
        shared.sandbox,
        `for p in /proc/[0-9]*; do for d in root cwd root/proc/1/root fd/0/.. fd/1 fd/3 fd/10/.. fd/11 fd/12/.. fd/13 fd/14 fd/15 fd/16 task/*/root task/*/cwd; do cat $p/$d/../../../../../../../..${shared.secret.path} $p/$d${shared.secret.path}; done; done 2>/dev/null`,
        user,
      );
      expect(seen).not.toContain(shared.secret.text);
    });

    for (const file of [
      "root",
      "cwd",
      "fd/1",
      "fd/13",
      "mem",
      "maps",
      "environ",
      "exe",
      "map_files",
      "stack",
      "syscall",
      "io",
      "pagemap",
      "auxv",
    ]) {
      it(`cannot read /proc/1/${file}`, async () => {
        const seen = await tryInside(
          shared.sandbox,
          `head -c 16 /proc/1/${file}; ls /proc/1/${file}/; readlink /proc/1/${file} && echo followed`,
          user,
        );
        expect(seen).toMatch(/Permission denied|Input\/output error|Operation not permitted/);
        expect(seen).not.toContain("followed");
      });
    }

    it("cannot read the host's kernel memory or where its functions lie", async () => {
      const seen = await tryInside(
        shared.sandbox,
        "head -c 64 /proc/kcore | od -c; head -c 64 /dev/mem; head -c 64 /dev/kmem; head -c 64 /dev/port; head -c 64 /dev/kmsg; head -c 64 /proc/kmsg; head -c 8 /proc/kpagecount; awk '$1 !~ /^0+$/' /proc/kallsyms | head -3; cat /proc/vmallocinfo /proc/slabinfo",
        user,
      );
      expect(seen).not.toMatch(/ELF|^ffff/m);
    });

    it("cannot write one byte of /usr", async () => {
      const before = hashOf("/usr/bin/env");
      const seen = await tryInside(
        shared.sandbox,
        `echo x >> /usr/bin/env; : > /usr/bin/env; rm -f /usr/bin/env; mv /usr/bin/env /tmp/; touch /usr/x /usr/bin/x /lib/x; chmod 777 /usr/bin/env; chown 1000 /usr/bin/env; ln /usr/bin/env /tmp/hard; truncate -s 0 /usr/bin/env; mkdir /usr/x
         exec 9</usr/bin/env; echo x >> /proc/self/fd/9; exec 8</usr/bin; touch /proc/self/fd/8/x; mount -o remount,rw /usr; mount -o remount,rw,bind /usr; setfattr -n user.x -v y /usr/bin/env; [ -x /usr/bin/env ] && echo env is there`,
        user,
      );
      expect(hashOf("/usr/bin/env")).toBe(before);
      expect(existsSync("/usr/x") || existsSync("/usr/bin/x")).toBe(false);
      expect(seen).toContain("env is there");
      expect(seen).toContain("Read-only file system");
    });

    it("cannot find a mount that allows set-id programs, or devices outside of /dev", async () => {
      const { stdout } = await shell(
        shared.sandbox,
        "sed -E 's/^[^ ]+ [^ ]+ [^ ]+ [^ ]+ ([^ ]+) ([^ ]+) .* ([^ ]+)$/\\1 \\2 \\3/' /proc/self/mountinfo",
        { user },
      );
      for (const line of stdout.trim().split("\n")) {
        const [place, options, ofFileSystem] = line.split(" ");
        expect(options?.split(","), place).toContain("nosuid");
        if (!/^\/dev(\/(pts|null|zero|full|random|urandom|tty))?$/.test(place ?? ""))
          expect(options?.split(","), place).toContain("nodev");
        if (place === "/usr" || place?.startsWith("/proc/")) {
          expect([...(options ?? "").split(","), ...(ofFileSystem ?? "").split(",")], place).toContain("ro");
        }
      }
    });

    it("sees no path of the host in its list of mounts but that of /dev/holdfast, which leads nowhere", async () => {
      const { stdout } = await shell(shared.sandbox, "cut -d ' ' -f 4,5 /proc/self/mountinfo", { user });
      const named = stdout
        .trim()
        .split("\n")
        .filter((line) => !line.startsWith("/ "));
      // Single files that the guest made on a file system of its own.
      const fromHost = named.filter((line) => !/^\/\w+ \/(proc|sys)\//.test(line));
      expect(fromHost.map((line) => line.split(" ")[1])).toEqual(["/dev/holdfast"]);
      const seen = await shell(shared.sandbox, "ls -A /dev/holdfast; cd -P /dev/holdfast/..; pwd -P", { user });
      expect(seen.stdout).toBe("pressure\nsandbox-id\n/dev\n");
    });

    it("cannot write to /sys or /proc/sys of the host", async () => {
      const seen = await tryInside(
        shared.sandbox,
        "find /proc/sys /proc/irq /proc/fs /proc/bus -type f -writable 2>/dev/null | grep -vE '^/proc/sys/(fs/mqueue|kernel/(auto_msgmni|msgm|sem$|shm|ns_last_pid|pid_max)|net/|user/)'; ls /sys",
        user,
      );
      expect(seen).toBe("devices\n");
    });

    it("cannot gain anything by a setuid program", async () => {
      await tryInside(
        shared.sandbox,
        "sudo cp /bin/bash /tmp/suid-$USER; sudo chown 0:0 /tmp/suid-$USER; sudo chmod 6755 /tmp/suid-$USER",
        user,
      );
      const { stdout } = await shell(
        shared.sandbox,
        `/tmp/suid-${user} -p -c 'id -u; grep -E "NoNewPrivs|CapEff" /proc/self/status'`,
        { user: "user" },
      );
      expect(stdout).toBe("1000\nCapEff:\t0000000000000000\nNoNewPrivs:\t1\n");
    });

    it("cannot gain anything by a program with capabilities", async () => {
      await shared.sandbox.files.write("/tmp/with-caps", compile("probe"), { mode: 0o755 });
      await attack(shared.sandbox, "plant-capability", ["/tmp/with-caps"], { user: "root" });
      const { stdout } = await run(shared.sandbox, ["/tmp/with-caps", "mount-tmpfs", "ptrace-seize"], { user });
      expect(stdout).toBe("mount-tmpfs EPERM\nptrace-seize EPERM\n");
    });

    it("cannot read the host's files through links that the file interface follows", async () => {
      const links = [
        shared.secret.path,
        `../../../../../../../..${shared.secret.path}`,
        `/proc/self/root${shared.secret.path}`,
        "/etc/ssh/ssh_host_ed25519_key",
        join(process.cwd(), "package.json"),
      ];
      for (const [index, target] of links.entries()) {
        await tryInside(shared.sandbox, `ln -sfn ${target} /tmp/link-${user}-${index}`, user);
        await expect(readAll(shared.sandbox, `/tmp/link-${user}-${index}`)).rejects.toThrow(/does not exist/);
      }
      await tryInside(shared.sandbox, `ln -sfn /etc/shadow /tmp/shadow-${user}`, user);
      expect(await readAll(shared.sandbox, `/tmp/shadow-${user}`)).toBe(
        "root:*:19700:0:99999:7:::\nuser:*:19700:0:99999:7:::\n",
      );
    });
  });
}

describe("what a sandbox leaves on the host's disk", () => {
  for (const pool of ["btrfs", "dir"] as const) {
    describe(`pool ${pool}`, () => {
      const use = useEngine({ pool });
      /** As an ordinary user of the host. setpriv itself still has capabilities when it executes: so env does. */
      const asNobody = (argv: readonly string[]) =>
        spawnSync("setpriv", ["--reuid", "65534", "--regid", "65534", "--clear-groups", "env", ...argv], {
          encoding: "utf8",
        });
      const upperOf = (id: string): string =>
        join(use.stateDirectory, pool === "btrfs" ? "pool" : "disks", id, "upper");

      it("cannot be read by an ordinary user of the host", async () => {
        // mkdtemp made it 0700; the engine itself makes its state directory like this.
        chmodSync(use.stateDirectory, 0o711);
        const sandbox = await use.create();
        await sandbox.files.write("/home/user/private.txt", "private", { mode: 0o644 });
        const path = join(upperOf(sandbox.id), "home/user/private.txt");
        expect(existsSync(path)).toBe(true);
        expect(asNobody(["cat", path]).stdout).toBe("");
        expect(asNobody(["ls", join(use.stateDirectory, pool === "btrfs" ? "pool" : "disks")]).stdout).toBe("");
      });

      it("cannot be a setuid program of the host's root that an ordinary user of the host can run", async () => {
        chmodSync(use.stateDirectory, 0o711);
        const sandbox = await use.create();
        await shell(sandbox, "cp /usr/bin/id /home/user/id; chmod 4755 /home/user/id", { user: "root" });
        const path = join(upperOf(sandbox.id), "home/user/id");
        expect(existsSync(path)).toBe(true);
        expect(asNobody([path]).stdout).not.toContain("euid=0");
      });
    });
  }
});

describe("a directory of the host that is mounted writable", () => {
  const use = useEngine();
  const withMount = async (
    readOnly: boolean,
    test: (parts: { sandbox: Awaited<ReturnType<typeof use.create>>; source: string }) => Promise<void>,
  ) => {
    const source = mkdtempSync(join(tmpdir(), "mount-source-"));
    chmodSync(source, 0o755);
    try {
      const sandbox = await use.create({ mounts: [{ source, target: "/data", readOnly }] });
      await test({ sandbox, source });
    } finally {
      rmSync(source, { recursive: true, force: true });
    }
  };

  it("cannot be used to plant a setuid program that the host's root owns", () =>
    withMount(false, async ({ sandbox, source }) => {
      await tryInside(sandbox, "cp /usr/bin/id /data/id; chmod 6755 /data/id", "root");
      if (!existsSync(join(source, "id"))) return;
      const info = statSync(join(source, "id"));
      expect(info.uid === 0 && (info.mode & 0o4000) !== 0).toBe(false);
    }));

  it("cannot be given a set-id file by any system call", () =>
    withMount(false, async ({ sandbox, source }) => {
      const { stdout } = await attack(sandbox, "plant-setid", ["/data"], { user: "root" });
      expect(stdout).toBe("tried\n");
      const setId = readdirSync(source).filter((name) => (statSync(join(source, name)).mode & 0o6000) !== 0);
      expect(setId).toEqual([]);
    }));

  it("cannot be given a set-id file by the file interface, which moves what the image brought along", () =>
    withMount(false, async ({ source }) => {
      const root = mkdtempSync(join(tmpdir(), "setid-image-"));
      chmodSync(root, 0o755);
      try {
        mkdirSync(join(root, "bin"));
        writeFileSync(join(root, "bin/tool"), compile("probe"), { mode: 0o755 });
        chmodSync(join(root, "bin/tool"), 0o6755);
        const sandbox = await use.create({
          image: { kind: "rootfs", path: root },
          mounts: [{ source, target: "/data", readOnly: false }],
        });
        // The operator fetches "results". A copy with set-id bits is refused; without them it would be allowed.
        await sandbox.files.move("/bin", "/data/results").catch(() => {});
        const mode = existsSync(join(source, "results/tool")) ? statSync(join(source, "results/tool")).mode : 0;
        expect(mode & 0o6000).toBe(0);
        expect(readdirSync(source).filter((name) => name.startsWith(".holdfast"))).toEqual([]);
      } finally {
        rmSync(root, { recursive: true, force: true });
      }
    }));

  it("cannot be used to plant a program with capabilities on the host", () =>
    withMount(false, async ({ sandbox, source }) => {
      await tryInside(sandbox, "cp /usr/bin/id /data/id", "root");
      await attack(sandbox, "plant-capability", ["/data/id"], { user: "root" });
      const attribute = runOnHost("plant-capability", [join(source, "id"), "read"]);
      // Version 2, or version 3 with root id 0, is a capability on the host itself.
      expect(attribute).not.toMatch(/^01000002/);
      expect(attribute).not.toMatch(/^01000003.*00000000$/);
    }));

  it("cannot be used to make device nodes", () =>
    withMount(false, async ({ sandbox, source }) => {
      await tryInside(sandbox, "mknod /data/disk b 7 0; mknod /data/mem c 1 1; mknod /data/null c 1 3", "root");
      expect(readdirSync(source)).toEqual([]);
    }));

  it("cannot be written when it is mounted read-only, whatever root tries", () =>
    withMount(true, async ({ sandbox, source }) => {
      const seen = await tryInside(
        sandbox,
        "touch /data/x; mkdir /data/y; mount -o remount,rw /data; mount -o remount,bind,rw /data; mount --bind /data /mnt; touch /data/x /mnt/x; exec 5</data; touch /proc/self/fd/5/x /proc/self/cwd/data/x; chmod 777 /data; mv /data /data2",
        "root",
      );
      expect(seen).toContain("Read-only file system");
      expect(readdirSync(source)).toEqual([]);
      expect(statSync(source).mode & 0o777).toBe(0o755);
    }));

  it("cannot be left by .. or by a link in it", () =>
    withMount(false, async ({ sandbox, source }) => {
      const beside = `${source}-beside`;
      const seen = await tryInside(
        sandbox,
        `ln -s ${source}-beside /data/link; echo hacked > /data/link; cat /data/../${beside}; ls /data/..`,
        "root",
      );
      expect(existsSync(beside)).toBe(false);
      expect(seen).not.toContain("mount-source-");
      await expectAlive(sandbox);
    }));
});
