/** The file interface works as root of the sandbox on paths that somebody hostile prepared, and changes while it looks. */
import { chmodSync, existsSync, mkdirSync, mkdtempSync, readdirSync, readFileSync, rmSync } from "node:fs";
import { createServer } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { setTimeout as sleep } from "node:timers/promises";
import { describe, expect, it } from "vitest";
import { attack, compile, expectAlive, readAll, tryInside, useSharedSandbox } from "../helpers/attack.js";
import { MIB, SMALL_LIMITS, shell, useEngine } from "../helpers/use-engine.js";

/** Where the guest's own descriptors may lie. */
const FDS = Array.from({ length: 22 }, (_, index) => index);
const UP = "/../../../../../../../../../../../..";

describe("links that lead through the guest", () => {
  const shared = useSharedSandbox();
  const plant = (name: string, target: string) =>
    tryInside(shared.sandbox, `ln -sfn '${target}' /home/user/${name}`, "user");

  it("cannot have a read bring up a file of the host", async () => {
    for (const process of ["1", "self", "thread-self"]) {
      for (const fd of FDS) {
        await plant("report.txt", `/proc/${process}/fd/${fd}${UP}${shared.secret.path}`);
        expect(await readAll(shared.sandbox, "/home/user/report.txt").catch(() => "")).not.toContain(
          shared.secret.text,
        );
      }
    }
  });

  it("cannot have a listing show a directory of the host", async () => {
    const names: string[] = [];
    for (const fd of FDS) {
      await plant("folder", `/proc/1/fd/${fd}${UP}${shared.secret.directory}`);
      try {
        for await (const entry of shared.sandbox.files.list("/home/user/folder")) names.push(entry.name);
      } catch {
        // Refused, as it should be.
      }
    }
    expect(names).not.toContain("secret.txt");
  });

  it("cannot have a stat measure a file of the host", async () => {
    for (const fd of FDS) {
      await plant("file", `/proc/1/fd/${fd}${UP}${shared.secret.path}`);
      const entry = await shared.sandbox.files.stat("/home/user/file").catch(() => undefined);
      expect(entry?.link?.targetSizeBytes).toBeUndefined();
      expect(entry?.link?.resolved ?? "").not.toContain(shared.secret.path);
    }
  });

  it("cannot have a write make a file on the host", async () => {
    const open = mkdtempSync(join(tmpdir(), "host-open-"));
    chmodSync(open, 0o777);
    try {
      for (const fd of FDS) {
        await plant("upload", `/proc/1/fd/${fd}${UP}${open}`);
        await shared.sandbox.files.write("/home/user/upload/planted", "x").catch(() => {});
        await shared.sandbox.files.makeDirectory("/home/user/upload/directory").catch(() => {});
        await shared.sandbox.files.move("/etc/hosts", "/home/user/upload/moved").catch(() => {});
        expect(readdirSync(open)).toEqual([]);
      }
    } finally {
      rmSync(open, { recursive: true, force: true });
    }
  });

  it("cannot have a removal reach the host", async () => {
    const open = mkdtempSync(join(tmpdir(), "host-open-"));
    chmodSync(open, 0o777);
    mkdirSync(join(open, "victim"));
    try {
      for (const fd of FDS) {
        await plant("old", `/proc/1/fd/${fd}${UP}${open}`);
        await shared.sandbox.files.remove("/home/user/old/victim").catch(() => {});
        expect(existsSync(join(open, "victim"))).toBe(true);
      }
    } finally {
      rmSync(open, { recursive: true, force: true });
    }
  });

  it("cannot have a watch report what happens on the host", async () => {
    const open = mkdtempSync(join(tmpdir(), "host-open-"));
    chmodSync(open, 0o777);
    try {
      for (const fd of [14, 15, 16]) {
        await plant("watched", `/proc/1/fd/${fd}${UP}${open}`);
        const outcome = await shared.sandbox.files
          .watch("/home/user/watched", { signal: AbortSignal.timeout(200) })
          .then(
            () => "watching",
            () => "refused",
          );
        expect(outcome).toBe("refused");
      }
    } finally {
      await sleep(250);
      rmSync(open, { recursive: true, force: true });
    }
  });

  it("cannot have a write change the sandbox's cgroups", async () => {
    for (const fd of FDS) {
      await plant("cgroup", `/proc/1/fd/${fd}`);
      for (const file of ["cgroup.procs", "memory.limit_in_bytes", "pids.max", "memory.max"]) {
        const entry = await shared.sandbox.files.stat(`/home/user/cgroup/${file}`).catch(() => undefined);
        expect(entry).toBeUndefined();
      }
    }
  });

  it("cannot have a read bring up the guest's own program or memory", async () => {
    for (const file of ["exe", "maps", "mem", "environ", "auxv", "fd/12", "map_files", "stack"]) {
      await plant("own", `/proc/1/${file}`);
      const text = await readAll(shared.sandbox, "/home/user/own").catch(() => "");
      expect(text.length).toBe(0);
    }
  });

  it("cannot have a dial by path reach a socket of the host", async () => {
    const open = mkdtempSync(join(tmpdir(), "host-socket-"));
    chmodSync(open, 0o755);
    let reached = 0;
    const server = createServer((socket) => {
      reached++;
      socket.on("error", () => {}).end("hello from the host");
    });
    await new Promise<void>((resolve) => server.listen(join(open, "service.sock"), resolve));
    chmodSync(join(open, "service.sock"), 0o777);
    try {
      for (const process of ["self", "1"]) {
        for (const fd of FDS) {
          await plant("app.sock", `/proc/${process}/fd/${fd}${UP}${open}/service.sock`);
          await shared.sandbox.dial({ path: "/home/user/app.sock" }).then(
            (connection) => connection.on("error", () => {}).destroy(),
            () => {},
          );
        }
      }
      await sleep(100);
      expect(reached).toBe(0);
    } finally {
      server.close();
      rmSync(open, { recursive: true, force: true });
    }
  });
});

describe("things that are not what they seem", () => {
  const use = useEngine();

  it("cannot hang a read by a pipe, a terminal, a socket or a device", async () => {
    const sandbox = await use.create();
    await shell(
      sandbox,
      "mkfifo /home/user/pipe; ln -s /dev/zero /home/user/zero; ln -s /dev/ptmx /home/user/ptmx; ln -s /dev/tty /home/user/tty; ln -s loop /home/user/loop; mkdir /home/user/dir",
    );
    for (const name of ["pipe", "zero", "ptmx", "tty", "loop", "dir"]) {
      await expect(readAll(sandbox, `/home/user/${name}`)).rejects.toThrow();
      if (name !== "loop")
        await expect(sandbox.files.write(`/home/user/${name}`, "x", { atomic: false })).rejects.toThrow();
    }
    await expectAlive(sandbox);
  });

  it("cannot hang or kill the guest by reading and writing its own memory", async () => {
    const sandbox = await use.create();
    await shell(
      sandbox,
      "cd /home/user; ln -s /proc/self/mem mem; ln -s /proc/self/fd/3 socket; ln -s /proc/self/fd/0 stdin; ln -s /proc/self/oom_score_adj oom; ln -s /proc/self/clear_refs refs",
    );
    for (const name of ["mem", "socket", "stdin", "oom", "refs"]) {
      await readAll(sandbox, `/home/user/${name}`).catch(() => {});
      await sandbox.files.write(`/home/user/${name}`, "1000", { atomic: false }).catch(() => {});
      await sandbox.files.write(`/home/user/${name}`, "1000", { atomic: false, offset: 4096 }).catch(() => {});
    }
    await expectAlive(sandbox);
  });

  it("cannot make a removal follow a directory that becomes a link while it works", async () => {
    const sandbox = await use.create();
    await sandbox.files.write("/tmp/swap", compile("swap"), { mode: 0o755 });
    await shell(
      sandbox,
      "mkdir -p /srv/precious/deep; for i in $(seq 300); do echo x > /srv/precious/$i; echo x > /srv/precious/deep/$i; done; chown -R 1000 /srv/precious",
      { user: "root" },
    );
    for (let round = 0; round < 4; round++) {
      await shell(
        sandbox,
        "cd /home/user; mkdir -p tree/a/b other; for i in $(seq 200); do mkdir -p tree/a/b/$i/c; done; rm -rf link; ln -s /srv/precious link",
        { user: "user" },
      );
      const swapping = await sandbox.start({
        argv: ["/tmp/swap", "/home/user/tree/a/b", "/home/user/link"],
        user: "user",
      });
      await sandbox.files.remove("/home/user/tree").catch(() => {});
      await swapping.cancel("the test", { graceMs: 0 });
    }
    const { stdout } = await shell(sandbox, "find /srv/precious -type f | wc -l");
    expect(stdout).toBe("600\n");
  });

  it("cannot make a listing show what lies behind a directory that becomes a link while it works", async () => {
    const sandbox = await use.create();
    await sandbox.files.write("/tmp/swap", compile("swap"), { mode: 0o755 });
    await shell(sandbox, "cd /home/user; mkdir -p tree/a; ln -s /etc link", { user: "user" });
    const swapping = await sandbox.start({ argv: ["/tmp/swap", "/home/user/tree/a", "/home/user/link"], user: "user" });
    for (let round = 0; round < 100; round++) {
      try {
        for await (const entry of sandbox.files.list("/home/user/tree", { depth: 3 }))
          expect(entry.name).not.toBe("passwd");
      } catch (error) {
        if ((error as Error).name === "AssertionError") throw error;
      }
    }
    await swapping.cancel("the test", { graceMs: 0 });
  });

  it("cannot make a write land outside of the sandbox while its directory is swapped", async () => {
    const sandbox = await use.create();
    await sandbox.files.write("/tmp/swap", compile("swap"), { mode: 0o755 });
    const target = join(tmpdir(), `swapped-${process.pid}`);
    await shell(sandbox, `cd /home/user; mkdir dir; ln -s ../../../../../../..${tmpdir()} link`, { user: "user" });
    const swapping = await sandbox.start({ argv: ["/tmp/swap", "/home/user/dir", "/home/user/link"], user: "user" });
    for (let round = 0; round < 60; round++)
      await sandbox.files.write(`/home/user/dir/swapped-${process.pid}`, "x").catch(() => {});
    await swapping.cancel("the test", { graceMs: 0 });
    expect(existsSync(target)).toBe(false);
    await expectAlive(sandbox);
  });

  it("cannot hang or grow the host by a directory with many entries or long names", async () => {
    const sandbox = await use.create();
    await shell(
      sandbox,
      "mkdir /home/user/many; cd /home/user/many; seq 20000 | xargs touch; cd ..; name=$(printf 'n%.0s' $(seq 255)); mkdir -p deep; cd deep; for i in $(seq 60); do mkdir $name && cd $name || break; done 2>/dev/null",
    );
    let count = 0;
    for await (const _ of sandbox.files.list("/home/user/many")) count++;
    expect(count).toBe(20_000);
    let deepest = 0;
    try {
      for await (const entry of sandbox.files.list("/home/user/deep", { depth: 100 }))
        deepest = Math.max(deepest, entry.path.length);
    } catch {
      // Too long to name is a fair answer.
    }
    expect(deepest).toBeGreaterThan(0);
    expect(await sandbox.files.remove("/home/user/deep")).toBeGreaterThanOrEqual(16);
    await expectAlive(sandbox);
  });

  it("cannot break the answer by attributes as large as the kernel allows", async () => {
    const sandbox = await use.create();
    await sandbox.files.write("/home/user/file", "");
    await attack(sandbox, "plant-capability", ["/home/user/file", "fill"]);
    await sandbox.files
      .stat("/home/user/file")
      .catch((error: Error) => expect(error.message).not.toContain("protocol"));
    for await (const _ of sandbox.files.list("/home/user")) void _;
    await expectAlive(sandbox);
  });

  it("cannot be ended by an upload that fills /dev/shm, however large", async () => {
    const sandbox = await use.create({ limits: { ...SMALL_LIMITS, memoryBytes: 512 * MIB } });
    await sandbox.files.write("/dev/shm/large", Buffer.alloc(150 * MIB, 1)).catch(() => {});
    await sandbox.files.write("/dev/shm/larger", Buffer.alloc(150 * MIB, 1)).catch(() => {});
    await expectAlive(sandbox);
  });

  it("cannot make a file operation hang by stopping the worker that does it", async () => {
    const sandbox = await use.create();
    await sandbox.files.write("/home/user/file", "content");
    const stopper = await sandbox.start({
      argv: [
        "/bin/bash",
        "-c",
        "while :; do for p in $(ls /proc | grep ^[0-9]); do [ $p = 1 ] || [ $p = $$ ] || kill -STOP $p; done; done 2>/dev/null",
      ],
      user: "root",
    });
    const work = (async () => {
      for (let i = 0; i < 100; i++) await readAll(sandbox, "/home/user/file");
      return "done";
    })();
    const outcome = await Promise.race([work.catch(() => "failed"), sleep(4000).then(() => "hung")]);
    await stopper.cancel("the test", { graceMs: 0 });
    await sandbox.kill("the test");
    await work.catch(() => {});
    expect(outcome).not.toBe("hung");
  });
});

describe("the host's own files after it all", () => {
  it("has its /etc/hosts", () => {
    expect(readFileSync("/etc/hosts", "utf8")).toContain("localhost");
  });
});
