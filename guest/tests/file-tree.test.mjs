import assert from "node:assert/strict";
import { execFileSync } from "node:child_process";
import fs from "node:fs";
import { join } from "node:path";
import { after, before, describe, test } from "node:test";
import { directory, inMemory, request, variants, Worker, wire } from "./file-harness.mjs";

// What Node cannot do itself: trees deeper than PATH_MAX, names that are no UTF-8.
const python = (script, ...args) => execFileSync("python3", ["-c", script, ...args], { encoding: "utf8" });
const deep = (path, levels) =>
  python(
    'import os,sys\nos.mkdir(sys.argv[1]);os.chdir(sys.argv[1])\nfor i in range(int(sys.argv[2])):\n os.mkdir("d");os.chdir("d")\nopen("leaf","w").close()',
    path,
    String(levels),
  );

for (const variant of variants)
  describe(`file worker, trees, ${variant.name}`, { concurrency: false }, () => {
    const d = join(directory, `tree-${variant.name}`);
    const other = join(directory, `other-${variant.name}`);
    const run = (type, fields, options) => request(variant, type, fields, options);
    const paths = async (fields) => (await run("LIST", fields)).notes.map((n) => n.PATH.slice(fields.PATH.length + 1));

    before(() => {
      fs.mkdirSync(d);
      fs.mkdirSync(other);
      execFileSync("mount", ["-t", "tmpfs", "-o", "size=8m", "tmpfs", other]);
    });
    after(async () => {
      execFileSync("umount", [other]);
      await run("REMOVE", { PATH: d });
    });

    // ---- LIST ----

    test("LIST is depth first, by name, to its depth, and does not follow links below", async () => {
      const p = join(d, "list");
      for (const x of ["b/x/y", "a", "b.c"]) fs.mkdirSync(join(p, x), { recursive: true });
      fs.writeFileSync(join(p, "b/x/file"), "1234");
      fs.symlinkSync("/etc", join(p, "a/link"));
      fs.symlinkSync("list", join(d, "list-link"));
      assert.deepEqual(await paths({ PATH: p }), ["a", "b", "b.c"]);
      assert.deepEqual(await paths({ PATH: p, DEPTH: 0 }), ["a", "b", "b.c"]);
      assert.deepEqual(await paths({ PATH: p, DEPTH: 2 }), ["a", "a/link", "b", "b/x", "b.c"]);
      const all = ["a", "a/link", "b", "b/x", "b/x/file", "b/x/y", "b.c"];
      assert.deepEqual(await paths({ PATH: p, DEPTH: 99 }), all);
      assert.deepEqual(await paths({ PATH: join(d, "list-link"), DEPTH: 99 }), all);
      const { notes } = await run("LIST", { PATH: p, DEPTH: 9 });
      assert.equal(notes.find((n) => n.NAME === "file").SIZE, 4);
      const link = notes.find((n) => n.NAME === "link");
      assert.deepEqual(
        [link.LINK_TARGET, link.LINK_RESOLVED, link.TARGET_TYPE],
        ["/etc", "/etc", wire.FILE_TYPE_DIRECTORY],
      );
      const fail = async (PATH) => (await run("LIST", { PATH })).fail;
      assert.deepEqual(
        [(await fail(`${p}/b/x/file`)).ERRNO_NAME, (await fail(`${p}/none`)).ERRNO_NAME],
        ["ENOTDIR", "ENOENT"],
      );
      assert.equal((await fail(`${p}/b/x/file`)).MESSAGE, `path '${p}/b/x/file' is not a directory`);
      assert.ok((await run("LIST", { PATH: "/" })).notes.some((n) => n.PATH === "/etc"));
      const proc = await run("LIST", { PATH: "/proc", DEPTH: 2 });
      assert.ok(proc.done, proc.fail?.MESSAGE);
      const own = await run("LIST", { PATH: "/proc/1", DEPTH: 2 });
      assert.ok(own.done, own.fail?.MESSAGE);
    });

    test("LIST takes any name", async () => {
      const p = join(d, "names");
      fs.mkdirSync(p);
      const names = [
        Buffer.from([0xff, 0xfe, 0x0a]),
        Buffer.from("a\nb"),
        Buffer.from(" "),
        Buffer.from("x".repeat(255)),
        Buffer.from("'\"\\%s%n"),
      ];
      for (const n of names) fs.writeFileSync(Buffer.concat([Buffer.from(`${p}/`), n]), "");
      const { notes } = await run("LIST", { PATH: p });
      assert.deepEqual(
        notes.map((n) => n.raw.NAME.toString("hex")),
        names.map((n) => n.toString("hex")).sort(),
      );
      const bad = Buffer.concat([Buffer.from(`${p}/`), names[0]]);
      assert.ok((await run("STAT", { PATH: bad })).done.raw.PATH.equals(bad));
      assert.equal((await run("REMOVE", { PATH: p })).done.COUNT, 6);
    });

    test("LIST of many entries is complete and in order, with little memory", () =>
      inMemory(join(d, "roomy"), async () => {
        const p = join(d, "roomy/many");
        // Long names, so that several batches are needed; a directory in the middle is gone into.
        python(
          'import os,sys\np=sys.argv[1];os.mkdir(p)\nfor i in range(30000): open(p+"/"+"n"*150+"%05d"%((i*7919)%30000),"w").close()\nos.makedirs(p+"/"+"n"*150+"15000x/in")',
          p,
        );
        const worker = new Worker(variant, "LIST", { PATH: p, DEPTH: 3 }, { paused: true });
        await new Promise((r) => setTimeout(r, 300));
        const status = fs.readFileSync(`/proc/${worker.child.pid}/status`, "utf8");
        if (variant.name === "musl") assert.ok(Number(/VmHWM:\s+(\d+)/.exec(status)[1]) < 16 * 1024, status);
        worker.read();
        const { notes } = await worker.finish();
        assert.equal(notes.length, 30002);
        const names = notes.map((n) => n.PATH);
        assert.deepEqual(names, [...names].sort());
        assert.equal((await run("REMOVE", { PATH: p })).done.COUNT, 30003);
      }));

    test("LIST ends when nobody listens any more", async () => {
      const worker = new Worker(variant, "LIST", { PATH: "/usr/lib", DEPTH: 99 }, { paused: true });
      await new Promise((r) => setTimeout(r, 100));
      assert.equal(worker.code, undefined);
      await worker.hangUp();
    });

    // ---- MKDIR ----

    test("MKDIR", async () => {
      const p = join(d, "mk");
      const one = (await run("MKDIR", { PATH: `${p}/a/b`, MODE: 0o2770, USER: "daemon" })).done;
      assert.deepEqual(
        [one.CREATED, one.MODE, one.OWNER, one.FILE_TYPE],
        [1, 0o2770, "daemon", wire.FILE_TYPE_DIRECTORY],
      );
      assert.deepEqual([fs.statSync(`${p}/a`).mode & 0o7777, fs.statSync(p).uid], [0o755, 1]);
      assert.equal((await run("MKDIR", { PATH: `${p}/a/b` })).done.CREATED, 0);
      assert.equal(fs.statSync(`${p}/a/b`).mode & 0o7777, 0o2770);
      assert.equal((await run("MKDIR", { PATH: "/" })).done.CREATED, 0);
      assert.equal((await run("MKDIR", { PATH: `${p}/n/o`, PARENTS: 0 })).fail.ERRNO_NAME, "ENOENT");
      fs.writeFileSync(`${p}/file`, "");
      fs.symlinkSync("a", `${p}/link`);
      fs.symlinkSync("none", `${p}/dangling`);
      const { fail } = await run("MKDIR", { PATH: `${p}/file` });
      assert.deepEqual(
        [fail.ERRNO_NAME, fail.MESSAGE],
        ["EEXIST", `path '${p}/file' already exists but it is not a directory`],
      );
      assert.equal((await run("MKDIR", { PATH: `${p}/file/x` })).fail.ERRNO_NAME, "ENOTDIR");
      assert.equal((await run("MKDIR", { PATH: `${p}/link` })).done.CREATED, 0);
      assert.equal((await run("MKDIR", { PATH: `${p}/link/c` })).done.PATH, `${p}/link/c`);
      assert.ok(fs.statSync(`${p}/a/c`).isDirectory());
      assert.equal((await run("MKDIR", { PATH: `${p}/dangling` })).fail.ERRNO_NAME, "EEXIST");
      assert.equal((await run("MKDIR", { PATH: `${p}/dangling/x` })).fail.ERRNO_NAME, "ENOTDIR");
      assert.equal((await run("MKDIR", { PATH: "/proc/nothing" })).fail.type, wire.FRAME_FAIL);
    });

    // ---- MOVE ----

    test("MOVE renames, makes parents, replaces as rename does", async () => {
      const p = join(d, "mv");
      fs.mkdirSync(`${p}/dir/sub`, { recursive: true });
      fs.writeFileSync(`${p}/f`, "f");
      fs.writeFileSync(`${p}/g`, "g");
      const moved = (await run("MOVE", { PATH: `${p}/f`, TO: `${p}/x/y/f2`, USER: "daemon" })).done;
      assert.deepEqual([moved.PATH, moved.NAME, fs.statSync(`${p}/x`).uid], [`${p}/x/y/f2`, "f2", 1]);
      await run("MOVE", { PATH: `${p}/g`, TO: `${p}/x/y/f2` });
      assert.equal(fs.readFileSync(`${p}/x/y/f2`, "utf8"), "g");
      const name = async (PATH, TO, more) => (await run("MOVE", { PATH, TO, ...more })).fail?.ERRNO_NAME;
      assert.equal(await name(`${p}/none`, `${p}/made/for/nothing`), "ENOENT");
      assert.ok(!fs.existsSync(`${p}/made`));
      assert.equal(await name(`${p}/dir`, `${p}/dir/sub/in`), "EINVAL");
      assert.equal(await name(`${p}/x/y/f2`, `${p}/dir`), "EISDIR");
      assert.equal(await name(`${p}/x`, `${p}/dir`), "ENOTEMPTY");
      assert.equal(await name(`${p}/dir`, `${p}/x/y/f2`), "ENOTDIR");
      assert.equal(await name(`${p}/dir`, `${p}/q/w`, { PARENTS: 0 }), "ENOENT");
      assert.equal(await name("/", `${p}/root`), "EBUSY");
      assert.equal(await name(`${p}/dir`, `${p}/dir`), undefined);
      fs.symlinkSync("nowhere", `${p}/link`);
      assert.equal((await run("MOVE", { PATH: `${p}/link`, TO: `${p}/link2` })).done.LINK_TARGET, "nowhere");
    });

    test("MOVE to another file system copies everything and then removes", async () => {
      const p = join(d, "across");
      fs.mkdirSync(`${p}/sub/empty`, { recursive: true });
      fs.writeFileSync(`${p}/sub/file`, "content");
      python(
        'import os,sys\np=sys.argv[1]\nos.setxattr(p+"/sub/file","user.k",b"v")\nos.setxattr(p+"/sub","user.d",b"w")\nf=open(p+"/sparse","wb");f.truncate(1<<32);f.seek(1<<31);f.write(b"mid");f.close()',
        p,
      );
      fs.symlinkSync("sub/file", `${p}/link`);
      execFileSync("mkfifo", ["-m", "0622", `${p}/fifo`]);
      fs.chownSync(`${p}/sub/file`, 1, 2);
      fs.chmodSync(`${p}/sub/file`, 0o4711);
      fs.chmodSync(`${p}/sub`, 0o1700);
      fs.lutimesSync(`${p}/link`, 5, 6);
      for (const x of ["sub/file", "sub", ""]) fs.utimesSync(`${p}/${x}`, 1000, 2000);
      const { done, fail } = await run("MOVE", { PATH: p, TO: `${other}/new/place` });
      assert.ok(done, fail?.MESSAGE);
      assert.ok(!fs.existsSync(p));
      const q = `${other}/new/place`;
      const file = (await run("STAT", { PATH: `${q}/sub/file` })).done;
      assert.deepEqual(
        [file.UID, file.GID, file.MODE, file.SIZE, file.MTIME_NS, file.XATTR],
        [1, 2, 0o4711, 7, 2000000000000n, ["user.k=v"]],
      );
      const sub = (await run("STAT", { PATH: `${q}/sub` })).done;
      assert.deepEqual([sub.MODE, sub.MTIME_NS, sub.XATTR], [0o1700, 2000000000000n, ["user.d=w"]]);
      assert.deepEqual([fs.lstatSync(`${q}/link`).mtimeMs, fs.readlinkSync(`${q}/link`)], [6000, "sub/file"]);
      assert.ok(fs.lstatSync(`${q}/fifo`).isFIFO());
      assert.equal(fs.statSync(`${q}/fifo`).mode & 0o7777, 0o622);
      assert.equal(fs.statSync(`${q}/sparse`).size, 2 ** 32);
      const fd = fs.openSync(`${q}/sparse`);
      const mid = Buffer.alloc(3);
      fs.readSync(fd, mid, 0, 3, 2 ** 31);
      fs.closeSync(fd);
      assert.equal(mid.toString(), "mid");
      assert.ok(fs.statSync(q).mtimeMs === 2000000);
      assert.deepEqual(fs.readdirSync(`${other}/new`), ["place"]);
      // A single file over an existing one; a tree that does not fit.
      fs.writeFileSync(`${d}/single`, "single");
      await run("MOVE", { PATH: `${d}/single`, TO: `${q}/sub/file` });
      assert.equal(fs.readFileSync(`${q}/sub/file`, "utf8"), "single");
      fs.mkdirSync(`${d}/large/a`, { recursive: true });
      fs.writeFileSync(`${d}/large/a/f`, Buffer.alloc(20e6, 1));
      const full = (await run("MOVE", { PATH: `${d}/large`, TO: `${other}/large` })).fail;
      assert.equal(full.ERRNO_NAME, "ENOSPC");
      assert.deepEqual(fs.readdirSync(other), ["new"]);
      assert.equal(fs.statSync(`${d}/large/a/f`).size, 20e6);
    });

    test("MOVE across never empties a mount inside, nor copies into itself", async () => {
      const p = join(d, "mounts");
      fs.mkdirSync(`${p}/in/side`, { recursive: true });
      fs.mkdirSync(`${d}/window`);
      execFileSync("mount", ["-t", "tmpfs", "tmpfs", `${p}/in/side`]);
      fs.writeFileSync(`${p}/in/side/kept`, "");
      try {
        assert.equal((await run("MOVE", { PATH: p, TO: `${other}/m` })).fail.ERRNO_NAME, "EBUSY");
        assert.equal((await run("MOVE", { PATH: p, TO: `${p}/in/side/x` })).fail.type, wire.FRAME_FAIL);
        const remove = (await run("REMOVE", { PATH: p })).fail;
        assert.deepEqual(
          [remove.ERRNO_NAME, remove.MESSAGE],
          ["EBUSY", `path '${p}/in/side' is in use or a mount point`],
        );
        assert.equal((await run("REMOVE", { PATH: `${p}/in/side` })).fail.ERRNO_NAME, "EBUSY");
        assert.deepEqual(fs.readdirSync(`${p}/in/side`), ["kept"]);
      } finally {
        execFileSync("umount", [`${p}/in/side`]);
      }
      execFileSync("mount", ["--bind", `${p}/in`, `${d}/window`]);
      try {
        assert.equal((await run("MOVE", { PATH: p, TO: `${d}/window/copy` })).fail.ERRNO_NAME, "EINVAL");
        assert.deepEqual(fs.readdirSync(`${p}/in`), ["side"]);
      } finally {
        execFileSync("umount", [`${d}/window`]);
      }
    });

    test("on an overlay: a directory of a lower layer is moved, files of it replaced, nothing is left over", async () => {
      const o = `${d}/overlay`;
      for (const x of ["lower/dir/sub", "upper", "work", "merged"]) fs.mkdirSync(`${o}/${x}`, { recursive: true });
      fs.writeFileSync(`${o}/lower/dir/sub/f`, "low", { mode: 0o640 });
      execFileSync("mount", [
        "-t",
        "overlay",
        "overlay",
        "-o",
        `lowerdir=${o}/lower,upperdir=${o}/upper,workdir=${o}/work`,
        `${o}/merged`,
      ]);
      try {
        const m = `${o}/merged`;
        const written = await run("WRITE", { PATH: `${m}/dir/sub/f`, XATTR: ["user.e2b.k=v"] }, { data: "high" });
        assert.deepEqual([written.done?.MODE, written.done?.XATTR], [0o640, ["user.e2b.k=v"]]);
        const moved = await run("MOVE", { PATH: `${m}/dir`, TO: `${m}/to/dir2` });
        assert.ok(moved.done, moved.fail?.MESSAGE);
        assert.deepEqual(await paths({ PATH: m, DEPTH: 9 }), ["to", "to/dir2", "to/dir2/sub", "to/dir2/sub/f"]);
        assert.equal(fs.readFileSync(`${m}/to/dir2/sub/f`, "utf8"), "high");
        assert.equal((await run("REMOVE", { PATH: `${m}/to` })).done.COUNT, 4);
        assert.equal(fs.readFileSync(`${o}/lower/dir/sub/f`, "utf8"), "low");
      } finally {
        execFileSync("umount", [`${o}/merged`]);
      }
    });

    // ---- REMOVE ----

    test("REMOVE", async () => {
      const p = join(d, "rm");
      fs.mkdirSync(`${p}/a/b`, { recursive: true });
      fs.mkdirSync(`${d}/outside`);
      fs.writeFileSync(`${d}/outside/safe`, "safe");
      fs.symlinkSync("../outside", `${p}/link`);
      fs.symlinkSync("../../../outside", `${p}/a/b/link`);
      fs.writeFileSync(`${p}/a/f`, "");
      execFileSync("mkfifo", [`${p}/a/fifo`]);
      const count = async (fields) => (await run("REMOVE", fields)).done.COUNT;
      assert.equal(await count({ PATH: `${p}/none` }), 0);
      assert.equal(await count({ PATH: `${p}/none/x` }), 0);
      assert.equal(await count({ PATH: `${p}/a/f/x` }), 0);
      assert.equal((await run("REMOVE", { PATH: `${p}/a`, RECURSIVE: 0 })).fail.ERRNO_NAME, "ENOTEMPTY");
      assert.equal(await count({ PATH: `${p}/link` }), 1);
      assert.equal(await count({ PATH: p }), 6);
      assert.ok(!fs.existsSync(p));
      assert.equal(fs.readFileSync(`${d}/outside/safe`, "utf8"), "safe");
      for (const PATH of ["/", "/..", "//."]) assert.equal((await run("REMOVE", { PATH })).fail.ERRNO_NAME, "EBUSY");
      assert.equal((await run("REMOVE", { PATH: "" })).fail.ERRNO_NAME, "EINVAL");
    });

    test("trees of 10,000 levels are listed, moved and removed", () =>
      inMemory(`${d}/roomy`, async () => {
        deep(`${d}/roomy/deep`, 10000);
        const listed = await run("LIST", { PATH: `${d}/roomy/deep`, DEPTH: 20000 });
        assert.equal(listed.notes.length, 10001);
        assert.equal(listed.notes.at(-1).NAME, "leaf");
        await inMemory(`${other}/roomy`, async () => {
          const { done, fail } = await run("MOVE", { PATH: `${d}/roomy/deep`, TO: `${other}/roomy/deep` });
          assert.ok(done, fail?.MESSAGE);
          assert.equal((await run("REMOVE", { PATH: `${other}/roomy/deep` })).done.COUNT, 10002);
          assert.deepEqual(fs.readdirSync(`${other}/roomy`), []);
        });
        assert.ok(!fs.existsSync(`${d}/roomy/deep`));
      }));

    test("a tree deeper than is remembered is removed all the same", () =>
      inMemory(`${d}/dark`, async () => {
        deep(`${d}/dark/abyss`, 60000);
        assert.equal((await run("REMOVE", { PATH: `${d}/dark/abyss` })).done.COUNT, 60002);
        assert.ok(!fs.existsSync(`${d}/dark/abyss`));
      }));

    test("REMOVE copes with a tree that is being moved about", async () => {
      const p = join(d, "moving");
      for (let i = 0; i < 5; i++) deep(`${p}${i}`, 200);
      fs.mkdirSync(p);
      for (let i = 0; i < 5; i++) fs.renameSync(`${p}${i}`, `${p}/t${i}`);
      const removing = run("REMOVE", { PATH: p });
      for (let i = 0; i < 40; i++) {
        try {
          fs.renameSync(`${p}/t${i % 5}/d/d/d`, `${p}/m${i}`);
        } catch {}
        await new Promise(setImmediate);
      }
      const { done, fail } = await removing;
      assert.ok(done || fail.ERRNO_NAME === "ENOTEMPTY", fail?.MESSAGE);
      await run("REMOVE", { PATH: p });
      assert.ok(!fs.existsSync(p));
    });
  });
