import { execFileSync } from "node:child_process";
import { mkdirSync, mkdtempSync, rmSync, symlinkSync, writeFileSync } from "node:fs";
import { open } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import fc from "fast-check";
import { afterEach, beforeEach, describe, expect, test } from "vitest";
import { tarHeader, tarPadding } from "./tar-header.js";
import { findFile, indexTar, type TarIndex } from "./tar-index.js";

let directory: string;
beforeEach(() => {
  directory = mkdtempSync(join(tmpdir(), "holdfast-tar-index-"));
});
afterEach(() => rmSync(directory, { recursive: true, force: true }));

async function indexOf(content: Uint8Array): Promise<TarIndex> {
  const path = join(directory, "archive.tar");
  writeFileSync(path, content);
  const file = await open(path, "r");
  try {
    return await indexTar(file);
  } finally {
    await file.close();
  }
}

const END = Buffer.alloc(1024);
const entry = (name: string, content: string): Buffer =>
  Buffer.concat([tarHeader({ name, sizeBytes: content.length }), Buffer.from(content), tarPadding(content.length)]);

/** A header of any type, with its checksum made right again. */
function typed(type: string, fields: { name: string; link?: string; sizeBytes?: number }): Buffer {
  const header = tarHeader({ name: fields.name, sizeBytes: fields.sizeBytes ?? 0 });
  header.write(type, 156, "latin1");
  header.write(fields.link ?? "", 157);
  header.write("        ", 148);
  const sum = header.reduce((total, byte) => total + byte, 0);
  header.write(`${sum.toString(8).padStart(6, "0")}\0 `, 148, "latin1");
  return header;
}

function pax(text: string): Buffer {
  return Buffer.concat([
    typed("x", { name: "PaxHeader", sizeBytes: text.length }),
    Buffer.from(text),
    tarPadding(text.length),
  ]);
}

describe("an archive's index", () => {
  test("finds what tar has written, in each of its formats", async () => {
    const folder = "d".repeat(90);
    const long = `${folder}/${"f".repeat(95)}`;
    mkdirSync(join(directory, "tree", folder), { recursive: true });
    writeFileSync(join(directory, "tree", long), "long");
    writeFileSync(join(directory, "tree/file"), "content");
    symlinkSync("..//./file", join(directory, "tree", folder, "link"));
    for (const format of ["gnu", "pax", "ustar"]) {
      const tar = execFileSync("tar", ["-C", join(directory, "tree"), `--format=${format}`, "-c", "."]);
      const index = await indexOf(tar);
      const contentOf = (name: string): string => {
        const { offset = 0, sizeBytes = 0 } = findFile(index, name) ?? {};
        return tar.toString("utf8", offset, offset + sizeBytes);
      };
      expect([contentOf("file"), contentOf(long), contentOf(`${folder}/link`)]).toEqual(["content", "long", "content"]);
    }
  });

  test("takes the last of two entries of a name, and names without their dots", async () => {
    const index = await indexOf(Buffer.concat([entry("./a", "old"), entry("b/../a", "newer"), END]));
    expect([...index.keys()]).toEqual(["a"]);
    expect(findFile(index, "a")?.sizeBytes).toBe(5);
  });

  test("follows links inside the archive, and not for ever", async () => {
    const index = await indexOf(
      Buffer.concat([
        entry("one/layer.tar", "x"),
        typed("2", { name: "two/layer.tar", link: "../one/layer.tar" }),
        typed("1", { name: "three", link: "two/layer.tar" }),
        typed("2", { name: "round", link: "round" }),
        typed("2", { name: "nowhere", link: "missing" }),
        END,
      ]),
    );
    expect(findFile(index, "three")?.sizeBytes).toBe(1);
    expect(findFile(index, "nowhere")).toBeUndefined();
    expect(() => findFile(index, "round")).toThrow("leads through more");
  });

  test("reads sizes of more than 8 GiB, in either way of writing them", async () => {
    await expect(indexOf(tarHeader({ name: "huge", sizeBytes: 9 * 2 ** 30 }))).rejects.toThrow("cut off");
    await expect(
      indexOf(Buffer.concat([pax("18 size=9663676416\n".replace("18", "19")), entry("a", "")])),
    ).rejects.toThrow("cut off");
  });

  test.each([
    ["a name that leads out", entry("../a", "")],
    ["a link that leads out", typed("2", { name: "a", link: "../../etc/passwd" })],
    ["a device", typed("3", { name: "a" })],
    ["a sparse file", Buffer.concat([pax("22 GNU.sparse.major=1\n"), entry("a", "")])],
    ["an extended header without sense", Buffer.concat([pax("99 path=x\n"), entry("a", "")])],
    ["an extended header that is too long", typed("x", { name: "a", sizeBytes: 70_000 })],
    ["a name that is too long", Buffer.concat([pax(`5007 path=${"x".repeat(4996)}\n`), entry("a", "")])],
    ["a checksum that is wrong", Buffer.from(entry("a", "").map((byte, at) => (at === 0 ? byte + 1 : byte)))],
    ["half a header", entry("a", "").subarray(0, 100)],
    ["half a file", entry("a", "x".repeat(600)).subarray(0, 600)],
  ])("refuses %s", async (_what, content) => {
    await expect(indexOf(Buffer.concat([content]))).rejects.toMatchObject({ code: "image_invalid" });
  });

  test("of any bytes is made or refused, never anything else", async () => {
    const blocks = fc.array(
      fc.oneof(
        fc.uint8Array({ minLength: 512, maxLength: 512 }),
        fc
          .tuple(fc.constantFrom("0", "1", "2", "5", "x", "g", "L", "K", "S"), fc.nat(2000))
          .map(([type, sizeBytes]) => typed(type, { name: "n", link: "l", sizeBytes })),
        fc.string({ maxLength: 512 }).map((text) => Buffer.alloc(512, text === "" ? "\0" : text)),
      ),
      { maxLength: 12 },
    );
    await fc.assert(
      fc.asyncProperty(blocks, async (parts) => {
        await indexOf(Buffer.concat(parts)).catch((error: unknown) => {
          expect(error).toMatchObject({ code: "image_invalid" });
        });
      }),
    );
  });
});
