import assert from "node:assert/strict";
import { createHash } from "node:crypto";
import { mkdtempSync, openSync, readdirSync, rmSync } from "node:fs";
import net from "node:net";
import os from "node:os";
import path from "node:path";
import { after, before, test } from "node:test";
import { FRAME, fields, frame, Guest, NOTE, run, sh, sleep, start } from "./guest-client.mjs";

let guest;
let host;
before(async () => {
  guest = await Guest.start();
  host = await guest.connect();
});
after(() => guest.stop());

const asan = (process.env.GUEST_BINARY ?? "").includes("asan");
const KEEP_HEAD = 65536;

test("1 GiB without a reader: bounded memory, head and tail kept, the gap exact", { timeout: 120000 }, async () => {
  const total = 2 ** 30;
  const first = start(host, sh(`echo HEAD; head -c ${total - 10} /dev/zero; echo TAIL`));
  await first.noted(NOTE.STARTED);
  first.reset();
  await first.failed();
  const watcher = host.request(FRAME.ATTACH, { COMMAND_ID: first.commandId, WINDOW: 0 });
  const { OUT_BYTES } = await watcher.noted(NOTE.EXITED).then(() => watcher.note(NOTE.EXITED));
  await sleep(300);
  if (!asan) assert.ok(guest.rssBytes() < 8 << 20, `guest uses ${guest.rssBytes()}`);
  watcher.reset();
  await watcher.failed();
  const reader = host.request(FRAME.ATTACH, {
    COMMAND_ID: first.commandId,
    OFFSET_OUT: 0,
    OFFSET_ERR: 0,
    WINDOW: 1 << 20,
  });
  const done = await reader.done();
  assert.equal(done.OUT_BYTES, total);
  assert.ok(OUT_BYTES <= total);
  assert.equal(reader.gaps.length, 1);
  assert.deepEqual(
    [reader.gaps[0].CHANNEL, reader.gaps[0].OFFSET, reader.gaps[0].LENGTH],
    [1, KEEP_HEAD, total - KEEP_HEAD - (1 << 20)],
  );
  const text = reader.text();
  assert.equal(text.length, KEEP_HEAD + (1 << 20));
  assert.ok(text.startsWith("HEAD\n") && text.endsWith("TAIL\n"));
});

test("a slow BLOCK reader gets every byte and holds up the command", { timeout: 60000 }, async () => {
  const total = 20_000_000;
  const script = `i=0; while [ $i -lt ${total / 1000} ]; do i=$((i+1)); printf '%0999d\\n' $i; done`;
  const reader = start(
    host,
    sh(script),
    { BLOCK: 1, KEEP_BYTES: 65536, WINDOW: 100_000 },
    { autoWindow: false, keep: false },
  );
  const hash = createHash("sha256");
  reader.onData = (_, payload) => hash.update(payload);
  await sleep(500);
  assert.equal(reader.bytes[1], 100_000);
  assert.equal(reader.note(NOTE.EXITED), undefined);
  while (!reader.end) {
    reader.window(1, 300_000);
    await sleep(2);
  }
  assert.deepEqual(reader.gaps, []);
  assert.equal(reader.bytes[1], total);
  const expected = createHash("sha256");
  for (let i = 1; i <= total / 1000; i++) expected.update(`${String(i).padStart(999, "0")}\n`);
  assert.equal(hash.digest("hex"), expected.digest("hex"));
});

test("a BLOCK reader that goes away lets the command go on", async () => {
  const reader = start(host, sh("head -c 10000000 /dev/zero"), { BLOCK: 1, KEEP_BYTES: 4096, WINDOW: 0 });
  await reader.noted(NOTE.STARTED);
  await sleep(100);
  reader.reset();
  await reader.failed();
  const again = host.request(FRAME.ATTACH, { COMMAND_ID: reader.commandId, WINDOW: 1 << 20 });
  assert.equal((await again.done()).OUT_BYTES, 10000000);
});

test("a spill file keeps what leaves memory, and goes with FORGET", async () => {
  const directory = mkdtempSync(path.join(os.tmpdir(), "holdfast-spill-"));
  const spilling = await Guest.start(["--spill-fd", "4"], { extra: [openSync(directory, "r")] });
  const other = await spilling.connect();
  const total = 5_000_000;
  const command = await run(
    other,
    sh(`seq 1 2000000 | head -c ${total}`),
    { KEEP_BYTES: 100_000, SPILL_BYTES: 10_000_000 },
    { keep: false },
  );
  const reader = other.request(FRAME.ATTACH, {
    COMMAND_ID: command.commandId,
    OFFSET_OUT: 0,
    OFFSET_ERR: 0,
    WINDOW: 1 << 20,
  });
  await reader.done();
  assert.deepEqual(reader.gaps, []);
  assert.equal(reader.bytes[1], total);
  assert.match(reader.text().slice(0, 20), /^1\n2\n3\n/);
  const lines = reader.text().split("\n");
  for (let i = 1; i < lines.length - 1; i += 997) assert.equal(lines[i], String(i + 1));
  assert.deepEqual(readdirSync(directory), [`${command.commandId}.1`]);
  await other.request(FRAME.FORGET, { COMMAND_ID: command.commandId }).done();
  assert.deepEqual(readdirSync(directory), []);

  const bounded = await run(
    other,
    sh(`seq 1 2000000 | head -c ${total}`),
    { KEEP_BYTES: 100_000, SPILL_BYTES: 1_000_000 },
    { keep: false },
  );
  const tail = other.request(FRAME.ATTACH, {
    COMMAND_ID: bounded.commandId,
    OFFSET_OUT: 0,
    OFFSET_ERR: 0,
    WINDOW: 1 << 20,
  });
  await tail.done();
  assert.equal(tail.gaps.length, 1);
  assert.equal(tail.gaps[0].LENGTH, total - KEEP_HEAD - 1_100_000);
  assert.equal(tail.bytes[1], KEEP_HEAD + 1_100_000);
  await spilling.stop();
  rmSync(directory, { recursive: true });
});

test("a host that comes back attaches by offset and misses nothing", async () => {
  const first = await guest.connect();
  const stream = start(first, sh("for i in 1 2 3 4 5 6 7 8 9 10; do echo line $i; sleep 0.05; done"));
  await stream.until((s) => s.bytes[1] >= 14);
  const seen = stream.text();
  await first.close();
  const second = await guest.connect();
  const rest = second.request(FRAME.ATTACH, {
    COMMAND_ID: stream.commandId,
    OFFSET_OUT: seen.length,
    OFFSET_ERR: 0,
    WINDOW: 1 << 20,
  });
  await rest.done();
  assert.equal(seen + rest.text(), Array.from({ length: 10 }, (_, i) => `line ${i + 1}\n`).join(""));
  await second.close();
});

test("attach without offsets begins where the output is now", async () => {
  const stream = start(host, sh("echo old; read x; echo new"), { STDIN: 1 });
  await stream.until((s) => s.text() === "old\n");
  const other = await guest.connect();
  const attached = other.request(FRAME.ATTACH, { COMMAND_ID: stream.commandId, WINDOW: 1000 });
  await attached.send(Buffer.from("go\n"));
  await attached.done();
  assert.equal(attached.text(), "new\n");
  await stream.done();
  await other.close();
});

test("a stream without window does not hinder another", async () => {
  const stuck = start(host, ["yes"], { WINDOW: 0 });
  await stuck.noted(NOTE.STARTED);
  const before = Date.now();
  assert.equal((await run(host, ["echo", "through"])).text(), "through\n");
  assert.ok(Date.now() - before < 2000);
  assert.equal(stuck.bytes[1], 0);
  await host.request(FRAME.SIGNAL, { COMMAND_ID: stuck.commandId, SIGNAL: 9 }).done();
  stuck.window(1, 1 << 30);
  await stuck.done();
});

test("a host that does not read holds up only its own connection", async () => {
  const lazy = await guest.connect();
  lazy.socket.pause();
  for (let i = 0; i < 20; i++) start(lazy, ["yes"], { WINDOW: 1 << 30, TIMEOUT_MS: 4000, GRACE_MS: 0 });
  await sleep(300);
  assert.equal((await run(host, ["echo", "through"])).text(), "through\n");
  if (!asan) assert.ok(guest.rssBytes() < 60 << 20, `guest uses ${guest.rssBytes()}`);
  await lazy.close();
});

test("PING is answered", async () => {
  const pong = new Promise((resolve) => (host.onPong = resolve));
  host.write(frame(FRAME.PING, 0, 0, Buffer.from("hello")));
  assert.equal((await pong).toString(), "hello");
});

const violations = {
  "a header that is too long": () => frame(FRAME.PING, 0, 0).fill(0xff),
  "an unknown frame type": () => frame(0x7f, 0, 1),
  "a request on stream 0": () => frame(FRAME.COMMANDS, 0, 0),
  "fields that run past the payload": () => frame(FRAME.COMMANDS, 0, 1, Buffer.from([1, 255, 0, 0, 0])),
  "a second HELLO": () => frame(FRAME.HELLO, 0, 0, fields({ VERSION: 1 })),
  "a frame that only the guest sends": () => frame(FRAME.DONE, 0, 1),
  "data beyond the credit": () =>
    Buffer.concat([
      frame(FRAME.START, 0, 1, fields({ COMMAND_ID: 990001, ARG: ["sleep", "0.2"], STDIN: 1 })),
      frame(FRAME.DATA, 0, 1, Buffer.alloc(70000)),
    ]),
  "a stream id in use": () =>
    Buffer.concat([
      frame(FRAME.START, 0, 1, fields({ COMMAND_ID: 990002, ARG: ["sleep", "0.2"] })),
      frame(FRAME.START, 0, 1, fields({ COMMAND_ID: 990003, ARG: ["sleep", "0.2"] })),
    ]),
};
for (const [name, bytes] of Object.entries(violations)) {
  test(`${name} closes that connection only`, async () => {
    const bad = await guest.connect();
    bad.request = undefined;
    bad.streams.get = () => ({ receive() {} });
    bad.write(bytes());
    await Promise.race([bad.whenClosed, sleep(3000).then(() => assert.fail("still open"))]);
    assert.equal((await run(host, ["echo", "fine"])).text(), "fine\n");
  });
}

test("a request before HELLO closes the connection", async () => {
  const rude = await guest.connect({ greet: false });
  rude.write(frame(FRAME.COMMANDS, 0, 1));
  await Promise.race([rude.whenClosed, sleep(3000).then(() => assert.fail("still open"))]);
});

async function serve(address) {
  const server = net.createServer({ allowHalfOpen: true }, (socket) => {
    socket.pipe(socket);
    socket.on("error", () => {});
  });
  await new Promise((resolve) => server.listen(address, resolve));
  return server;
}

for (const kind of ["TCP", "IPv6", "unix"]) {
  test(`dials a ${kind} server and half-closes both ways`, async () => {
    const socketPath = path.join(guest.directory, `echo-${kind}`);
    const server = await serve(kind === "unix" ? socketPath : { host: kind === "TCP" ? "127.0.0.1" : "::1", port: 0 });
    const target = kind === "unix" ? { PATH: socketPath } : { PORT: server.address().port };
    const stream = host.request(FRAME.DIAL, { ...target, WINDOW: 100_000 });
    assert.ok(await stream.noted(NOTE.CONNECTED));
    const bytes = Buffer.alloc(3_000_000, "abcdefg");
    await stream.send(bytes);
    stream.sendEof();
    await stream.done();
    assert.ok(Buffer.concat(stream.data[1]).equals(bytes));
    assert.ok(stream.eof[1]);
    server.close();
  });
}

test("a dial to a port where nobody listens is ECONNREFUSED", async () => {
  assert.equal((await host.request(FRAME.DIAL, { PORT: 1 }).failed()).ERRNO_NAME, "ECONNREFUSED");
  assert.equal((await host.request(FRAME.DIAL, { PATH: "/no/such/socket" }).failed()).ERRNO_NAME, "ENOENT");
});

test("RESET of a dial closes the connection inside", async () => {
  const server = net.createServer();
  await new Promise((resolve) => server.listen(0, "127.0.0.1", resolve));
  const accepted = new Promise((resolve) => server.on("connection", resolve));
  const stream = host.request(FRAME.DIAL, { PORT: server.address().port, WINDOW: 1000 });
  const socket = await accepted;
  const ended = new Promise((resolve) => socket.on("end", resolve).on("close", resolve).on("error", resolve).resume());
  stream.reset();
  assert.equal((await stream.failed()).ERRNO_NAME, "ECANCELED");
  await ended;
  server.close();
});

test("ORPHAN_MS ends a guest without a host; SHUTDOWN ends it at once", async () => {
  const orphan = await Guest.start(["--orphan-ms", "300"]);
  const connection = await orphan.connect();
  await sleep(600);
  assert.equal(orphan.process.exitCode, null);
  await connection.close();
  assert.equal((await orphan.exit).code, 0);
  const other = await Guest.start();
  const last = await other.connect();
  await last.request(FRAME.SHUTDOWN).done();
  assert.equal((await other.exit).code, 0);
});
