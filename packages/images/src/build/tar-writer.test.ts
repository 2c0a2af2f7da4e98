import { execFileSync } from "node:child_process";
import { createHash } from "node:crypto";
import {
  createReadStream,
  lstatSync,
  mkdirSync,
  mkdtempSync,
  readFileSync,
  readlinkSync,
  rmSync,
  writeFileSync,
} from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import type { Digest, TreeEntry } from "@holdfast/recipe";
import { afterEach, beforeEach, describe, expect, it } from "vitest";
import { writeTar } from "./tar-writer.js";

describe("writeTar", () => {
  let directory: string;
  const blobPath = (digest: Digest | undefined) => join(directory, "blobs", digest?.slice(7) ?? "none");
  const open = (entry: TreeEntry): AsyncIterable<Uint8Array> => createReadStream(blobPath(entry.digest));

  beforeEach(() => {
    directory = mkdtempSync(join(tmpdir(), "holdfast-tar-writer-"));
    mkdirSync(join(directory, "blobs"));
  });
  afterEach(() => rmSync(directory, { recursive: true, force: true }));

  function file(path: string, content: string | Buffer, mode = 0o644): TreeEntry {
    const digest = `sha256:${createHash("sha256").update(content).digest("hex")}` as const;
    writeFileSync(blobPath(digest), content);
    return { path, type: "file", mode, sizeBytes: Buffer.byteLength(content), digest };
  }

  /** GNU tar unpacks it: what somebody else makes of it is what counts. */
  async function unpack(entries: readonly TreeEntry[]): Promise<string> {
    const into = join(directory, "out");
    mkdirSync(into);
    const chunks: Uint8Array[] = [];
    for await (const chunk of writeTar(entries, { open, modifiedAt: new Date(1_700_000_000_000) })) {
      chunks.push(Buffer.from(chunk));
    }
    execFileSync("tar", ["-xp", "-C", into, "-f", "-"], { input: Buffer.concat(chunks) });
    return into;
  }

  it("keeps content, modes, links and times", async () => {
    const big = Buffer.alloc(700_001, "x");
    const out = await unpack([
      { path: "dir", type: "directory", mode: 0o750 },
      file("dir/run.sh", "#!/bin/sh\n", 0o4755),
      file("dir/empty", "", 0o600),
      file("dir/big", big),
      { path: "link", type: "symlink", mode: 0o777, target: "dir/run.sh" },
    ]);
    expect(lstatSync(join(out, "dir")).mode & 0o7777).toBe(0o750);
    expect(lstatSync(join(out, "dir/run.sh")).mode & 0o7777).toBe(0o4755);
    expect(lstatSync(join(out, "dir/run.sh")).mtimeMs).toBe(1_700_000_000_000);
    expect(readFileSync(join(out, "dir/big")).equals(big)).toBe(true);
    expect(readFileSync(join(out, "dir/empty"), "utf8")).toBe("");
    expect(readlinkSync(join(out, "link"))).toBe("dir/run.sh");
  });

  it("keeps names that do not fit into a header or are not ASCII", async () => {
    const long = `${"d".repeat(120)}/${"f".repeat(200)}`;
    const odd = ["ünï\u{1F600}", "a b\n'\"$`\\c", "-rf", "x".repeat(99), "y".repeat(100), "z".repeat(101)];
    const target = `/${"t".repeat(300)}/ß`;
    const out = await unpack([
      { path: "d".repeat(120), type: "directory", mode: 0o755 },
      file(long, "long"),
      ...odd.map((path) => file(path, path)),
      { path: "far", type: "symlink", mode: 0o777, target },
    ]);
    expect(readFileSync(join(out, long), "utf8")).toBe("long");
    for (const path of odd) expect(readFileSync(join(out, path), "utf8")).toBe(path);
    expect(readlinkSync(join(out, "far"))).toBe(target);
  });

  it("refuses a blob that is not of the size that the manifest says", async () => {
    for (const sizeBytes of [3, 9]) {
      const entry = { ...file("f", "12345"), sizeBytes };
      const reading = async () => {
        for await (const chunk of writeTar([entry], { open, modifiedAt: new Date(0) })) void chunk;
      };
      await expect(reading()).rejects.toMatchObject({ code: "engine_fault" });
    }
  });
});
