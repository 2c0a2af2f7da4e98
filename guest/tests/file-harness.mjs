// Drives the file worker over real frames. Every test runs against two builds: the static musl one that ships, and one
// with the address and undefined behaviour sanitizers, whose every complaint fails the test.
import { execFileSync, spawn } from "node:child_process";
import { mkdirSync, mkdtempSync, readdirSync, readFileSync, rmdirSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { dirname, join } from "node:path";
import { fileURLToPath } from "node:url";

const here = dirname(fileURLToPath(import.meta.url));
const source = join(here, "../src");

// The numbers are read from wire.h, so that there is no third copy of them.
export const wire = {};
for (const [, block] of readFileSync(join(source, "wire.h"), "utf8").matchAll(/enum \{([^}]*)\}/g))
  for (const [, name, value] of block.matchAll(/(\w+) = (\w+)/g)) wire[name] = Number(value);

const STREAM = 77;
const TEXT = ["NAME", "PATH", "OWNER", "GROUP", "LINK_TARGET", "LINK_RESOLVED", "XATTR", "MESSAGE", "ERRNO_NAME"];
const BY_TAG = Object.fromEntries(
  Object.entries(wire)
    .filter(([n]) => n.startsWith("FIELD_"))
    .map(([n, v]) => [v, n.slice(6)]),
);

export const directory = mkdtempSync(join(tmpdir(), "holdfast-file-"));
process.on("exit", () => rmSync(directory, { recursive: true, force: true }));

const flags = ["-std=c11", "-D_GNU_SOURCE", "-Wall", "-Wextra", "-Werror", "-Wshadow", "-g"];
const files = [...readdirSync(source).filter((f) => /^file-.*\.c$/.test(f)), "frame.c", "users.c", "read-text.c"].map(
  (f) => join(source, f),
);
files.push(join(here, "file-worker-main.c"));

function build(name, compiler, extra) {
  const out = join(directory, name);
  execFileSync(compiler, [...flags, ...extra, "-o", out, ...files], { stdio: "inherit" });
  return out;
}

export const variants = [
  { name: "musl", binary: build("worker-musl", "musl-gcc", ["-static", "-O2"]) },
  {
    name: "sanitized",
    binary: build("worker-asan", "gcc", ["-O1", "-fsanitize=address,undefined", "-fno-sanitize-recover=all"]),
  },
];

function encode(fields) {
  const parts = [];
  for (const [key, value] of Object.entries(fields))
    for (const one of Array.isArray(value) ? value : [value]) {
      if (one === undefined) continue;
      let bytes = one;
      if (typeof one === "number" || typeof one === "bigint") {
        bytes = Buffer.alloc(8);
        bytes.writeBigUInt64LE(BigInt(one));
      } else if (typeof one === "string") bytes = Buffer.from(one);
      const head = Buffer.alloc(5);
      head[0] = wire[`FIELD_${key}`];
      head.writeUInt32LE(bytes.length, 1);
      parts.push(head, bytes);
    }
  return Buffer.concat(parts);
}

export function frame(type, payload, channel = 0, stream = STREAM) {
  const head = Buffer.alloc(12);
  head.writeUInt32LE(payload.length, 0);
  head[4] = type;
  head[5] = channel;
  head.writeUInt32LE(stream, 8);
  return Buffer.concat([head, payload]);
}

function decode(payload) {
  const fields = { raw: {} };
  for (let at = 0; at < payload.length; ) {
    const name = BY_TAG[payload[at]];
    const length = payload.readUInt32LE(at + 1);
    const bytes = payload.subarray(at + 5, at + 5 + length);
    at += 5 + length;
    if (at > payload.length) throw new Error("a field runs past its frame");
    const value = TEXT.includes(name)
      ? bytes.toString()
      : name === "MTIME_NS"
        ? bytes.readBigUInt64LE()
        : Number(bytes.readBigUInt64LE());
    if (name === "XATTR") fields.XATTR = [...(fields.XATTR ?? []), value];
    else fields[name] = value;
    fields.raw[name] = bytes;
  }
  return fields;
}

/** One request. `next(test)` gives the next frame; `finish()` everything until the worker ends. */
export class Worker {
  frames = [];
  waiting = [];
  buffered = Buffer.alloc(0);
  stderr = "";

  constructor(variant, request, fields, { user = "root", chroot, payload, paused } = {}) {
    this.child = spawn(variant.binary, [user, ...(chroot ? [chroot] : [])], {
      stdio: ["ignore", "ignore", "pipe", "pipe"],
      env: { ASAN_OPTIONS: "detect_leaks=0:abort_on_error=0:exitcode=99" },
    });
    this.socket = this.child.stdio[3];
    this.child.stderr.on("data", (d) => (this.stderr += d));
    this.socket.on("error", () => {});
    this.ended = new Promise((resolve) =>
      this.child.on("close", (code, signal) => {
        this.code = code;
        this.signal = signal;
        this.wake();
        resolve();
      }),
    );
    if (!paused) this.read();
    this.socket.write(frame(wire[`FRAME_${request}`], payload ?? encode(fields)));
  }

  read() {
    this.socket.on("data", (bytes) => {
      this.buffered = this.buffered.length ? Buffer.concat([this.buffered, bytes]) : bytes;
      let at = 0;
      while (this.buffered.length - at >= 12) {
        const length = this.buffered.readUInt32LE(at);
        if (this.buffered.length - at < 12 + length) break;
        const type = this.buffered[at + 4];
        const payload = this.buffered.subarray(at + 12, at + 12 + length);
        if (this.buffered.readUInt32LE(at + 8) !== STREAM) throw new Error("a frame of another stream");
        if (type === wire.FRAME_DATA && length > 65536) throw new Error("DATA is too long");
        this.frames.push({
          type,
          channel: this.buffered[at + 5],
          payload,
          ...(type === wire.FRAME_DATA || type === wire.FRAME_EOF ? {} : decode(payload)),
        });
        at += 12 + length;
      }
      this.buffered = this.buffered.subarray(at);
      this.wake();
    });
  }

  wake() {
    for (const f of this.waiting.splice(0)) f();
  }

  send(bytes) {
    for (let at = 0; at < bytes.length; at += 60000)
      this.socket.write(frame(wire.FRAME_DATA, bytes.subarray(at, at + 60000)));
    return this;
  }

  eof() {
    this.socket.write(frame(wire.FRAME_EOF, Buffer.alloc(0)));
    return this;
  }

  async until(test, ms = 20000) {
    const deadline = Date.now() + ms;
    for (;;) {
      const found = this.frames.find(test);
      if (found) return found;
      if (this.code !== undefined || this.signal)
        throw new Error(`the worker ended: ${this.code} ${this.signal} ${this.stderr}`);
      const left = deadline - Date.now();
      if (left <= 0)
        throw new Error(
          `not met; frames: ${JSON.stringify(this.frames.slice(-20).map(({ EVENT, NAME, MESSAGE, type }) => ({ type, EVENT, NAME, MESSAGE })))}`,
        );
      let timer;
      await new Promise((resolve) => {
        this.waiting.push(resolve);
        timer = setTimeout(resolve, left);
      });
      clearTimeout(timer);
    }
  }

  async finish() {
    await this.ended;
    if (this.code !== 0 || this.stderr)
      throw new Error(`worker ended with ${this.code} ${this.signal}: ${this.stderr}`);
    const ends = this.frames.filter((f) => f.type === wire.FRAME_DONE || f.type === wire.FRAME_FAIL);
    if (ends.length !== 1 || this.frames.at(-1) !== ends[0] || this.buffered.length)
      throw new Error(`not exactly one end: ${ends.length}`);
    return {
      frames: this.frames,
      notes: this.frames.filter((f) => f.type === wire.FRAME_NOTE),
      data: Buffer.concat(this.frames.filter((f) => f.type === wire.FRAME_DATA).map((f) => f.payload)),
      done: ends[0].type === wire.FRAME_DONE ? ends[0] : undefined,
      fail: ends[0].type === wire.FRAME_FAIL ? ends[0] : undefined,
    };
  }

  /** Hangs up and waits for the worker to go by itself. */
  async hangUp() {
    this.socket.destroy();
    const timer = setTimeout(() => this.child.kill("SIGKILL"), 10000);
    await this.ended;
    clearTimeout(timer);
    if (this.code !== 0 || this.stderr)
      throw new Error(`worker ended with ${this.code} ${this.signal}: ${this.stderr}`);
  }
}

export async function request(variant, type, fields, options = {}) {
  const worker = new Worker(variant, type, fields, options);
  if (type === "WRITE") {
    worker.send(Buffer.from(options.data ?? ""));
    worker.eof();
  }
  return worker.finish();
}

/** A new directory in memory for `work`: to make tens of thousands of files on a disk takes longer than all other tests. */
export async function inMemory(path, work) {
  mkdirSync(path);
  execFileSync("mount", ["-t", "tmpfs", "tmpfs", path]);
  try {
    return await work();
  } finally {
    execFileSync("umount", ["--lazy", path]);
    rmdirSync(path);
  }
}
