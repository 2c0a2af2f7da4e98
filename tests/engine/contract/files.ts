/** Files go in and out by the guest alone, as streams, and an error is a code. */
import { createHash, randomBytes } from "node:crypto";
import { Readable } from "node:stream";
import type { FileEntry, Sandbox, WatchEvent } from "@holdfast/engine";
import { describe, expect, it } from "vitest";
import { scaled } from "../../helpers/scale.js";
import { type OpenEngine, useSharedEngine } from "../../helpers/shared-engine.js";
import { MIB, run, SMALL_LIMITS, shell } from "../../helpers/use-engine.js";

async function textOf(
  sandbox: Sandbox,
  path: string,
  options: { offset?: number; length?: number } = {},
): Promise<string> {
  const { content } = await sandbox.files.read(path, options);
  const chunks: Buffer[] = [];
  for await (const chunk of content) chunks.push(chunk as Buffer);
  return Buffer.concat(chunks).toString();
}

async function listed(sandbox: Sandbox, path: string, depth?: number): Promise<FileEntry[]> {
  const entries: FileEntry[] = [];
  for await (const entry of sandbox.files.list(path, depth === undefined ? {} : { depth })) entries.push(entry);
  return entries;
}

/** Pseudo-random bytes without end, the same each time, made as they are pulled. */
function* noise(bytes: number): Generator<Buffer> {
  const block = randomBytes(MIB);
  for (let left = bytes; left > 0; left -= block.length) {
    block.writeUInt32LE(left % 0xffffffff, 0);
    yield Buffer.from(block.subarray(0, Math.min(left, block.length)));
  }
}

/** Collects events until one matches. */
async function until(events: AsyncIterator<WatchEvent>, isLast: (event: WatchEvent) => boolean): Promise<WatchEvent[]> {
  const seen: WatchEvent[] = [];
  for (;;) {
    const { done, value } = await events.next();
    if (done === true) throw new Error(`the watch ended after ${JSON.stringify(seen)}`);
    seen.push(value);
    if (isLast(value)) return seen;
  }
}

export function describeFiles(open: OpenEngine): void {
  describe("files", () => {
    const use = useSharedEngine(open);

    it("are written with owner, mode, attributes and parents, and read back", async () => {
      const sandbox = await use.create();
      const entry = await sandbox.files.write("~/a/b/file.txt", "hello", {
        mode: 0o640,
        attributes: { "user.note": "kept" },
      });
      expect(entry).toMatchObject({
        name: "file.txt",
        path: "/home/user/a/b/file.txt",
        type: "file",
        sizeBytes: 5,
        mode: 0o640,
        owner: "user",
        group: "user",
        uid: 1000,
      });
      expect((await sandbox.files.stat("/home/user/a/b/file.txt")).attributes["user.note"]?.toString()).toBe("kept");
      expect(await textOf(sandbox, "/home/user/a/b/file.txt")).toBe("hello");
      expect((await run(sandbox, ["stat", "-c", "%U %a", "/home/user/a", "/home/user/a/b/file.txt"])).stdout).toBe(
        "user 755\nuser 640\n",
      );
    });

    it("that are programs can be run the moment they were written", async () => {
      const sandbox = await use.create();
      for (let i = 0; i < 40; i++) {
        await sandbox.files.write("/tmp/program", "#!/bin/sh\nexit 7\n", { mode: 0o755 });
        expect((await run(sandbox, ["/tmp/program"])).cause).toEqual({ kind: "exited", code: 7 });
      }
    });

    it("are read in part", async () => {
      const sandbox = await use.create();
      await sandbox.files.write("/tmp/digits", "0123456789");
      expect(await textOf(sandbox, "/tmp/digits", { offset: 3, length: 4 })).toBe("3456");
      expect(await textOf(sandbox, "/tmp/digits", { offset: 8 })).toBe("89");
      expect(await textOf(sandbox, "/tmp/digits", { offset: 20 })).toBe("");
    });

    it("are written in part", async () => {
      const sandbox = await use.create();
      await sandbox.files.write("/tmp/digits", "0123456789");
      await sandbox.files.write("/tmp/digits", "ab", { offset: 4 });
      expect(await textOf(sandbox, "/tmp/digits")).toBe("0123ab6789");
    });

    it("stay as they were when what replaces them breaks off", async () => {
      const sandbox = await use.create();
      await sandbox.files.write("/tmp/target", "before");
      const broken = Readable.from(
        (async function* () {
          yield Buffer.alloc(100_000, "x");
          throw new Error("the source broke");
        })(),
      );
      await expect(sandbox.files.write("/tmp/target", broken)).rejects.toThrow("the source broke");
      expect(await textOf(sandbox, "/tmp/target")).toBe("before");
      // The half-written file beside it is gone too, once the guest has heard of it.
      await expect.poll(async () => (await listed(sandbox, "/tmp")).map(({ name }) => name)).toEqual(["target"]);
    });

    it("are replaced whole: a reader never sees half of one", async () => {
      const sandbox = await use.create();
      const [a, b] = ["a".repeat(300_000), "b".repeat(300_000)];
      await sandbox.files.write("/tmp/target", a);
      let done = false;
      const writer = (async () => {
        for (let i = 0; i < scaled(20, 4); i++) await sandbox.files.write("/tmp/target", i % 2 === 0 ? b : a);
        done = true;
      })();
      while (!done) expect([a, b]).toContain(await textOf(sandbox, "/tmp/target"));
      await writer;
    });

    it("are listed by depth, in order", async () => {
      const sandbox = await use.create();
      await shell(sandbox, "mkdir -p d/b/c; touch d/a d/b/x d/b/c/y; ln -s a d/link");
      expect((await listed(sandbox, "~/d")).map(({ path, type }) => `${path.slice(11)} ${type}`)).toEqual([
        "d/a file",
        "d/b directory",
        "d/link symlink",
      ]);
      expect((await listed(sandbox, "~/d", 2)).map(({ path }) => path.slice(11))).toEqual([
        "d/a",
        "d/b",
        "d/b/c",
        "d/b/x",
        "d/link",
      ]);
      expect((await listed(sandbox, "~/d", 9)).map(({ path }) => path.slice(11))).toEqual([
        "d/a",
        "d/b",
        "d/b/c",
        "d/b/c/y",
        "d/b/x",
        "d/link",
      ]);
    });

    it("are listed by the thousand without being held", async () => {
      const sandbox = await use.create();
      const count = scaled(10_000);
      await shell(sandbox, `mkdir many; cd many; seq -f 'a-rather-long-file-name-%06.0f' ${count} | xargs touch`);
      let seen = 0;
      for await (const entry of sandbox.files.list("~/many")) {
        if (entry.type === "file") seen += 1;
        if (seen % 1000 === 0) await new Promise((resolve) => setTimeout(resolve, 1));
      }
      expect(seen).toBe(count);
      let few = 0;
      for await (const _ of sandbox.files.list("~/many")) if (++few === 3) break;
      expect((await sandbox.files.stat("~")).type).toBe("directory");
    });

    it("that are links are described, and followed inside only", async () => {
      const sandbox = await use.create();
      await shell(sandbox, "ln -s /etc/passwd inside; ln -s /does/not/exist dangling; ln -s loop loop");
      expect((await sandbox.files.stat("~/inside")).link).toMatchObject({
        target: "/etc/passwd",
        resolved: "/etc/passwd",
        targetType: "file",
      });
      expect((await sandbox.files.stat("~/dangling")).link).toMatchObject({
        target: "/does/not/exist",
        targetType: undefined,
      });
      // The sandbox's own, not the host's.
      expect(await textOf(sandbox, "~/inside")).toContain("user:x:1000:1000:user:/home/user");
      await expect(sandbox.files.read("~/dangling")).rejects.toMatchObject({ code: "file_not_found" });
      await expect(sandbox.files.read("~/loop")).rejects.toMatchObject({ code: "file_wrong_type" });
    });

    it("are moved, removed and made directories of", async () => {
      const sandbox = await use.create();
      expect(await sandbox.files.makeDirectory("~/x/y", { mode: 0o700 })).toMatchObject({
        created: true,
        entry: { type: "directory", mode: 0o700, owner: "user" },
      });
      expect(await sandbox.files.makeDirectory("~/x/y")).toMatchObject({ created: false });
      await sandbox.files.write("~/x/y/f", "1");
      expect(await sandbox.files.move("~/x/y", "~/new/place")).toMatchObject({ path: "/home/user/new/place" });
      expect(await textOf(sandbox, "~/new/place/f")).toBe("1");
      expect(await sandbox.files.remove("~/new")).toBeGreaterThanOrEqual(1);
      await expect(sandbox.files.stat("~/new")).rejects.toMatchObject({ code: "file_not_found" });
      expect(await sandbox.files.remove("~/new")).toBe(0);
    });

    it("are watched from the moment the watch stands, below too, without a gap", async () => {
      const sandbox = await use.create();
      const events = await sandbox.files.watch("/home/user", { recursive: true });
      // Made at once: the directories below exist before their own watches can.
      await shell(sandbox, "mkdir -p a/b/c && for i in $(seq 20); do echo x >a/b/c/$i; done; echo end >last");
      const seen = await until(events[Symbol.asyncIterator](), ({ name }) => name === "last");
      const names = new Set(seen.map(({ name }) => name));
      for (const name of ["a", "a/b", "a/b/c", ...Array.from({ length: 20 }, (_, i) => `a/b/c/${i + 1}`)])
        expect(names).toContain(name);
    });

    it("are all told of when a watch has caught up, those that were just written too", async () => {
      const sandbox = await use.create();
      const watch = await sandbox.files.watch("/tmp");
      const iterator = watch[Symbol.asyncIterator]();
      for (let round = 0; round < 20; round++) {
        await sandbox.files.write(`/tmp/${round}`, "x");
        watch.catchUp();
        const seen = await until(iterator, ({ kind }) => kind === "caught_up");
        expect(seen.slice(0, -1)).toEqual(["create", "chmod", "write"].map((kind) => ({ kind, name: String(round) })));
      }
    });

    it("are no longer watched after the caller's signal", async () => {
      const sandbox = await use.create();
      const controller = new AbortController();
      const events = await sandbox.files.watch("/tmp", { signal: controller.signal });
      await shell(sandbox, "touch /tmp/a; chmod 600 /tmp/a; mv /tmp/a /tmp/b; rm /tmp/b");
      const iterator = events[Symbol.asyncIterator]();
      const kinds = (await until(iterator, ({ kind, name }) => kind === "remove" && name === "b")).map(
        ({ kind, name }) => `${kind} ${name}`,
      );
      expect(kinds).toEqual(expect.arrayContaining(["create a", "chmod a", "rename a", "remove b"]));
      controller.abort();
      for (;;) if ((await iterator.next()).done === true) break;
    });

    it.each([
      ["read", (sandbox: Sandbox) => sandbox.files.read("/no/such/file"), "file_not_found"],
      ["read", (sandbox: Sandbox) => sandbox.files.read("/etc"), "file_wrong_type"],
      ["stat", (sandbox: Sandbox) => sandbox.files.stat("/etc/passwd/x"), "file_wrong_type"],
      ["list", (sandbox: Sandbox) => listed(sandbox, "/etc/passwd"), "file_wrong_type"],
      ["list", (sandbox: Sandbox) => listed(sandbox, "/nowhere"), "file_not_found"],
      ["write", (sandbox: Sandbox) => sandbox.files.write("/etc", "x"), "file_wrong_type"],
      ["write", (sandbox: Sandbox) => sandbox.files.write("/usr/bin/x", "x"), "file_access_denied"],
      ["stat", (sandbox: Sandbox) => sandbox.files.stat("/a\0b"), "invalid_argument"],
      ["stat", (sandbox: Sandbox) => sandbox.files.stat(""), "invalid_argument"],
      ["stat", (sandbox: Sandbox) => sandbox.files.stat(`/${"x".repeat(300)}`), "invalid_argument"],
      ["stat", (sandbox: Sandbox) => sandbox.files.stat(`/${"x/".repeat(4000)}`), "invalid_argument"],
      ["stat", (sandbox: Sandbox) => sandbox.files.stat("/", { user: "ghost" }), "user_not_found"],
      ["move", (sandbox: Sandbox) => sandbox.files.move("/nowhere", "/tmp/x"), "file_not_found"],
      ["remove", (sandbox: Sandbox) => sandbox.files.remove("/home", { recursive: false }), "file_exists"],
      ["watch", (sandbox: Sandbox) => sandbox.files.watch("/nowhere"), "file_not_found"],
    ] as const)("refuse to %s with a code (%#)", async (_what, act, code) => {
      const sandbox = await use.create();
      await expect((async () => act(sandbox))()).rejects.toMatchObject({ name: "HoldfastError", code });
      expect((await sandbox.files.stat("/")).type).toBe("directory");
    });

    it("of 200 MB go up and down with flat memory", async () => {
      const bytes = scaled(200) * 1_000_000;
      const sandbox = await use.create({ limits: { ...SMALL_LIMITS, memoryBytes: 64 * MIB, diskBytes: 512 * MIB } });
      const [up, down] = [createHash("sha256"), createHash("sha256")];
      globalThis.gc?.();
      const before = process.memoryUsage.rss();
      let most = before;
      const look = () => {
        most = Math.max(most, process.memoryUsage.rss());
      };
      const source = Readable.from(
        (function* () {
          for (const block of noise(bytes)) {
            up.update(block);
            look();
            yield block;
          }
        })(),
        { objectMode: false },
      );
      expect((await sandbox.files.write("~/big", source)).sizeBytes).toBe(bytes);
      const { entry, content } = await sandbox.files.read("~/big");
      expect(entry.sizeBytes).toBe(bytes);
      for await (const chunk of content) {
        down.update(chunk as Buffer);
        look();
      }
      expect(down.digest("hex")).toBe(up.digest("hex"));
      expect(most - before).toBeLessThan(64 * MIB);
    });

    it("are left alone by a reader that loses interest", async () => {
      const sandbox = await use.create();
      await shell(sandbox, "head -c 20M /dev/zero >big");
      for (let i = 0; i < 5; i++) {
        const { content } = await sandbox.files.read("~/big");
        content.destroy();
      }
      expect((await sandbox.files.stat("~/big")).sizeBytes).toBe(20 * MIB);
      await expect.poll(async () => (await sandbox.stats()).pids).toBeLessThanOrEqual(3);
    });

    it("work while the commands are out of memory and of processes", async () => {
      const sandbox = await use.create();
      const hog = await sandbox.start({ argv: ["bash", "-c", "while :; do tail /dev/zero; done"] });
      for (let i = 0; i < 5; i++) {
        await sandbox.files.write("~/note", String(i));
        expect(await textOf(sandbox, "~/note")).toBe(String(i));
      }
      await hog.cancel("the test", { graceMs: 0 });
    });
  });
}
