import { execFileSync } from "node:child_process";
import {
  lstatSync,
  mkdirSync,
  mkdtempSync,
  readFileSync,
  readlinkSync,
  rmSync,
  symlinkSync,
  truncateSync,
  writeFileSync,
} from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterEach, beforeEach, describe, expect, test } from "vitest";
import { receiveTree } from "./receive-tree.js";

let scratch: string;
let target: string;
beforeEach(() => {
  scratch = mkdtempSync(join(tmpdir(), "holdfast-cp-"));
  target = join(scratch, "target");
});
afterEach(() => rmSync(scratch, { recursive: true, force: true }));

interface Header {
  readonly name: string;
  readonly type?: string;
  readonly content?: string;
  readonly linkName?: string;
  readonly mode?: number;
  readonly size?: string;
}

function entry({ name, type = "0", content = "", linkName = "", mode = 0o644, size }: Header): Buffer {
  const block = Buffer.alloc(512);
  block.write(name, 0, 100, "latin1");
  block.write(mode.toString(8).padStart(7, "0"), 100);
  block.write(size ?? Buffer.byteLength(content).toString(8).padStart(11, "0"), 124);
  block.write("00000000000", 136);
  block.write(type, 156);
  block.write(linkName, 157, 100, "latin1");
  block.write("ustar\x0000", 257);
  block.write(" ".repeat(8), 148);
  block.write(
    block
      .reduce((sum, byte) => sum + byte, 0)
      .toString(8)
      .padStart(6, "0")
      .concat("\0 "),
    148,
  );
  const data = Buffer.alloc(Math.ceil(Buffer.byteLength(content) / 512) * 512);
  data.write(content);
  return Buffer.concat([block, data]);
}

const END = Buffer.alloc(1024);

/** In chunks that respect no border of the archive. */
async function* chunksOf(archive: Buffer, size = 700): AsyncGenerator<Uint8Array> {
  for (let start = 0; start < archive.length; start += size) yield archive.subarray(start, start + size);
}

const skipped: string[] = [];
async function receive(...parts: readonly Buffer[]): Promise<void> {
  skipped.length = 0;
  await receiveTree(chunksOf(Buffer.concat(parts)), target, (name, why) => skipped.push(`${name}: ${why}`));
}

test("what tar(1) packs comes out the same", async () => {
  const source = join(scratch, "source");
  const deep = join(source, `${"long-directory-name/".repeat(12)}end`);
  mkdirSync(deep, { recursive: true });
  writeFileSync(join(deep, "file"), "deep", { mode: 0o755 });
  writeFileSync(join(source, `${"n".repeat(150)} ü`), "long name");
  writeFileSync(Buffer.concat([Buffer.from(`${source}/`), Buffer.from([0xff, 0xfe])]), "not UTF-8");
  symlinkSync("end/file", join(deep, "../link"));
  writeFileSync(join(source, "big"), "x");
  truncateSync(join(source, "big"), 3_000_001);
  execFileSync("ln", [join(source, "big"), join(source, "also-big")]);
  for (const format of ["gnu", "pax"]) {
    const archive = execFileSync("tar", [`--format=${format}`, "-cf", "-", "-C", source, "."], { maxBuffer: 1 << 26 });
    rmSync(target, { recursive: true, force: true });
    await receive(archive);
    expect(skipped).toEqual([]);
    execFileSync("diff", ["-r", "--no-dereference", source, target]);
    expect(lstatSync(join(target, `${"long-directory-name/".repeat(12)}end/file`)).mode & 0o777).toBe(0o755);
  }
});

describe("a hostile archive", () => {
  test.each(["../escape", "/tmp/escape-of-holdfast", "a/../../escape"])("cannot name %s", async (name) => {
    await expect(receive(entry({ name, content: "x" }), END)).rejects.toThrow("would leave the target directory");
    expect(lstatSync(join(scratch, "escape"), { throwIfNoEntry: false })).toBeUndefined();
  });

  test("cannot write through a link it has just made", async () => {
    mkdirSync(join(scratch, "outside"));
    await receive(entry({ name: "a", type: "2", linkName: "../outside" }), END);
    expect(skipped).toEqual(["a: it is a link to ../outside, outside the copy"]);
    mkdirSync(join(scratch, "target/real"));
    await expect(
      receive(entry({ name: "link", type: "2", linkName: "real" }), entry({ name: "link/file", content: "x" }), END),
    ).rejects.toThrow("is a link or a file here");
    expect(readlinkSync(join(target, "link"))).toBe("real");
  });

  test("cannot write through a link that was there before", async () => {
    mkdirSync(target);
    mkdirSync(join(scratch, "outside"));
    symlinkSync(join(scratch, "outside"), join(target, "there"));
    writeFileSync(join(scratch, "outside/kept"), "kept");
    symlinkSync(join(scratch, "outside/kept"), join(target, "file"));
    await expect(receive(entry({ name: "there/x", content: "x" }), END)).rejects.toThrow("is a link or a file here");
    await receive(entry({ name: "file", content: "new" }), END);
    expect(readFileSync(join(scratch, "outside/kept"), "utf8")).toBe("kept");
    expect(readFileSync(join(target, "file"), "utf8")).toBe("new");
  });

  test("cannot give a link a place where it leads out", async () => {
    await expect(
      receive(
        entry({ name: "d/e/l", type: "2", linkName: "../../x" }),
        entry({ name: "l", type: "1", linkName: "d/e/l" }),
        END,
      ),
    ).rejects.toThrow("cannot write d/e/l");
  });

  test("cannot read files outside by a hard link", async () => {
    await expect(receive(entry({ name: "l", type: "1", linkName: "/etc/passwd" }), END)).rejects.toThrow(
      "would leave the target directory",
    );
  });

  test("brings no set-id program", async () => {
    await receive(entry({ name: "su", mode: 0o6755, content: "x" }), END);
    expect(lstatSync(join(target, "su")).mode & 0o7777).toBe(0o755);
  });

  test("brings no device and no pipe", async () => {
    await receive(entry({ name: "dev", type: "3" }), entry({ name: "pipe", type: "6" }), END);
    expect(skipped).toHaveLength(2);
  });

  test.each([
    ["a wrong checksum", Buffer.from(entry({ name: "a" })).fill(1, 0, 3), "wrong checksum"],
    ["a size that is no number", entry({ name: "a", size: "99999999999" }), "a size that is no number"],
    ["no end", entry({ name: "a" }), "without an end mark"],
    ["half a file", entry({ name: "a", size: "00000010000" }), "ends in the middle"],
    ["an endless header", entry({ name: "a", type: "L", size: "00777777777" }), "a header without end"],
    ["records of wrong length", entry({ name: "a", type: "x", content: "99 path=x\n" }), "a record of wrong length"],
  ])("with %s is refused", async (_what, archive, message) => {
    await expect(receive(archive)).rejects.toThrow(message);
  });
});
