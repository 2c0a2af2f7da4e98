import { execFile, spawnSync } from "node:child_process";
import { lstatSync, mkdirSync, mkdtempSync, readdirSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { promisify } from "node:util";
import fc from "fast-check";
import { beforeAll, expect, test } from "vitest";
import { arbitraryTree, describeTree, makeTree } from "./tar-tree.js";

const guest = fileURLToPath(new URL("../../guest", import.meta.url));
const shipped = join(guest, "build/holdfast-tar");
const sanitized = join(guest, "build/holdfast-tar-asan");
const BLOCK_BYTES = 512;
const TIMEOUT_MS = 120_000;
/** Longer than this is a hang: every archive here is small. */
const HANG_MS = 20_000;

beforeAll(async () => {
  await promisify(execFile)("make", ["-C", guest, "build/holdfast-tar", "build/holdfast-tar-asan"]);
}, TIMEOUT_MS);

function run(program: string, args: readonly string[], input?: Uint8Array): Buffer {
  const done = spawnSync(program, args, { input, maxBuffer: 1 << 28, timeout: HANG_MS });
  if (done.status !== 0) throw new Error(`${program} ${args.join(" ")}: ${done.status} ${String(done.stderr)}`);
  return done.stdout;
}

function inDirectories<T>(names: readonly string[], use: (...directories: string[]) => T): T {
  const outer = mkdtempSync(join(tmpdir(), "holdfast-tar-property-"));
  try {
    const directories = names.map((name) => join(outer, name));
    for (const directory of directories) mkdirSync(directory);
    return use(...directories);
  } finally {
    rmSync(outer, { recursive: true, force: true });
  }
}

function seenIn(directory: string): string[] {
  return describeTree(Buffer.from(directory));
}

test(
  "packing and unpacking is the identity, gives the same bytes again, and agrees with GNU tar both ways",
  () => {
    fc.assert(
      fc.property(arbitraryTree, (tree) => {
        inDirectories(["from", "ours", "gnu", "reverse"], (from = "", ours = "", gnu = "", reverse = "") => {
          makeTree(Buffer.from(from), tree);
          const before = seenIn(from);
          const packed = run(shipped, ["pack", "--from", from]);
          run(sanitized, ["unpack", "--into", ours], packed);
          expect(seenIn(ours)).toEqual(before);
          expect(run(sanitized, ["pack", "--from", ours]).equals(packed)).toBe(true);
          const measured = JSON.parse(String(run(shipped, ["measure", "--from", from]))) as { bytes: number };
          expect(measured.bytes).toBe(packed.length);
          run("tar", ["-xpPf", "-", "-C", gnu, "--numeric-owner"], packed);
          expect(seenIn(gnu)).toEqual(before);
          const theirs = run("tar", ["-cPf", "-", "-C", from, "--numeric-owner", "--format=gnu", "."]);
          run(shipped, ["unpack", "--into", reverse, "--chroot"], theirs);
          expect(seenIn(reverse)).toEqual(before);
        });
      }),
      { numRuns: 60 },
    );
  },
  4 * TIMEOUT_MS,
);

/** A change of one block, which keeps the checksum right, so that it is looked at. */
interface Edit {
  readonly block: number;
  readonly field: keyof typeof FIELDS;
  readonly value: Buffer;
  readonly repair: boolean;
}

const FIELDS = {
  name: [0, 100],
  mode: [100, 8],
  uid: [108, 8],
  size: [124, 12],
  mtime: [136, 12],
  type: [156, 1],
  link: [157, 100],
  magic: [257, 8],
  prefix: [345, 155],
  anywhere: [0, 512],
} as const;

const HOSTILE_VALUES = [
  "../../secret",
  "/",
  "/../secret",
  "..",
  "",
  "link/secret",
  "0",
  "1",
  "2",
  "5",
  "x",
  "g",
  "L",
  "K",
  "3",
  "6",
];
const HOSTILE_NUMBERS = [
  "00000001000\0",
  "77777777777\0",
  "\x80\0\0\0\0\0\0\0\0\0\x10\0",
  "\xff\xff\xff\xff",
  "99 path=../secret\n",
];

const edit: fc.Arbitrary<Edit> = fc.record({
  block: fc.nat({ max: 30 }),
  field: fc.constantFrom(...(Object.keys(FIELDS) as (keyof typeof FIELDS)[])),
  value: fc.oneof(
    fc.constantFrom(...HOSTILE_VALUES, ...HOSTILE_NUMBERS).map((text) => Buffer.from(`${text}\0`, "latin1")),
    fc.uint8Array({ minLength: 1, maxLength: 20 }).map((bytes) => Buffer.from(bytes)),
  ),
  repair: fc.boolean(),
});

function applyEdit(archive: Buffer, { block, field, value, repair }: Edit): void {
  const start = (block % (archive.length / BLOCK_BYTES)) * BLOCK_BYTES;
  const [offset, length] = FIELDS[field];
  value.subarray(0, length).copy(archive, start + offset);
  if (!repair) return;
  const header = archive.subarray(start, start + BLOCK_BYTES);
  header.fill(" ", 148, 156);
  const sum = header.reduce((total, byte) => total + byte, 0);
  header.write(`${sum.toString(8).padStart(6, "0")}\0`, 148, "latin1");
}

/** Pieces of an archive in another order, some twice, some not at all. */
function rearrange(archive: Buffer, order: readonly number[]): Buffer {
  const blocks = archive.length / BLOCK_BYTES;
  const pieces = order.map((at) => archive.subarray((at % blocks) * BLOCK_BYTES, ((at % blocks) + 1) * BLOCK_BYTES));
  return Buffer.concat([archive.subarray(0, -2 * BLOCK_BYTES), ...pieces, archive.subarray(-2 * BLOCK_BYTES)]);
}

const OPTIONS = [[], ["--deletions", "overlay"], ["--chroot"], ["--select", "*"], ["--lenient-end"], ["--merge"]];

test(
  "no change of an archive writes outside of the directory, hangs or crashes",
  () => {
    const outcomes = new Set<string>();
    fc.assert(
      fc.property(
        arbitraryTree,
        fc.array(edit, { maxLength: 6 }),
        fc.array(fc.nat(), { maxLength: 12 }),
        fc.constantFrom(...OPTIONS),
        fc.option(fc.double({ min: 0, max: 1, noNaN: true })),
        (tree, edits, order, options, cut) => {
          inDirectories(["outer", "from"], (outer = "", from = "") => {
            const into = join(outer, "into");
            mkdirSync(into);
            writeFileSync(join(outer, "secret"), "untouched", { mode: 0o640 });
            makeTree(Buffer.from(from), tree);
            const archive = rearrange(run(shipped, ["pack", "--from", from]), order);
            for (const one of edits) applyEdit(archive, one);
            const input = archive.subarray(0, cut === null ? archive.length : Math.floor(cut * archive.length));
            const env = { ...process.env, ASAN_OPTIONS: "detect_leaks=0" };
            const args = ["unpack", "--into", into, "--max-bytes", "10000000", ...options];
            const done = spawnSync(sanitized, args, { input, env, timeout: HANG_MS });
            // It may refuse before it has read everything.
            if (done.error !== undefined && !/EPIPE/.test(done.error.message)) throw done.error;
            const said = String(done.status === 0 ? done.stdout : done.stderr);
            expect([0, 1], said).toContain(done.status);
            outcomes.add((JSON.parse(said) as { code?: string }).code ?? "unpacked");
            expect(readdirSync(outer).sort()).toEqual(["into", "secret"]);
            expect(readFileSync(join(outer, "secret"), "utf8")).toBe("untouched");
            const { mode, nlink } = lstatSync(join(outer, "secret"));
            expect([mode & 0o7777, nlink]).toEqual([0o640, 1]);
          });
        },
      ),
      { numRuns: 400 },
    );
    // The changes are of a kind that is looked at, not all stopped by the first checksum.
    expect([...outcomes]).toEqual(expect.arrayContaining(["unpacked", "corrupt", "hostile", "truncated"]));
  },
  4 * TIMEOUT_MS,
);
