import assert from "node:assert/strict";
import { execFileSync, spawn } from "node:child_process";
import fs from "node:fs";
import { join } from "node:path";
import { after, before, describe, test } from "node:test";
import { directory, frame, request, variants, Worker, wire } from "./file-harness.mjs";

const sh = (script, cwd) => execFileSync("/bin/bash", ["-ec", script], { cwd, encoding: "utf8" });
const until = async (condition, what) => {
  for (let i = 0; i < 500; i++) {
    if (condition()) return;
    await new Promise((r) => setTimeout(r, 10));
  }
  throw new Error(`never: ${what}`);
};

for (const variant of variants)
  describe(`file worker, ${variant.name}`, { concurrency: false }, () => {
    const d = join(directory, `rw-${variant.name}`);
    const tiny = join(directory, `tiny-${variant.name}`);
    const run = (type, fields, options) => request(variant, type, fields, options);
    const clean = (dir) =>
      assert.deepEqual(
        fs.readdirSync(dir).filter((f) => f.startsWith(".holdfast-")),
        [],
      );

    before(() => {
      fs.mkdirSync(d);
      fs.mkdirSync(tiny);
      execFileSync("mount", ["-t", "tmpfs", "-o", "size=1m", "tmpfs", tiny]);
    });
    after(() => execFileSync("umount", [tiny]));

    // ---- users and paths ----

    test("an unknown user is refused by name", async () => {
      for (const USER of ["nobody-here", "1:x", "4294967295", "-1", "a:1", " "]) {
        const { fail } = await run("STAT", { PATH: "/", USER });
        assert.equal(fail.ERRNO_NAME, "EINVAL");
        assert.equal(fail.MESSAGE, `invalid username: '${USER}'`);
      }
    });

    test("paths are cleaned, relative ones and ~ begin at home", async () => {
      const home = sh("getent passwd daemon | cut -d: -f6").trim();
      const at = async (PATH, USER, user) => (await run("STAT", { PATH, USER }, { user })).done?.PATH;
      assert.equal(await at("//usr/./bin/../lib//"), "/usr/lib");
      assert.equal(await at("/../.."), "/");
      assert.equal(await at("", "daemon"), home);
      assert.equal(await at("~", "1"), home);
      assert.equal(await at("~/.", "1:5"), home);
      assert.equal(await at("~/../bin", "daemon"), home.replace(/[^/]*$/, "bin"));
      assert.equal(await at("", undefined, "daemon"), home);
      assert.equal(await at("", undefined, "nobody-here"), "/root");
      assert.equal(await at("..", "54321"), "/");
      const root = (await run("STAT", { PATH: "/" })).done;
      assert.equal(root.NAME, "/");
    });

    test("broken requests fail and nothing else", async () => {
      const named = async (fields, options) => (await run("STAT", fields, options)).fail.ERRNO_NAME;
      assert.equal(await named({}), "EINVAL");
      assert.equal(await named({ PATH: Buffer.from("/a\0b") }), "EINVAL");
      assert.equal(await named({ PATH: "/x".repeat(3000) }), "ENAMETOOLONG");
      assert.equal(await named({ PATH: `/${"n".repeat(300)}` }), "ENAMETOOLONG");
      assert.equal(await named({}, { payload: Buffer.from([13, 255, 255, 0, 0, 1]) }), "EPROTO");
      assert.equal((await run("START", { PATH: "/" })).fail.ERRNO_NAME, "ENOSYS");
    });

    test("a hostile /etc/passwd harms nobody, and no /proc is needed", async () => {
      const root = join(d, "jail");
      fs.mkdirSync(join(root, "etc"), { recursive: true });
      const passwd = join(root, "etc/passwd");
      const stat = async (USER, PATH = "") => run("STAT", { PATH, USER }, { chroot: root });
      assert.equal((await stat("root")).done.PATH, "/");
      fs.writeFileSync(
        passwd,
        `a:x:1\n\n:::::::\nb:x:99999999999:1::/b:/\nrel:x:7:7::home/rel:/bin/sh\n${"l".repeat(5000)}:x:8:8::/:/\n`,
      );
      assert.equal((await stat("a")).fail.ERRNO_NAME, "EINVAL");
      assert.equal((await stat("b")).fail.ERRNO_NAME, "EINVAL");
      assert.equal((await stat("rel")).done.PATH, "/");
      fs.writeFileSync(passwd, Buffer.alloc(3 << 20, ":\n"));
      assert.equal((await stat("x")).fail.ERRNO_NAME, "EINVAL");
      fs.rmSync(passwd);
      execFileSync("mkfifo", [passwd]);
      assert.equal((await stat("x")).fail.ERRNO_NAME, "EINVAL");
      assert.equal((await stat("5")).done.PATH, "/");
      // Without /proc: written by a named temporary, read, listed, links resolved by path.
      const o = { chroot: root, data: "hello" };
      assert.ok((await run("WRITE", { PATH: "/w/f", XATTR: ["user.k=v"] }, o)).done);
      assert.equal((await run("READ", { PATH: "/w/f" }, o)).data.toString(), "hello");
      fs.symlinkSync("f", join(root, "w/link"));
      const link = (await run("STAT", { PATH: "/w/link" }, o)).done;
      assert.equal(link.LINK_RESOLVED, "/w/f");
      assert.equal((await run("LIST", { PATH: "/w" }, o)).notes.length, 2);
      clean(join(root, "w"));
      const cut = new Worker(variant, "WRITE", { PATH: "/w/f" }, { chroot: root });
      cut.send(Buffer.alloc(100000));
      await until(() => fs.readdirSync(join(root, "w")).some((f) => f.startsWith(".holdfast-")), "a named temporary");
      await cut.hangUp();
      clean(join(root, "w"));
      const killed = new Worker(variant, "WRITE", { PATH: "/w/f" }, { chroot: root });
      await until(() => fs.readdirSync(join(root, "w")).some((f) => f.startsWith(".holdfast-")), "a named temporary");
      killed.child.kill("SIGTERM");
      await killed.ended;
      clean(join(root, "w"));
      assert.equal(fs.readFileSync(join(root, "w/f"), "utf8"), "hello");
    });

    // ---- STAT ----

    test("STAT tells everything of a file, attributes included", async () => {
      const path = join(d, "stat\n\xff");
      fs.writeFileSync(path, "abc");
      fs.chmodSync(path, 0o4751);
      fs.chownSync(path, 1, 54321);
      fs.chmodSync(path, 0o4751);
      fs.utimesSync(path, 1.5, 1234567890.25);
      const { done } = await run("STAT", { PATH: path });
      assert.equal(done.FILE_TYPE, wire.FILE_TYPE_FILE);
      assert.equal(done.SIZE, 3);
      assert.equal(done.MODE, 0o4751);
      assert.deepEqual([done.UID, done.GID, done.OWNER, done.GROUP], [1, 54321, "daemon", "54321"]);
      assert.equal(done.MTIME_NS, 1234567890250000000n);
      assert.equal(done.NAME, "stat\n\xff");
      assert.equal(done.PATH, path);
      assert.equal(done.XATTR, undefined);
      assert.equal((await run("STAT", { PATH: "/dev/null" })).done.FILE_TYPE, wire.FILE_TYPE_OTHER);
      assert.equal((await run("STAT", { PATH: d })).done.FILE_TYPE, wire.FILE_TYPE_DIRECTORY);
      const missing = (await run("STAT", { PATH: `${d}/none` })).fail;
      assert.deepEqual([missing.ERRNO_NAME, missing.MESSAGE], ["ENOENT", `path '${d}/none' does not exist`]);
      assert.equal((await run("STAT", { PATH: `${path}/x` })).fail.ERRNO_NAME, "ENOTDIR");
    });

    test("STAT of links: resolved, dangling, in a loop", async () => {
      fs.mkdirSync(join(d, "links"));
      fs.writeFileSync(join(d, "links/file"), "12345", { mode: 0o600 });
      fs.symlinkSync("file", join(d, "links/one"));
      fs.symlinkSync("../links/one", join(d, "links/two"));
      fs.symlinkSync("nowhere", join(d, "links/dangling"));
      fs.symlinkSync("loop", join(d, "links/loop"));
      const two = (await run("STAT", { PATH: `${d}/links/two` })).done;
      assert.equal(two.FILE_TYPE, wire.FILE_TYPE_SYMLINK);
      assert.equal(two.LINK_TARGET, "../links/one");
      assert.equal(two.LINK_RESOLVED, `${d}/links/file`);
      assert.deepEqual([two.TARGET_TYPE, two.TARGET_MODE, two.TARGET_SIZE], [wire.FILE_TYPE_FILE, 0o600, 5]);
      for (const name of ["dangling", "loop"]) {
        const { done } = await run("STAT", { PATH: `${d}/links/${name}` });
        assert.ok(done.LINK_TARGET);
        assert.deepEqual([done.LINK_RESOLVED, done.TARGET_TYPE], [undefined, undefined]);
      }
    });

    // ---- READ ----

    test("READ sends all, a range, nothing past the end, and /proc", async () => {
      const path = join(d, "big");
      const bytes = Buffer.alloc(1_000_003, "pattern-");
      fs.writeFileSync(path, bytes);
      const all = await run("READ", { PATH: path });
      assert.equal(all.frames[0].NOTE_KIND, wire.NOTE_ENTRY);
      assert.equal(all.frames[0].SIZE, bytes.length);
      assert.ok(all.data.equals(bytes));
      assert.equal(all.frames.at(-2).type, wire.FRAME_EOF);
      assert.equal(all.frames.at(-2).channel, 1);
      assert.ok(
        (await run("READ", { PATH: path, OFFSET: 65530, LENGTH: 70000 })).data.equals(bytes.subarray(65530, 135530)),
      );
      assert.equal((await run("READ", { PATH: path, OFFSET: 2_000_000 })).data.length, 0);
      assert.equal((await run("READ", { PATH: path, LENGTH: 0 })).data.length, 0);
      assert.equal((await run("READ", { PATH: path, OFFSET: 2n ** 63n })).fail.ERRNO_NAME, "EINVAL");
      assert.match((await run("READ", { PATH: "/proc/self/status" })).data.toString(), /Pid:/);
      fs.symlinkSync("big", join(d, "big-link"));
      assert.equal((await run("READ", { PATH: `${d}/big-link` })).data.length, bytes.length);
    });

    test("READ refuses what is not a file and never waits", async () => {
      execFileSync("mkfifo", [join(d, "fifo")]);
      const writer = spawn("/bin/sh", ["-c", `echo x > '${d}/fifo'; echo done`], {
        stdio: ["ignore", "pipe", "ignore"],
      });
      let woke = false;
      writer.stdout.on("data", () => (woke = true));
      const fails = async (PATH) => (await run("READ", { PATH })).fail;
      const fifo = await fails(`${d}/fifo`);
      assert.deepEqual([fifo.ERRNO_NAME, fifo.MESSAGE], ["EINVAL", `path '${d}/fifo' is not a regular file`]);
      assert.equal((await fails("/dev/zero")).ERRNO_NAME, "EINVAL");
      const dir = await fails(d);
      assert.deepEqual([dir.ERRNO_NAME, dir.MESSAGE], ["EISDIR", `path '${d}' is a directory`]);
      assert.equal((await fails(`${d}/none`)).ERRNO_NAME, "ENOENT");
      fs.symlinkSync("fifo", join(d, "fifo-link"));
      assert.equal((await fails(`${d}/fifo-link`)).ERRNO_NAME, "EINVAL");
      assert.equal(woke, false, "the writer of the FIFO was not woken");
      writer.kill("SIGKILL");
    });

    test("READ ends when nobody listens any more", async () => {
      fs.truncateSync(join(d, "big"), 3e9);
      const worker = new Worker(variant, "READ", { PATH: `${d}/big` }, { paused: true });
      await new Promise((r) => setTimeout(r, 100));
      assert.equal(worker.code, undefined);
      await worker.hangUp();
      fs.truncateSync(join(d, "big"), 10);
    });

    // ---- WRITE ----

    test("WRITE creates with parents, owner, mode and attributes", async () => {
      const path = `${d}/new/deep/file`;
      const data = Buffer.alloc(300_000, "x1");
      const { done } = await run(
        "WRITE",
        { PATH: path, USER: "daemon", XATTR: ["user.e2b.a=1=2", "user.b="] },
        { data },
      );
      assert.ok(fs.readFileSync(path).equals(data));
      assert.deepEqual(
        [done.SIZE, done.MODE, done.OWNER, done.PATH, done.NAME],
        [300_000, 0o644, "daemon", path, "file"],
      );
      assert.deepEqual(done.XATTR.sort(), ["user.b=", "user.e2b.a=1=2"]);
      for (const p of [path, `${d}/new`, `${d}/new/deep`]) assert.equal(fs.statSync(p).uid, 1);
      assert.equal(fs.statSync(`${d}/new/deep`).mode & 0o7777, 0o755);
      assert.notEqual(fs.statSync(d).uid, 1);
      // A replacement drops the old attributes and keeps the mode unless told.
      fs.chmodSync(path, 0o640);
      const again = (await run("WRITE", { PATH: path }, { data: "" })).done;
      assert.deepEqual([again.SIZE, again.MODE, again.OWNER, again.XATTR], [0, 0o640, "root", undefined]);
      assert.equal((await run("WRITE", { PATH: path, MODE: 0o4711 }, { data: "abc" })).done.MODE, 0o4711);
      assert.equal((await run("WRITE", { PATH: `${d}/none/x`, PARENTS: 0 })).fail.ERRNO_NAME, "ENOENT");
      assert.equal((await run("WRITE", { PATH: `${path}/x` })).fail.ERRNO_NAME, "ENOTDIR");
      assert.equal((await run("WRITE", { PATH: path, XATTR: ["trusted.x=1"] })).fail.ERRNO_NAME, "EINVAL");
      assert.equal((await run("WRITE", { PATH: path, XATTR: ["user.x"] })).fail.ERRNO_NAME, "EINVAL");
      assert.equal(fs.readFileSync(path, "utf8"), "abc");
      clean(`${d}/new/deep`);
    });

    test("WRITE goes through links to what they mean, and keeps them", async () => {
      const p = join(d, "wl");
      fs.mkdirSync(join(p, "real"), { recursive: true });
      fs.writeFileSync(join(p, "real/file"), "old");
      fs.symlinkSync("real", join(p, "dir"));
      fs.symlinkSync("../wl/dir/file", join(p, "link"));
      fs.symlinkSync("real/made/by-link", join(p, "dangling"));
      fs.symlinkSync("loop", join(p, "loop"));
      fs.symlinkSync("real/..", join(p, "up"));
      const { done } = await run("WRITE", { PATH: `${p}/link` }, { data: "new" });
      assert.deepEqual([done.PATH, done.FILE_TYPE], [`${p}/link`, wire.FILE_TYPE_FILE]);
      assert.equal(fs.readFileSync(join(p, "real/file"), "utf8"), "new");
      assert.ok(fs.lstatSync(join(p, "link")).isSymbolicLink());
      await run("WRITE", { PATH: `${p}/dangling` }, { data: "there" });
      assert.equal(fs.readFileSync(join(p, "real/made/by-link"), "utf8"), "there");
      assert.equal((await run("WRITE", { PATH: `${p}/loop` })).fail.ERRNO_NAME, "ELOOP");
      assert.equal((await run("WRITE", { PATH: `${p}/up` })).fail.ERRNO_NAME, "EISDIR");
      assert.equal((await run("WRITE", { PATH: p })).fail.ERRNO_NAME, "EISDIR");
      assert.equal((await run("WRITE", { PATH: "/" })).fail.ERRNO_NAME, "EISDIR");
      assert.equal((await run("WRITE", { PATH: `${d}/fifo` })).fail.ERRNO_NAME, "EINVAL");
      assert.equal((await run("WRITE", { PATH: "/dev/null", ATOMIC: 0 })).fail.ERRNO_NAME, "EINVAL");
      clean(p);
    });

    test("WRITE in place: truncating, at an offset, creating", async () => {
      const PATH = join(d, "place");
      await run("WRITE", { PATH, ATOMIC: 0, USER: "daemon" }, { data: "0123456789" });
      const { ino, uid } = fs.statSync(PATH);
      assert.equal(uid, 1);
      assert.equal((await run("WRITE", { PATH, OFFSET: 3 })).fail.ERRNO_NAME, "EINVAL");
      const at = (await run("WRITE", { PATH, OFFSET: 3, ATOMIC: 0, XATTR: ["user.a=1"] }, { data: "abc" })).done;
      assert.equal(fs.readFileSync(PATH, "utf8"), "012abc6789");
      assert.deepEqual(at.XATTR, ["user.a=1"]);
      await run("WRITE", { PATH, OFFSET: 12, ATOMIC: 0 }, { data: "z" });
      assert.equal(fs.readFileSync(PATH, "latin1"), "012abc6789\0\0z");
      const short = (await run("WRITE", { PATH, ATOMIC: 0, MODE: 0o600 }, { data: "short" })).done;
      assert.deepEqual([short.XATTR, short.MODE, short.OWNER], [undefined, 0o600, "daemon"]);
      assert.equal(fs.readFileSync(PATH, "utf8"), "short");
      assert.equal(fs.statSync(PATH).ino, ino);
      await run("WRITE", { PATH: `${d}/place2`, OFFSET: 2, ATOMIC: 0 }, { data: "x" });
      assert.equal(fs.readFileSync(`${d}/place2`, "latin1"), "\0\0x");
    });

    test("WRITE without room fails with ENOSPC and leaves the target alone", async () => {
      const path = join(tiny, "f");
      fs.writeFileSync(path, "kept");
      const { fail } = await run("WRITE", { PATH: path }, { data: Buffer.alloc(2_000_000, 1) });
      assert.deepEqual([fail.ERRNO_NAME, fail.MESSAGE], ["ENOSPC", `no space left for path '${path}'`]);
      assert.equal(fs.readFileSync(path, "utf8"), "kept");
      assert.deepEqual(fs.readdirSync(tiny), ["f"]);
      assert.ok((await run("WRITE", { PATH: path }, { data: Buffer.alloc(700_000) })).done, "the room was given back");
    });

    test("WRITE that is broken off leaves nothing", async () => {
      const path = join(d, "cut/file");
      fs.mkdirSync(join(d, "cut"));
      fs.writeFileSync(path, "before");
      const worker = new Worker(variant, "WRITE", { PATH: path });
      worker.send(Buffer.alloc(500_000));
      await new Promise((r) => setTimeout(r, 50));
      await worker.hangUp();
      const killed = new Worker(variant, "WRITE", { PATH: path });
      killed.send(Buffer.alloc(500_000));
      await new Promise((r) => setTimeout(r, 100));
      killed.child.kill("SIGKILL");
      await killed.ended;
      assert.deepEqual(fs.readdirSync(join(d, "cut")), ["file"]);
      assert.equal(fs.readFileSync(path, "utf8"), "before");
      for (const bad of [
        frame(wire.FRAME_STAT, Buffer.alloc(0)),
        frame(wire.FRAME_DATA, Buffer.from("x"), 1),
        frame(wire.FRAME_DATA, Buffer.from("x"), 0, 5),
      ]) {
        const w = new Worker(variant, "WRITE", { PATH: path });
        w.socket.write(bad);
        assert.equal((await w.finish()).fail.ERRNO_NAME, "EPROTO");
      }
      assert.deepEqual(fs.readdirSync(join(d, "cut")), ["file"]);
    });

    test("WRITE is atomic for readers, whoever swaps links meanwhile", async () => {
      const p = join(d, "race");
      fs.mkdirSync(p);
      fs.writeFileSync(join(p, "victim"), "victim");
      const stop = join(p, "stop");
      const swapper = spawn(
        "/bin/sh",
        [
          "-c",
          `cd '${p}'; while [ ! -e stop ]; do ln -sf victim t; rm -f t; mkdir t 2>/dev/null; rmdir t 2>/dev/null; done`,
        ],
        { stdio: "ignore" },
      );
      const gone = new Promise((r) => swapper.on("close", r));
      try {
        for (let i = 0; i < 60; i++) {
          const { done, fail } = await run("WRITE", { PATH: `${p}/t` }, { data: "content" });
          assert.ok(
            done || ["EISDIR", "ELOOP", "ENOTDIR", "ENOTEMPTY", "ENOENT"].includes(fail.ERRNO_NAME),
            fail?.MESSAGE,
          );
          assert.match(fs.readFileSync(join(p, "victim"), "utf8"), /^(victim|content)$/);
        }
      } finally {
        fs.writeFileSync(stop, "");
        await gone;
      }
      clean(p);
    });
  });
