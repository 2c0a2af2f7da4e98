import { expect } from "vitest";
import { type Cases, failure } from "../cell.js";

const bytesOfAllKinds = Uint8Array.from({ length: 70_000 }, (_, i) => (i * 7 + (i >> 8)) % 256);

async function readStream(stream: ReadableStream<Uint8Array>): Promise<Buffer> {
  const chunks: Uint8Array[] = [];
  for await (const chunk of stream) chunks.push(chunk);
  return Buffer.concat(chunks);
}

function streamOf(...chunks: Uint8Array[]): ReadableStream<Uint8Array> {
  return new ReadableStream({
    start(controller) {
      for (const chunk of chunks) controller.enqueue(chunk);
      controller.close();
    },
  });
}

const ODD_NAMES = [
  "ünï côdé 文件 😀.txt",
  "space & ampersand?question#hash%percent+plus;semicolon",
  "quote'and\"quotes",
  "back\\slash",
  "-leading-dash",
  "new\nline",
  "n".repeat(255),
];

export const fileCases: Cases = {
  "text comes back as it went": async ({ sandbox }) => {
    const text = "größe €\r\n😀\u0000end";
    expect(await sandbox.files.write("/tmp/text.txt", text)).toEqual({
      name: "text.txt",
      path: "/tmp/text.txt",
      type: "file",
    });
    expect(await sandbox.files.read("/tmp/text.txt")).toBe(text);
    await sandbox.files.write("/tmp/text.txt", "short");
    expect(await sandbox.files.read("/tmp/text.txt")).toBe("short");
  },

  "bytes, blobs and streams come back as they went, in every form": async ({ sandbox }) => {
    const forms = {
      buffer: bytesOfAllKinds.slice().buffer,
      blob: new Blob([bytesOfAllKinds]),
      stream: streamOf(bytesOfAllKinds.slice(0, 1), bytesOfAllKinds.slice(1, 40_000), bytesOfAllKinds.slice(40_000)),
    };
    for (const [form, data] of Object.entries(forms)) {
      const path = `/tmp/forms/${form}`;
      expect(await sandbox.files.write(path, data)).toEqual({ name: form, path, type: "file" });
      expect(Buffer.from(await sandbox.files.read(path, { format: "bytes" })).equals(bytesOfAllKinds)).toBe(true);
      const blob = await sandbox.files.read(path, { format: "blob" });
      expect(Buffer.from(await blob.arrayBuffer()).equals(bytesOfAllKinds)).toBe(true);
      const streamed = await readStream(await sandbox.files.read(path, { format: "stream" }));
      expect(streamed.equals(bytesOfAllKinds)).toBe(true);
    }
  },

  "an empty file is a file": async ({ sandbox }) => {
    for (const data of ["", new Blob([]), streamOf()]) {
      await sandbox.files.write("/tmp/empty", data);
      expect((await sandbox.files.getInfo("/tmp/empty")).size).toBe(0);
      expect(await sandbox.files.read("/tmp/empty")).toBe("");
      expect(await sandbox.files.read("/tmp/empty", { format: "bytes" })).toHaveLength(0);
      expect(await readStream(await sandbox.files.read("/tmp/empty", { format: "stream" }))).toHaveLength(0);
    }
  },

  "gzip on the way changes nothing": async ({ sandbox }) => {
    const text = "again and again ".repeat(20_000);
    await sandbox.files.write("/tmp/zipped", text, { gzip: true });
    expect((await sandbox.files.getInfo("/tmp/zipped")).size).toBe(text.length);
    expect(await sandbox.files.read("/tmp/zipped", { gzip: true })).toBe(text);
    await sandbox.files.write("/tmp/zipped", "", { gzip: true });
    expect(await sandbox.files.read("/tmp/zipped", { gzip: true })).toBe("");
  },

  "many files go in one write": async ({ sandbox }) => {
    const files = Array.from({ length: 60 }, (_, i) => ({
      path: i % 2 === 0 ? `/tmp/many/deep/${i}/file-${i}.txt` : `many/file-${i}.txt`,
      data: `content ${i}`,
    }));
    const written = await sandbox.files.write(files);
    expect(written.map(({ path }) => path)).toEqual(
      files.map(({ path }) => (path.startsWith("/") ? path : `/home/user/${path}`)),
    );
    expect(written.every(({ type }) => type === "file")).toBe(true);
    const read = await Promise.all(files.map(({ path }) => sandbox.files.read(path)));
    expect(read).toEqual(files.map(({ data }) => data));
    expect(await sandbox.files.writeFiles([])).toEqual([]);
  },

  "a path without a beginning is below the user's home": async ({ sandbox }) => {
    expect((await sandbox.files.write("here/it/is", "x")).path).toBe("/home/user/here/it/is");
    expect((await sandbox.files.write("~/tilde", "x")).path).toBe("/home/user/tilde");
    expect((await sandbox.files.write("roots-own", "x", { user: "root" })).path).toBe("/root/roots-own");
    expect(await sandbox.files.exists("/home/user/here/it")).toBe(true);
  },

  "a file belongs to the user who writes it, with plain rights": async ({ sandbox, sdk }) => {
    await sandbox.files.write("/tmp/owned/by-user", "12345");
    expect(await sandbox.files.getInfo("/tmp/owned/by-user")).toMatchObject({
      name: "by-user",
      path: "/tmp/owned/by-user",
      type: sdk.FileType.FILE,
      size: 5,
      mode: 0o644,
      permissions: "-rw-r--r--",
      owner: "user",
      group: "user",
    });
    expect(await sandbox.files.getInfo("/tmp/owned")).toMatchObject({
      type: sdk.FileType.DIR,
      mode: 0o755,
      permissions: "drwxr-xr-x",
      owner: "user",
    });
    await sandbox.files.write("/tmp/owned-by-root", "x", { user: "root" });
    const info = await sandbox.files.getInfo("/tmp/owned-by-root");
    expect(info).toMatchObject({ owner: "root", group: "root" });
    expect(Math.abs(Date.now() - Number(info.modifiedTime))).toBeLessThan(60_000);
    expect((await sandbox.files.getInfo("/tmp")).permissions).toBe("dtrwxrwxrwx");
  },

  "rights that a program sets are shown, and root reads what only root may": async ({ sandbox }) => {
    await sandbox.commands.run("echo secret >/root/secret && chmod 600 /root/secret", { user: "root" });
    expect(await sandbox.files.read("/root/secret", { user: "root" })).toBe("secret\n");
    expect(await sandbox.files.getInfo("/root/secret", { user: "root" })).toMatchObject({
      mode: 0o600,
      permissions: "-rw-------",
    });
    await sandbox.commands.run("echo '#!/bin/sh' >/tmp/script && chmod 4755 /tmp/script");
    expect((await sandbox.files.getInfo("/tmp/script")).permissions).toBe("urwxr-xr-x");
  },

  "an unknown user gets nothing": async ({ sandbox, sdk }) => {
    const options = { user: "nobody-knows" };
    for (const call of [
      () => sandbox.files.read("/etc/passwd", options),
      () => sandbox.files.write("/tmp/x", "x", options),
      () => sandbox.files.list("/", options),
    ]) {
      const error = await failure(call());
      expect(error).toBeInstanceOf(sdk.AuthenticationError);
      expect(error.message).toContain("nobody-knows");
    }
  },

  "a listing goes as deep as asked, in order": async ({ sandbox, sdk }) => {
    await sandbox.commands.run(
      "mkdir -p /tmp/tree/b/c/d && touch /tmp/tree/a /tmp/tree/b/1 /tmp/tree/b/c/2 /tmp/tree/z",
    );
    const paths = async (depth?: number) =>
      (await sandbox.files.list("/tmp/tree", depth === undefined ? {} : { depth })).map(({ path }) =>
        path.slice("/tmp/tree/".length),
      );
    expect(await paths()).toEqual(["a", "b", "z"]);
    expect(await paths(2)).toEqual(["a", "b", "b/1", "b/c", "z"]);
    expect(await paths(9)).toEqual(["a", "b", "b/1", "b/c", "b/c/2", "b/c/d", "z"]);
    const [a, b] = await sandbox.files.list("/tmp/tree");
    expect(a).toMatchObject({ name: "a", type: sdk.FileType.FILE, size: 0, owner: "user" });
    expect(b).toMatchObject({ name: "b", type: sdk.FileType.DIR });
    expect(await sandbox.files.list("/tmp/tree/b/c/d")).toEqual([]);
  },

  "a directory of 2,000 files is listed whole": async ({ sandbox }) => {
    await sandbox.commands.run("mkdir -p /tmp/crowd && cd /tmp/crowd && touch $(seq -w 2000)");
    const names = (await sandbox.files.list("/tmp/crowd")).map(({ name }) => name);
    expect(names).toEqual(Array.from({ length: 2000 }, (_, i) => String(i + 1).padStart(4, "0")));
  },

  "a directory is made once": async ({ sandbox }) => {
    expect(await sandbox.files.makeDir("/tmp/made/with/parents")).toBe(true);
    expect(await sandbox.files.makeDir("/tmp/made/with/parents")).toBe(false);
    const made = await sandbox.files.getInfo("/tmp/made/with/parents");
    expect(made).toMatchObject({ type: "dir", owner: "user", permissions: "drwxr-xr-x" });
    expect(made.size).toBeGreaterThan(0);
  },

  "a file of the kernel's, which has no size, is read whole": async ({ sandbox }) => {
    const path = "/proc/sys/kernel/random/boot_id";
    const { stdout } = await sandbox.commands.run(`cat ${path}`);
    expect(await sandbox.files.read(path)).toBe(stdout);
    expect(await sandbox.files.read(path, { gzip: true })).toBe(stdout);
  },

  "a file moves, with a directory made for it": async ({ sandbox, sdk }) => {
    await sandbox.files.write("/tmp/move/from", "moved");
    expect(await sandbox.files.rename("/tmp/move/from", "/tmp/move/new/to")).toMatchObject({
      name: "to",
      path: "/tmp/move/new/to",
      size: 5,
    });
    expect(await sandbox.files.exists("/tmp/move/from")).toBe(false);
    expect(await sandbox.files.read("/tmp/move/new/to")).toBe("moved");
    expect(await sandbox.files.rename("/tmp/move/new", "/tmp/move/newer")).toMatchObject({ type: "dir" });
    expect(await sandbox.files.read("/tmp/move/newer/to")).toBe("moved");
    expect(await failure(sandbox.files.rename("/tmp/move/none", "/tmp/move/x"))).toBeInstanceOf(sdk.NotFoundError);
  },

  "what is removed is gone, and may have been gone before": async ({ sandbox }) => {
    await sandbox.files.write("/tmp/gone/deep/file", "x");
    await sandbox.files.remove("/tmp/gone");
    expect(await sandbox.files.exists("/tmp/gone")).toBe(false);
    await sandbox.files.remove("/tmp/gone");
  },

  "what is not there, or is something else, is an error that says so": async ({ sandbox, sdk }) => {
    const missing = await failure(sandbox.files.read("/not/there"));
    expect(missing).toBeInstanceOf(sdk.FileNotFoundError);
    expect(missing.message).toContain("path '/not/there' does not exist");
    expect(await failure(sandbox.files.list("/not/there"))).toBeInstanceOf(sdk.FileNotFoundError);
    expect(await failure(sandbox.files.getInfo("/not/there"))).toBeInstanceOf(sdk.FileNotFoundError);
    expect(await failure(sandbox.files.read("/tmp"))).toBeInstanceOf(sdk.InvalidArgumentError);
    expect(await failure(sandbox.files.list("/etc/passwd"))).toBeInstanceOf(sdk.InvalidArgumentError);
    expect(await failure(sandbox.files.makeDir("/etc/passwd"))).toBeInstanceOf(sdk.InvalidArgumentError);
    expect(await failure(sandbox.files.write("/tmp", "x"))).toBeInstanceOf(sdk.InvalidArgumentError);
    expect(await sandbox.files.exists("/not/there")).toBe(false);
  },

  "metadata stays with a file until it is written anew": async ({ sandbox }) => {
    const metadata = { author: "me", "X-Trace": "a b;c=d" };
    const stored = { author: "me", "x-trace": "a b;c=d" };
    expect((await sandbox.files.write("/tmp/tagged", "x", { metadata })).metadata).toEqual(stored);
    expect((await sandbox.files.getInfo("/tmp/tagged")).metadata).toEqual(stored);
    expect((await sandbox.files.list("/tmp")).find(({ name }) => name === "tagged")?.metadata).toEqual(stored);
    await sandbox.files.write("/tmp/tagged", new Blob(["y"]).stream(), { metadata: { other: "1" } });
    expect((await sandbox.files.getInfo("/tmp/tagged")).metadata).toEqual({ other: "1" });
    await sandbox.commands.run(`python3 -c "import os; os.setxattr('/tmp/tagged', 'user.e2b.outside', b'yes')"`);
    expect((await sandbox.files.getInfo("/tmp/tagged")).metadata).toEqual({ other: "1", outside: "yes" });
    await sandbox.files.write("/tmp/tagged", "z");
    expect((await sandbox.files.getInfo("/tmp/tagged")).metadata).toBeUndefined();
  },

  "metadata goes with every file of a write, and with a file that moves": async ({ sandbox }) => {
    const metadata = { source: "many" };
    const files = ["one", "two"].map((name) => ({ path: `/tmp/tagged-many/${name}`, data: name }));
    for (const { path, metadata: written } of await sandbox.files.writeFiles(files, { metadata })) {
      expect(written).toEqual(metadata);
      expect((await sandbox.files.getInfo(path)).metadata).toEqual(metadata);
    }
    const moved = await sandbox.files.rename("/tmp/tagged-many/one", "/tmp/tagged-many/three");
    expect(moved.metadata).toEqual(metadata);
  },

  "a link shows what it leads to": async ({ sandbox, sdk }) => {
    await sandbox.commands.run(
      "mkdir -p /tmp/links/dir && cd /tmp/links && echo text >file && ln -sf file to-file && ln -sfn dir to-dir && ln -sf to-file twice && ln -sf nowhere broken",
    );
    expect(await sandbox.files.getInfo("/tmp/links/to-file")).toMatchObject({
      name: "to-file",
      path: "/tmp/links/to-file",
      type: sdk.FileType.FILE,
      mode: 0o644,
      permissions: "Lrwxrwxrwx",
      symlinkTarget: "/tmp/links/file",
    });
    expect(await sandbox.files.getInfo("/tmp/links/to-dir")).toMatchObject({
      type: sdk.FileType.DIR,
      symlinkTarget: "/tmp/links/dir",
    });
    expect((await sandbox.files.getInfo("/tmp/links/twice")).symlinkTarget).toBe("/tmp/links/file");
    expect((await sandbox.files.list("/tmp/links")).map(({ name }) => name)).toContain("broken");
    expect(await sandbox.files.read("/tmp/links/twice")).toBe("text\n");
    await sandbox.files.write("/tmp/links/dir/inner", "x");
    expect((await sandbox.files.list("/tmp/links/to-dir")).map(({ path }) => path)).toEqual([
      "/tmp/links/to-dir/inner",
    ]);
    await sandbox.files.remove("/tmp/links/to-file");
    expect(await sandbox.files.read("/tmp/links/file")).toBe("text\n");
  },

  "odd names are names": async ({ sandbox }) => {
    for (const name of ODD_NAMES) {
      const path = `/tmp/odd/${name}`;
      await sandbox.files.write(path, name);
      expect(await sandbox.files.read(path)).toBe(name);
      expect((await sandbox.files.getInfo(path)).name).toBe(name);
      await sandbox.files.rename(path, `${path.slice(0, -1)}~`);
      await sandbox.files.rename(`${path.slice(0, -1)}~`, path);
    }
    expect((await sandbox.files.list("/tmp/odd")).map(({ name }) => name).sort()).toEqual([...ODD_NAMES].sort());
    const many = await sandbox.files.write(
      ["ünï côdé 文件.txt", "with space & more", "100%"].map((name) => ({ path: `/tmp/odd-many/${name}`, data: name })),
    );
    expect(many.map(({ name }) => name)).toEqual(["ünï côdé 文件.txt", "with space & more", "100%"]);
    expect(await sandbox.files.read("/tmp/odd-many/100%")).toBe("100%");
  },

  "a full disk is an error of its own": async ({ create, sdk }) => {
    const sandbox = await create();
    await failure(sandbox.commands.run("head -c 1G /dev/zero >/tmp/filler", { timeoutMs: 0 }));
    const error = await failure(sandbox.files.write("/tmp/one-more", new Blob([new Uint8Array(8 * 1024 * 1024)])));
    expect(error).toBeInstanceOf(sdk.NotEnoughSpaceError);
    await sandbox.files.remove("/tmp/filler");
    await sandbox.files.write("/tmp/one-more", "fits");
  },
};
