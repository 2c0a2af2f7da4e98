import { execFileSync } from "node:child_process";
import { createHash, randomBytes } from "node:crypto";
import {
  chmodSync,
  mkdirSync,
  mkdtempSync,
  openSync,
  rmSync,
  symlinkSync,
  truncateSync,
  utimesSync,
  writeFileSync,
  writeSync,
} from "node:fs";
import { createServer } from "node:net";
import { tmpdir } from "node:os";
import { dirname, join } from "node:path";
import { afterEach, beforeEach, describe, expect, test } from "vitest";
import { Image } from "../image.js";
import { parseTree } from "../parse-tree.js";
import type { ResolvedImage } from "../resolve-draft.js";
import type { BlobSource, Tree, TreeEntry } from "../tree.js";

let top: string;

beforeEach(() => {
  top = mkdtempSync(join(tmpdir(), "holdfast-recipe-"));
});

afterEach(() => {
  rmSync(top, { recursive: true, force: true });
});

function write(path: string, content: string | Uint8Array = "", mode = 0o644): string {
  const file = join(top, path);
  mkdirSync(dirname(file), { recursive: true, mode: 0o755 });
  writeFileSync(file, content);
  chmodSync(file, mode);
  return file;
}

async function read(blob: BlobSource | undefined): Promise<Buffer> {
  const chunks: Uint8Array[] = [];
  for await (const chunk of blob?.open() ?? []) chunks.push(chunk);
  return Buffer.concat(chunks);
}

async function treeOf({ recipe, blobs }: ResolvedImage, index = 0): Promise<Tree> {
  const step = recipe.steps[index];
  if (step?.kind !== "copy") throw new Error(`step ${index} copies nothing`);
  const blob = blobs.find(({ digest }) => digest === step.tree);
  return parseTree(JSON.parse((await read(blob)).toString()));
}

const digestOf = (content: string | Uint8Array): string =>
  `sha256:${createHash("sha256").update(content).digest("hex")}`;
const fileEntry = (path: string, content: string, mode = 0o644): TreeEntry =>
  ({ path, type: "file", mode, sizeBytes: Buffer.byteLength(content), digest: digestOf(content) }) as TreeEntry;
const OURS = { uid: process.getuid?.(), gid: process.getgid?.() };
const ours = (entry: TreeEntry): TreeEntry => ({ ...entry, ...OURS });
const names = (tree: Tree): string[] => tree.entries.map(({ path }) => path);

describe("a directory", () => {
  test("keeps modes, links and empty directories, in order", async () => {
    write("b.txt", "b", 0o600);
    write("a/run me.sh", "#!/bin/sh\n", 0o4755);
    write("a.txt", "");
    write("é '\"$x\n", "hostile");
    mkdirSync(join(top, "empty"));
    chmodSync(join(top, "empty"), 0o1777);
    symlinkSync("../../../etc/passwd", join(top, "out"));
    symlinkSync("a", join(top, "a-link"));
    symlinkSync("nowhere", join(top, "dangling"));
    const resolved = await Image.base().addLocalDir(top, "/app").resolve();
    expect(resolved.recipe.steps).toEqual([
      { kind: "copy", tree: expect.any(String) as string, to: "/app", owner: "keep" },
    ]);
    const expected: TreeEntry[] = [
      { path: "a", type: "directory", mode: 0o755 },
      { path: "a-link", type: "symlink", mode: 0o777, target: "a" },
      fileEntry("a.txt", ""),
      fileEntry("a/run me.sh", "#!/bin/sh\n", 0o4755),
      fileEntry("b.txt", "b", 0o600),
      { path: "dangling", type: "symlink", mode: 0o777, target: "nowhere" },
      { path: "empty", type: "directory", mode: 0o1777 },
      { path: "out", type: "symlink", mode: 0o777, target: "../../../etc/passwd" },
      fileEntry("é '\"$x\n", "hostile"),
    ];
    expect((await treeOf(resolved)).entries).toEqual(expected.map(ours));
    expect((await read(resolved.blobs.find(({ digest }) => digest === digestOf("b")))).toString()).toBe("b");
  });

  test("gives the same tree whatever the times and the order of writing, and another for any content or mode", async () => {
    write("one/a", "1");
    write("one/b", "2");
    write("two/b", "2");
    write("two/a", "1");
    utimesSync(join(top, "two/a"), 0, 0);
    const digest = async (path: string): Promise<string> => {
      const { recipe } = await Image.base().addLocalDir(join(top, path), "/").resolve();
      return JSON.stringify(recipe);
    };
    const first = await digest("one");
    expect(await digest("two")).toBe(first);
    write("two/b", "3");
    expect(await digest("two")).not.toBe(first);
    write("two/b", "2", 0o755);
    expect(await digest("two")).not.toBe(first);
    write("two/b", "2");
    expect(await digest("two")).toBe(first);
    mkdirSync(join(top, "two/c"));
    expect(await digest("two")).not.toBe(first);
  });

  test("leaves out what its ignore file names; ours comes before docker's", async () => {
    for (const path of ["src/a.ts", "src/a.log", "node_modules/x/y", "keep/deep/file", "keep/other"]) write(path);
    write(".dockerignore", "src\n");
    const withDocker = await Image.base().addLocalDir(top, "/").resolve();
    expect(names(await treeOf(withDocker))).not.toContain("src/a.ts");
    write(".holdfastignore", "node_modules\n**/*.log\nkeep\n!keep/deep/file\n.*ignore\n");
    const withOurs = await Image.base().addLocalDir(top, "/").resolve();
    expect(names(await treeOf(withOurs))).toEqual(["keep", "keep/deep", "keep/deep/file", "src", "src/a.ts"]);
    const rules = write("rules", "keep\nsrc\n");
    const named = await Image.base()
      .addLocalDir(top, "/", { ignoreFile: rules, ignore: ["rules", "!src/a.ts", ".*"] })
      .resolve();
    expect(names(await treeOf(named))).toEqual([
      "node_modules",
      "node_modules/x",
      "node_modules/x/y",
      "src",
      "src/a.ts",
    ]);
  });

  test("keeps owners by number unless another is named", async () => {
    const file = write("a");
    const given = Image.base();
    for (const options of [{ mode: 0o700 }, { owner: "keep", mode: 0o700 }]) {
      const kept = await given.addLocalDir(top, "/", options).addLocalFile(file, "/b", options).resolve();
      expect(kept.recipe.steps).toMatchObject([{ owner: "keep", mode: 0o700 }, { owner: "keep" }]);
      expect((await treeOf(kept, 0)).entries).toMatchObject([{ path: "a", ...OURS }]);
      expect((await treeOf(kept, 1)).entries).toMatchObject([{ path: "", ...OURS }]);
    }
    for (const [owner, said] of [
      ["root", undefined],
      ["0:0", undefined],
      ["user:staff", "user:staff"],
    ] as const) {
      const named = await given.addLocalDir(top, "/", { owner }).addLocalFile(file, "/b", { owner }).resolve();
      for (const [index, step] of named.recipe.steps.entries()) {
        expect(step).toHaveProperty("kind", "copy");
        expect("owner" in step ? step.owner : undefined).toBe(said);
        expect((await treeOf(named, index)).entries[0]).not.toHaveProperty("uid");
      }
    }
  });

  test("sends equal files once", async () => {
    for (const path of ["a", "b", "c/d"]) write(path, "same");
    const { blobs } = await Image.base().addLocalDir(top, "/x").addLocalDir(top, "/y").resolve();
    expect(blobs).toHaveLength(2);
  });

  test("holds thousands of files", async () => {
    for (let index = 0; index < 3000; index++) write(`d${index % 30}/f${index}`, String(index % 7));
    const resolved = await Image.base().addLocalDir(top, "/").resolve();
    expect((await treeOf(resolved)).entries).toHaveLength(3030);
    expect(resolved.blobs).toHaveLength(8);
  });
});

describe("refuses, by name,", () => {
  const resolve = (path: string): Promise<ResolvedImage> => Image.base().addLocalDir(path, "/").resolve();

  test("sockets and pipes, unless they are ignored", async () => {
    execFileSync("mkfifo", [join(top, "pipe")]);
    await expect(resolve(top)).rejects.toThrow(/pipe is a named pipe, which an image cannot be given/);
    await expect(Image.base().addLocalFile(join(top, "pipe"), "/").resolve()).rejects.toThrow("is a named pipe");
    await expect(
      Image.base()
        .addLocalDir(top, "/", { ignore: ["pipe"] })
        .resolve(),
    ).resolves.toBeDefined();
    rmSync(join(top, "pipe"));
    const server = createServer();
    await new Promise<void>((done) => server.listen(join(top, "socket"), done));
    await expect(resolve(top)).rejects.toThrow(/socket is a socket/);
    await new Promise((done) => server.close(done));
    await expect(resolve("/dev/net")).rejects.toThrow(/is a device|no such file/);
  });

  test("paths that are not there or of the wrong kind", async () => {
    const file = write("file");
    await expect(resolve(join(top, "nothing"))).rejects.toThrow(
      `${join(top, "nothing")}: there is no such file or directory`,
    );
    await expect(resolve(file)).rejects.toThrow("addLocalDir path:");
    await expect(Image.base().addLocalFile(top, "/").resolve()).rejects.toThrow("is a directory");
    await expect(Image.base().addLocalDir(top, "/", { ignoreFile: "nothing" }).resolve()).rejects.toThrow(
      "nothing: there is no",
    );
  });

  test("names that are not UTF-8", async () => {
    execFileSync("sh", ["-c", 'touch "$0/$(printf "a\\377b")"', top]);
    await expect(resolve(top)).rejects.toThrow("the name is not UTF-8");
    write("kept", "x");
    const resolved = await Image.base()
      .addLocalDir(top, "/", { ignore: ["a?b", "!kept"] })
      .resolve();
    expect(names(await treeOf(resolved))).toEqual(["kept"]);
    write("Dockerfile", "FROM base\nCOPY k* /\n");
    await Image.fromDockerfile(join(top, "Dockerfile")).resolve();
    write("Dockerfile", "FROM base\nCOPY a* /\n");
    await expect(Image.fromDockerfile(join(top, "Dockerfile")).resolve()).rejects.toThrow("the name is not UTF-8");
  });
});

describe("a single file", () => {
  test("becomes the target itself, or keeps its name inside a directory", async () => {
    const file = write("tool.sh", "x", 0o755);
    symlinkSync("tool.sh", join(top, "link"));
    const resolved = await Image.base()
      .addLocalFile(file, "/bin/tool")
      .addLocalFile(file, "/bin/", { mode: 0o700, owner: "user" })
      .addLocalFile(join(top, "link"), "t")
      .resolve();
    expect(resolved.recipe.steps).toMatchObject([
      { to: "/bin/tool", name: "tool.sh" },
      { to: "/bin/", owner: "user" },
      { to: "t", name: "link" },
    ]);
    expect((await treeOf(resolved, 0)).entries).toEqual([ours(fileEntry("", "x", 0o755))]);
    expect((await treeOf(resolved, 1)).entries).toEqual([fileEntry("tool.sh", "x", 0o700)]);
    expect((await treeOf(resolved, 2)).entries).toEqual([ours(fileEntry("", "x", 0o755))]);
  });

  test.each<[string, (file: string) => void]>([
    ["another content of the same length", (file) => writeFileSync(file, "2".repeat(600_000))],
    ["less", (file) => truncateSync(file, 300_000)],
    ["more", (file) => void writeSync(openSync(file, "a"), "x")],
    ["nothing", (file) => rmSync(file)],
    [
      "a link",
      (file) => {
        rmSync(file);
        symlinkSync("/etc/passwd", file);
      },
    ],
    [
      "a directory",
      (file) => {
        rmSync(file);
        mkdirSync(file);
      },
    ],
  ])("that has become %s before it is sent is not sent whole", async (_, change) => {
    const file = write("big", "1".repeat(600_000));
    const { blobs } = await Image.base().addLocalFile(file, "/big").resolve();
    const blob = blobs.find(({ digest }) => digest === digestOf("1".repeat(600_000)));
    expect((await read(blob)).length).toBe(600_000);
    change(file);
    let received = 0;
    const receive = async (): Promise<void> => {
      for await (const chunk of blob?.open() ?? []) received += chunk.length;
    };
    await expect(receive()).rejects.toThrow(/has changed since|there is no such file|it is a link/);
    expect(received).toBeLessThan(600_000);
  });

  test("is read as it is taken, and closed when nobody wants more", async () => {
    const file = write("random", randomBytes(2_000_000));
    const { blobs } = await Image.base().addLocalFile(file, "/x").resolve();
    const reader = blobs
      .find(({ sizeBytes }) => sizeBytes === 2_000_000)
      ?.open()
      .getReader();
    const { value } = (await reader?.read()) ?? {};
    expect(value?.length).toBeLessThanOrEqual(256 * 1024);
    await reader?.cancel();
  });
});
