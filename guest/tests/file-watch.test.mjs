import assert from "node:assert/strict";
import { execFileSync, spawn } from "node:child_process";
import fs from "node:fs";
import { join } from "node:path";
import { after, before, describe, test } from "node:test";
import { directory, inMemory, request, variants, Worker, wire } from "./file-harness.mjs";

const NAMES = ["", "create", "write", "remove", "rename", "chmod", "overflow"];
const sh = (script, cwd) => execFileSync("/bin/bash", ["-ec", script], { cwd });

for (const variant of variants)
  describe(`file worker, watches, ${variant.name}`, { concurrency: false }, () => {
    const d = join(directory, `watch-${variant.name}`);
    let number = 0;
    before(() => fs.mkdirSync(d));
    after(() => request(variant, "REMOVE", { PATH: d }));

    async function watch(path, fields = {}) {
      const worker = new Worker(variant, "WATCH", { PATH: path, ...fields });
      await worker.until((f) => f.NOTE_KIND === wire.NOTE_READY || f.type === wire.FRAME_FAIL);
      worker.events = () =>
        worker.frames.filter((f) => f.NOTE_KIND === wire.NOTE_EVENT).map((f) => `${NAMES[f.EVENT]} ${f.NAME}`);
      worker.event = (text, ms) =>
        worker.until((f) => f.NOTE_KIND === wire.NOTE_EVENT && `${NAMES[f.EVENT]} ${f.NAME}` === text, ms);
      return worker;
    }
    const fresh = () => {
      const p = join(d, String(number++));
      fs.mkdirSync(p);
      return p;
    };

    test("what cannot be watched", async () => {
      fs.writeFileSync(`${d}/file`, "");
      const fail = async (PATH) => (await request(variant, "WATCH", { PATH })).fail;
      assert.equal((await fail(`${d}/none`)).ERRNO_NAME, "ENOENT");
      const file = await fail(`${d}/file`);
      assert.deepEqual([file.ERRNO_NAME, file.MESSAGE], ["ENOTDIR", `path '${d}/file' is not a directory`]);
    });

    test("events of one directory, in order, and only of that", async () => {
      const p = fresh();
      const w = await watch(p);
      sh("echo 1 > a; chmod 600 a; mv a b; mkdir s; echo x > s/inner; mv s/inner in; rm b; rmdir s; touch last", p);
      await w.event("create last");
      const events = w.events().slice(0, w.events().indexOf("create last") + 1);
      assert.deepEqual(events, [
        "create a",
        "write a",
        "chmod a",
        "rename a",
        "create b",
        "create s",
        "create in",
        "remove b",
        "remove s",
        "create last",
      ]);
      const odd = Buffer.from([0xff, 0x0a, 0x25, 0x73]);
      fs.writeFileSync(Buffer.concat([Buffer.from(`${p}/`), odd]), "");
      await w.until((f) => f.EVENT === 1 && f.raw?.NAME?.equals(odd));
      await w.hangUp();
    });

    test("asked, it says when all that has happened so far is told", async () => {
      const p = fresh();
      const w = await watch(p);
      const answers = () => w.frames.filter((f) => f.NOTE_KIND === wire.NOTE_READY).length;
      for (let round = 1; round <= 20; round++) {
        fs.writeFileSync(`${p}/${round}`, "x");
        w.eof();
        await w.until(() => answers() > round);
        assert.ok(w.events().includes(`write ${round}`));
      }
      // In pieces, and several at once.
      const eof = Buffer.from([0, 0, 0, 0, wire.FRAME_EOF, 0, 0, 0, 0, 0, 0, 0]);
      const many = Buffer.concat(Array.from({ length: 100 }, () => eof));
      w.socket.write(many.subarray(0, 7));
      await new Promise((resolve) => setTimeout(resolve, 50));
      w.socket.write(many.subarray(7));
      await w.until(() => answers() === 121);
      await w.hangUp();
    });

    test("recursive: nothing is missed in new directories, and nothing comes twice", async () => {
      for (let round = 0; round < 12; round++) {
        const p = fresh();
        const w = await watch(p, { RECURSIVE: 1 });
        sh("mkdir -p a/b/c; echo > a/b/c/f; mkdir -p a/x; echo > a/x/g; touch a/b/end", p);
        const wanted = ["a", "a/b", "a/b/c", "a/b/c/f", "a/x", "a/x/g", "a/b/end"];
        for (const n of wanted) await w.event(`create ${n}`);
        fs.writeFileSync(`${p}/a/b/c/f`, "more");
        await w.event("write a/b/c/f");
        await new Promise((r) => setTimeout(r, 30));
        const created = w.events().filter((e) => e.startsWith("create "));
        assert.deepEqual([...created].sort(), wanted.map((n) => `create ${n}`).sort());
        await w.hangUp();
      }
    });

    test("recursive: many directories at once, all watched in the end", async () => {
      const p = fresh();
      fs.mkdirSync(`${p}/old/er`, { recursive: true });
      const w = await watch(p, { RECURSIVE: 1 });
      assert.deepEqual(w.events(), []);
      sh(
        "for i in {1..150}; do mkdir -p t/$i/u/v; echo > t/$i/u/v/f; done & for i in {1..150}; do mkdir -p old/er/$i/w; done; wait; touch end",
        p,
      );
      await w.event("create end");
      for (let i = 1; i <= 150; i++) {
        await w.event(`create t/${i}/u/v/f`);
        await w.event(`create old/er/${i}/w`);
      }
      for (const i of [1, 77, 150]) {
        fs.writeFileSync(`${p}/old/er/${i}/w/late`, "");
        await w.event(`create old/er/${i}/w/late`);
      }
      const created = w.events().filter((e) => e.startsWith("create "));
      assert.equal(new Set(created).size, created.length);
      await w.hangUp();
    });

    test("recursive: directories renamed within, moved in, moved out", async () => {
      const p = fresh();
      const out = fresh();
      fs.mkdirSync(`${p}/a/b`, { recursive: true });
      fs.mkdirSync(`${out}/in/deep`, { recursive: true });
      fs.writeFileSync(`${out}/in/deep/f`, "");
      const w = await watch(p, { RECURSIVE: 1 });
      fs.renameSync(`${p}/a`, `${p}/z`);
      await w.event("rename a");
      await w.event("create z");
      fs.writeFileSync(`${p}/z/b/new`, "");
      await w.event("create z/b/new");
      assert.ok(!w.events().includes("create z/b"), "what was watched all along is not created again");
      fs.renameSync(`${out}/in`, `${p}/in`);
      await w.event("create in/deep/f");
      fs.appendFileSync(`${p}/in/deep/f`, "x");
      await w.event("write in/deep/f");
      fs.renameSync(`${p}/z`, `${out}/z`);
      await w.event("rename z");
      await new Promise((r) => setTimeout(r, 100));
      fs.writeFileSync(`${out}/z/b/unseen`, "");
      fs.mkdirSync(`${p}/end`);
      await w.event("create end");
      assert.ok(!w.events().some((e) => e.includes("unseen")), w.events().join());
      // Out and in again under another name.
      fs.renameSync(`${out}/z`, `${p}/y`);
      await w.event("create y/b/unseen");
      fs.writeFileSync(`${p}/y/b/seen`, "");
      await w.event("create y/b/seen");
      await w.hangUp();
    });

    test("recursive: renames while directories are made lose nothing", async () => {
      for (let round = 0; round < 6; round++) {
        const p = fresh();
        const w = await watch(p, { RECURSIVE: 1 });
        sh("mkdir a; mkdir a/b; mv a c; mkdir c/b/d; mv c/b e; mv c e/c; touch end", p);
        await w.event("create end");
        await new Promise((r) => setTimeout(r, 60));
        for (const n of ["e/d/x", "e/c/y", "e/z"]) {
          fs.writeFileSync(`${p}/${n}`, "");
          await w.event(`create ${n}`);
        }
        await w.hangUp();
      }
    });

    test("the watched directory goes: even as a working directory, through a link, by rename", async () => {
      for (const how of ["rmdir", "mv", "held", "linked", "replaced"]) {
        const p = fresh();
        fs.mkdirSync(`${p}/w`);
        fs.symlinkSync("w", `${p}/l`);
        const w = await watch(how === "linked" ? `${p}/l` : `${p}/w`, { RECURSIVE: 1 });
        let holder;
        if (how === "held") holder = spawn("/bin/sleep", ["30"], { cwd: `${p}/w`, stdio: "ignore" });
        if (how === "mv") sh("mv w v", p);
        else if (how === "replaced") sh("mkdir n; mv -T n w", p);
        else sh("touch w/f; rm -r w", p);
        const { done } = await w.finish();
        holder?.kill("SIGKILL");
        assert.ok(done);
        assert.equal(w.events().at(-1), how === "mv" ? "rename " : "remove ", how);
        assert.equal(w.events().filter((e) => e.endsWith(" ")).length, 1);
      }
    });

    test("a reader that sleeps is told that events were lost, and then sees again", () => {
      const p = join(d, "sleepy");
      return inMemory(p, async () => {
        const w = new Worker(variant, "WATCH", { PATH: p, RECURSIVE: 1 }, { paused: true });
        await new Promise((r) => setTimeout(r, 300));
        python(
          `import os\nos.chdir(${JSON.stringify(p)})\nfor i in range(30000):\n open("f%d"%i,"w").close();os.unlink("f%d"%i)\nos.makedirs("late/dir")`,
        );
        w.read();
        w.events = () => [];
        await w.until((f) => f.EVENT === wire.WATCH_EVENT_OVERFLOW);
        await w.until((f) => f.EVENT === 1 && f.NAME === "late/dir");
        fs.writeFileSync(`${p}/late/dir/x`, "");
        await w.until((f) => f.EVENT === 1 && f.NAME === "late/dir/x");
        await w.hangUp();
      });
    });

    test("links are not followed, FIFOs not opened, deep trees not a problem", async () => {
      const p = fresh();
      fs.symlinkSync("/", `${p}/root`);
      sh("mkfifo fifo", p);
      python(`import os\nos.chdir(${JSON.stringify(p)})\nfor i in range(3000):\n os.mkdir("d");os.chdir("d")`);
      const w = await watch(p, { RECURSIVE: 1 });
      python(
        `import os\nos.chdir(${JSON.stringify(p)})\nfor i in range(3000): os.chdir("d")\nopen("bottom","w").close()`,
      );
      await w.event(`create ${"d/".repeat(3000)}bottom`);
      await w.hangUp();
    });
  });

function python(script) {
  execFileSync("python3", ["-c", script]);
}
