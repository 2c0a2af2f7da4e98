// File operations through the core: what relays, paces and bounds the workers. What they do is tested beside them.
import assert from "node:assert/strict";
import { readdirSync, readFileSync, writeFileSync } from "node:fs";
import path from "node:path";
import { after, before, test } from "node:test";
import { FRAME, Guest, NOTE, run, sh, sleep } from "./guest-client.mjs";

let guest;
let host;
before(async () => {
  guest = await Guest.start();
  host = await guest.connect();
});
after(() => guest.stop());

const workerPids = () =>
  readFileSync(`/proc/${guest.process.pid}/task/${guest.process.pid}/children`, "utf8")
    .trim()
    .split(" ")
    .filter(Boolean);
const workers = () => workerPids().length;
/** Shared ones too: they are held twice once one of the two writes to them. */
const anonymousBytesOf = (pid) =>
  Number(/^Anonymous:\s+(\d+) kB$/m.exec(readFileSync(`/proc/${pid}/smaps_rollup`, "utf8"))[1]) * 1024;

test("20 MB go out and come back through file workers", async () => {
  const file = path.join(guest.directory, "large");
  const bytes = Buffer.alloc(20_000_000, "some text that is repeated\n");
  const write = host.request(FRAME.WRITE, { PATH: file });
  await write.send(bytes);
  write.sendEof();
  assert.equal((await write.done()).SIZE, bytes.length);
  assert.ok(readFileSync(file).equals(bytes));
  const read = host.request(FRAME.READ, { PATH: file, WINDOW: 100_000 });
  await read.done();
  assert.ok(Buffer.concat(read.data[1]).equals(bytes));
});

test("a reader without credit gets nothing, and a RESET ends its worker", async () => {
  const file = path.join(guest.directory, "other");
  writeFileSync(file, Buffer.alloc(1_000_000));
  const read = host.request(FRAME.READ, { PATH: file, WINDOW: 1000 }, { autoWindow: false });
  await read.until((s) => s.bytes[1] === 1000);
  await sleep(100);
  assert.equal(read.bytes[1], 1000);
  read.reset();
  assert.equal((await read.failed()).ERRNO_NAME, "ECANCELED");
  await sleep(300);
  assert.equal(workers(), 0);
});

test("a worker does not hold what commands have said", async () => {
  const file = path.join(guest.directory, "other");
  for (let i = 0; i < 16; i++) await run(host, sh("head -c 2000000 /dev/zero"), { KEEP_BYTES: 1_000_000 });
  const read = host.request(FRAME.READ, { PATH: file, WINDOW: 0 }, { autoWindow: false });
  await read.noted(NOTE.ENTRY);
  const [worker] = workerPids();
  const [ours, theirs] = [guest.process.pid, worker].map(anonymousBytesOf);
  assert.ok(ours - theirs > 12_000_000, `${ours} and ${theirs} bytes`);
  read.reset();
  await read.failed();
});

test("an abandoned upload leaves neither the target nor a temporary file", async () => {
  const before = readdirSync(guest.directory);
  const write = host.request(FRAME.WRITE, { PATH: path.join(guest.directory, "never") });
  await write.send(Buffer.alloc(500_000));
  write.reset();
  await write.failed();
  await sleep(300);
  assert.deepEqual(readdirSync(guest.directory), before);
});

test("stalled transfers and watches leave room for short operations", async () => {
  const other = await guest.connect();
  const file = path.join(guest.directory, "large");
  const stalled = Array.from({ length: 40 }, () => other.request(FRAME.READ, { PATH: file, WINDOW: 0 }));
  const watches = Array.from({ length: 40 }, () =>
    other.request(FRAME.WATCH, { PATH: guest.directory, WINDOW: 65_536 }),
  );
  await Promise.all(watches.slice(0, 10).map((watch) => watch.noted(NOTE.READY)));
  assert.equal((await watches[39].failed()).ERRNO_NAME, "EAGAIN");
  assert.ok(workers() <= 48, `${workers()} workers`);
  assert.equal((await host.request(FRAME.STAT, { PATH: file }).done()).SIZE, 20_000_000);
  for (const read of stalled.slice(0, 16)) read.reset();
  await stalled[16].noted(NOTE.ENTRY);
  await other.close();
  await sleep(500);
  assert.equal(workers(), 0);
});

test("200 operations at once are all answered", async () => {
  const stats = Array.from({ length: 200 }, () => host.request(FRAME.STAT, { PATH: "/etc/passwd" }));
  for (const stat of stats) assert.equal((await stat.done()).NAME, "passwd");
});
