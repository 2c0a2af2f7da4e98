// A small host: starts a guest with --outside and speaks the protocol to it (docs/guest-protocol.md).
import { spawn } from "node:child_process";
import { mkdtempSync, readdirSync, readFileSync, renameSync, rmSync } from "node:fs";
import net from "node:net";
import os from "node:os";
import path from "node:path";
import { fileURLToPath } from "node:url";

const here = path.dirname(fileURLToPath(import.meta.url));
export const binary = path.resolve(here, "..", process.env.GUEST_BINARY ?? "build/holdfast-guest");

// The numbers come from the C header: there is one place for them.
function readNumbers(prefix) {
  const text = readFileSync(path.join(here, "../src/wire.h"), "utf8");
  const numbers = {};
  for (const [, name, value] of text.matchAll(new RegExp(`\\b${prefix}_(\\w+) = (\\w+),`, "g")))
    numbers[name] = Number(value);
  return numbers;
}
export const FRAME = readNumbers("FRAME");
export const FIELD = readNumbers("FIELD");
export const NOTE = readNumbers("NOTE");
const names = Object.fromEntries(Object.entries(FIELD).map(([name, tag]) => [tag, name]));
const texts = new Set([
  "ERRNO_NAME",
  "MESSAGE",
  "USER",
  "PATH",
  "ARG",
  "ENV",
  "CWD",
  "TAG",
  "NAME",
  "OWNER",
  "GROUP",
  "LINK_TARGET",
  "LINK_RESOLVED",
  "XATTR",
  "TO",
]);

export function fields(values) {
  const parts = [];
  for (const [name, value] of Object.entries(values)) {
    for (const one of Array.isArray(value) ? value : [value]) {
      let bytes;
      if (typeof one === "string") bytes = Buffer.from(one);
      else {
        bytes = Buffer.alloc(8);
        bytes.writeBigUInt64LE(BigInt(one));
      }
      const head = Buffer.alloc(5);
      head[0] = FIELD[name];
      head.writeUInt32LE(bytes.length, 1);
      parts.push(head, bytes);
    }
  }
  return Buffer.concat(parts);
}

export function parseFields(payload) {
  const out = {};
  for (let at = 0; at < payload.length; ) {
    const name = names[payload[at]];
    const length = payload.readUInt32LE(at + 1);
    const value = payload.subarray(at + 5, at + 5 + length);
    const parsed = texts.has(name) ? value.toString() : Number(value.readBigUInt64LE());
    if (name === "ARG" || name === "XATTR") out[name] = [...(out[name] ?? []), parsed];
    else out[name] = parsed;
    at += 5 + length;
  }
  return out;
}

export function frame(type, channel, stream, payload = Buffer.alloc(0)) {
  const head = Buffer.alloc(12);
  head.writeUInt32LE(payload.length, 0);
  head[4] = type;
  head[5] = channel;
  head.writeUInt32LE(stream, 8);
  return Buffer.concat([head, payload]);
}

const u32 = (value) => {
  const bytes = Buffer.alloc(4);
  bytes.writeUInt32LE(value);
  return bytes;
};

/** One stream: collects what comes and can wait for it. `autoWindow` gives credit back as data comes. */
export class Stream {
  notes = [];
  data = { 1: [], 2: [] };
  bytes = { 1: 0, 2: 0 };
  eof = { 1: false, 2: false };
  gaps = [];
  credit = 0; // for channel 0
  end = undefined; // { done } or { fail }
  #waiters = [];
  constructor(connection, id, options) {
    this.connection = connection;
    this.id = id;
    this.keep = options.keep ?? true;
    this.autoWindow = options.autoWindow ?? true;
    this.onData = options.onData;
  }
  receive(type, channel, payload) {
    if (type === FRAME.DATA) {
      this.bytes[channel] += payload.length;
      if (this.keep) this.data[channel].push(Buffer.from(payload));
      this.onData?.(channel, payload);
      if (this.autoWindow) this.window(channel, payload.length);
    } else if (type === FRAME.EOF) this.eof[channel] = true;
    else if (type === FRAME.WINDOW) this.credit += payload.readUInt32LE(0);
    else if (type === FRAME.NOTE) {
      const note = parseFields(payload);
      this.notes.push(note);
      if (note.NOTE_KIND === NOTE.GAP) this.gaps.push(note);
    } else if (type === FRAME.DONE) this.end = { done: parseFields(payload) };
    else if (type === FRAME.FAIL) this.end = { fail: parseFields(payload) };
    this.wake();
  }
  wake() {
    for (const waiter of this.#waiters.splice(0)) waiter();
  }
  window(channel, bytes) {
    if (!this.end) this.connection.write(frame(FRAME.WINDOW, channel, this.id, u32(bytes)));
  }
  reset() {
    this.connection.write(frame(FRAME.RESET, 0, this.id));
  }
  async until(condition, timeoutMs = 20000) {
    const deadline = Date.now() + timeoutMs;
    while (!condition(this)) {
      if (this.connection.closed) throw new Error("connection closed");
      const left = deadline - Date.now();
      if (left <= 0) throw new Error(`timed out; notes ${JSON.stringify(this.notes)} end ${JSON.stringify(this.end)}`);
      await new Promise((resolve) => {
        const timer = setTimeout(resolve, left);
        this.#waiters.push(() => {
          clearTimeout(timer);
          resolve();
        });
      });
    }
    return this;
  }
  note(kind) {
    return this.notes.find((note) => note.NOTE_KIND === kind);
  }
  async noted(kind) {
    await this.until((s) => s.note(kind) || s.end);
    return this.note(kind);
  }
  async finished(timeoutMs) {
    await this.until((s) => s.end, timeoutMs);
    return this;
  }
  async done(timeoutMs) {
    await this.finished(timeoutMs);
    if (this.end.fail) throw new Error(`failed: ${JSON.stringify(this.end.fail)}`);
    return this.end.done;
  }
  async failed() {
    await this.finished();
    if (!this.end.fail) throw new Error("did not fail");
    return this.end.fail;
  }
  text(channel = 1) {
    return Buffer.concat(this.data[channel]).toString();
  }
  async send(bytes) {
    for (let at = 0; at < bytes.length; ) {
      await this.until((s) => s.credit > 0 || s.end);
      if (this.end) return;
      const run = Math.min(this.credit, bytes.length - at, 65536);
      this.credit -= run;
      this.connection.write(frame(FRAME.DATA, 0, this.id, bytes.subarray(at, at + run)));
      at += run;
    }
  }
  sendEof() {
    this.connection.write(frame(FRAME.EOF, 0, this.id));
  }
}

export class Connection {
  streams = new Map();
  closed = false;
  hello = undefined;
  #next = 1;
  #rest = Buffer.alloc(0);
  constructor(socket) {
    this.socket = socket;
    this.whenClosed = new Promise((resolve) => socket.on("close", resolve));
    socket.on("data", (chunk) => this.#receive(chunk));
    socket.on("error", () => {});
    socket.on("close", () => {
      this.closed = true;
      for (const stream of this.streams.values()) stream.wake();
    });
  }
  #receive(chunk) {
    this.#rest = this.#rest.length ? Buffer.concat([this.#rest, chunk]) : chunk;
    while (this.#rest.length >= 12) {
      const length = this.#rest.readUInt32LE(0);
      if (this.#rest.length < 12 + length) return;
      const [type, channel, id] = [this.#rest[4], this.#rest[5], this.#rest.readUInt32LE(8)];
      const payload = this.#rest.subarray(12, 12 + length);
      this.#rest = this.#rest.subarray(12 + length);
      if (type === FRAME.HELLO) this.hello = parseFields(payload);
      else if (type === FRAME.PONG) this.onPong?.(payload);
      else {
        const stream = this.streams.get(id);
        if (!stream) throw new Error(`frame ${type} for unknown stream ${id}`);
        if (type === FRAME.DONE || type === FRAME.FAIL) this.streams.delete(id);
        stream.receive(type, channel, payload);
      }
    }
  }
  write(bytes) {
    if (!this.closed) this.socket.write(bytes);
  }
  request(type, values = {}, options = {}) {
    const id = this.#next++;
    const stream = new Stream(this, id, options);
    this.streams.set(id, stream);
    this.write(frame(type, 0, id, fields(values)));
    return stream;
  }
  close() {
    this.socket.destroy();
    return this.whenClosed;
  }
}

let commandId = 0;

export class Guest {
  static async start(args = [], { extra = [] } = {}) {
    const guest = new Guest();
    guest.directory = mkdtempSync(path.join(os.tmpdir(), "holdfast-guest-"));
    // Also for a guest that was killed, or whose test failed before it could stop it.
    process.on("exit", () => rmSync(guest.directory, { recursive: true, force: true }));
    guest.path = path.join(guest.directory, "guest.sock");
    const server = net.createServer();
    await new Promise((resolve) => server.listen(`${guest.path}.new`, resolve));
    renameSync(`${guest.path}.new`, guest.path); // closing our copy unlinks the name it knows
    guest.process = spawn(binary, ["--listen-fd", "3", "--outside", ...args], {
      stdio: ["ignore", "inherit", "pipe", server._handle, ...extra],
      env: { SECRET_OF_THE_HOST: "1", ASAN_OPTIONS: "detect_leaks=1" },
    });
    guest.stderr = "";
    guest.process.stderr.on("data", (chunk) => (guest.stderr += chunk));
    guest.exit = new Promise((resolve) => guest.process.on("exit", (code, signal) => resolve({ code, signal })));
    // Only the guest may accept.
    server._handle.close();
    guest.connections = [];
    return guest;
  }
  async connect({ greet = true } = {}) {
    const socket = net.connect(this.path);
    await new Promise((resolve, reject) => socket.on("connect", resolve).on("error", reject));
    const connection = new Connection(socket);
    if (greet) connection.write(frame(FRAME.HELLO, 0, 0, fields({ VERSION: 1 })));
    this.connections.push(connection);
    return connection;
  }
  rssBytes() {
    const status = readFileSync(`/proc/${this.process.pid}/status`, "utf8");
    return Number(/VmRSS:\s+(\d+)/.exec(status)[1]) * 1024;
  }
  descriptors() {
    return readdirSync(`/proc/${this.process.pid}/fd`).length;
  }
  async stop() {
    for (const connection of this.connections) await connection.close();
    this.process.kill("SIGTERM");
    const timer = setTimeout(() => this.process.kill("SIGKILL"), 10000);
    const { code, signal } = await this.exit;
    clearTimeout(timer);
    rmSync(this.directory, { recursive: true, force: true });
    if (code !== 0) throw new Error(`guest ended with ${code ?? signal}: ${this.stderr}`);
  }
}

export function start(connection, args, values = {}, options = {}) {
  const id = ++commandId;
  const stream = connection.request(FRAME.START, { COMMAND_ID: id, ARG: args, WINDOW: 1 << 20, ...values }, options);
  stream.commandId = id;
  return stream;
}

export async function run(connection, args, values = {}, options = {}) {
  const stream = start(connection, args, values, options);
  await stream.done(60000);
  return stream;
}

export const sh = (script) => ["/bin/sh", "-c", script];
export const sleep = (ms) => new Promise((resolve) => setTimeout(resolve, ms));
