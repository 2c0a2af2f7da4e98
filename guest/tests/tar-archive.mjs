// Makes archives byte by byte, so that they can be wrong in every way, and runs holdfast-tar on them.
import { spawn, spawnSync } from "node:child_process";
import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { dirname, join } from "node:path";
import { fileURLToPath } from "node:url";

const build = join(dirname(fileURLToPath(import.meta.url)), "../build");
const sanitized = (process.env.GUEST_BINARY ?? "").endsWith("-asan");
/** The guest's test runner chooses the build by this variable; the archiver's variants go along with the guest's. */
export const program = join(build, sanitized ? "holdfast-tar-asan" : "holdfast-tar");

const BLOCK = 512;
export const END = Buffer.alloc(2 * BLOCK);

/** A directory that is removed when the test is over. */
export function useDirectory(t) {
  const directory = mkdtempSync(join(tmpdir(), "holdfast-tar-"));
  t.after(() => rmSync(directory, { recursive: true, force: true }));
  return directory;
}

export function padded(bytes) {
  return Buffer.concat([bytes, Buffer.alloc((BLOCK - (bytes.length % BLOCK)) % BLOCK)]);
}

function octal(value, length) {
  return `${value.toString(8).padStart(length - 1, "0")}\0`;
}

/** Big-endian two's complement with the highest bit set. */
export function base256(value, length) {
  const bytes = Buffer.alloc(length);
  let rest = BigInt(value);
  for (let at = length - 1; at >= 0; at--, rest >>= 8n) bytes[at] = Number(rest & 255n);
  bytes[0] |= 0x80;
  return bytes;
}

/** One header block; `raw` puts bytes anywhere, before the checksum is made. */
export function header(fields) {
  const { name = "", mode = 0o644, uid = 0, gid = 0, size = 0, mtime = 0, type = "0", link = "", prefix = "" } = fields;
  const block = Buffer.alloc(BLOCK);
  const put = (value, at, length) =>
    typeof value === "number" ? block.write(octal(value, length), at, "latin1") : Buffer.from(value).copy(block, at);
  put(name, 0, 100);
  put(mode, 100, 8);
  put(uid, 108, 8);
  put(gid, 116, 8);
  put(size, 124, 12);
  put(mtime, 136, 12);
  block.write(type, 156, "latin1");
  put(link, 157, 100);
  put(fields.magic ?? "ustar\x0000", 257, 8);
  put(prefix, 345, 155);
  for (const [at, bytes] of Object.entries(fields.raw ?? {})) Buffer.from(bytes).copy(block, Number(at));
  block.fill(" ", 148, 156);
  const sum = block.reduce((total, byte) => total + byte, 0) + (fields.checksumOff ?? 0);
  block.write(`${sum.toString(8).padStart(6, "0")}\0 `, 148, "latin1");
  return block;
}

/** Headers and content of one entry. */
export function entry(fields) {
  const data = Buffer.from(fields.data ?? "");
  return Buffer.concat([header({ size: data.length, ...fields }), padded(data)]);
}

export const file = (name, data = "", more = {}) => entry({ name, data, ...more });
export const dir = (name, more = {}) => entry({ name, type: "5", mode: 0o755, ...more });
export const symlink = (name, link, more = {}) => entry({ name, type: "2", mode: 0o777, link, ...more });
export const hardlink = (name, link, more = {}) => entry({ name, type: "1", link, ...more });

export function paxRecord(key, value) {
  const rest = Buffer.concat([Buffer.from(` ${key}=`), Buffer.from(value), Buffer.from("\n")]);
  let length = rest.length + 1;
  while (String(length).length + rest.length !== length) length = String(length).length + rest.length;
  return Buffer.concat([Buffer.from(String(length)), rest]);
}

export function pax(records, type = "x") {
  const data = Buffer.concat(Object.entries(records).map(([key, value]) => paxRecord(key, value)));
  return entry({ name: "PaxHeaders/x", type, data });
}

export const archive = (...parts) => Buffer.concat([...parts, END]);

/** Runs to the end; `json` is what it said, on stdout if it went well and on stderr if not. */
export function run(args, { input, ...options } = {}) {
  // The search for leaks needs /proc, which is out of sight after a chroot.
  const env = args.includes("--chroot") ? { ...process.env, ASAN_OPTIONS: "detect_leaks=0" } : process.env;
  const done = spawnSync(program, args, { input, env, maxBuffer: 1 << 28, timeout: 120_000, ...options });
  // It may refuse before it has read everything.
  if (done.error && done.error.code !== "EPIPE") throw done.error;
  const result = { status: done.status, stdout: done.stdout, stderr: String(done.stderr) };
  // A sanitizer's complaint is neither.
  if (![0, 1].includes(done.status)) throw new Error(`exit ${done.status} ${done.signal}: ${result.stderr}`);
  const lines = (done.status === 0 && args[0] !== "pack" ? String(done.stdout) : result.stderr).trim().split("\n");
  if (lines.length !== 1) throw new Error(`not one line: ${result.stderr}`);
  return { ...result, json: JSON.parse(lines[0]) };
}

export function unpack(into, input, ...args) {
  return run(["unpack", "--into", into, ...args], { input });
}

export function pack(from, ...args) {
  return run(["pack", "--from", from, ...args]);
}

/** For input that is too large to hold: `write` is given a function that resolves when there is room again. */
export async function unpackStream(into, args, write) {
  const child = spawn(program, ["unpack", "--into", into, ...args], { stdio: ["pipe", "pipe", "pipe"] });
  const text = { stdout: "", stderr: "" };
  child.stdout.on("data", (data) => (text.stdout += data));
  child.stderr.on("data", (data) => (text.stderr += data));
  child.stdin.on("error", () => {}); // it may have refused and gone
  const closed = new Promise((resolve) => child.on("close", resolve));
  await write((bytes) => new Promise((resolve) => child.stdin.write(bytes, resolve)));
  child.stdin.end();
  const status = await closed;
  return { status, json: JSON.parse(status === 0 ? text.stdout : text.stderr) };
}
