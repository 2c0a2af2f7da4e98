import assert from "node:assert/strict";
import { existsSync, readFileSync, rmSync } from "node:fs";
import { after, before, test } from "node:test";
import { FRAME, Guest, NOTE, run, sh, sleep, start } from "./guest-client.mjs";

let guest;
let host;
before(async () => {
  guest = await Guest.start();
  host = await guest.connect();
});
after(() => guest.stop());

const root = process.getuid() === 0;
const exit = (stream) => stream.note(NOTE.EXITED);

test("runs a command and tells its output, exit code and totals", async () => {
  const stream = await run(host, sh("echo out; echo err >&2; exit 7"));
  assert.equal(stream.text(1), "out\n");
  assert.equal(stream.text(2), "err\n");
  assert.deepEqual([exit(stream).EXIT_KIND, exit(stream).EXIT_CODE], [0, 7]);
  assert.deepEqual([exit(stream).OUT_BYTES, exit(stream).ERR_BYTES, exit(stream).HELD], [4, 4, 0]);
  assert.ok(stream.eof[1] && stream.eof[2]);
});

test("tells the signal that ended a command", async () => {
  const stream = await run(host, sh("kill -9 $$"));
  assert.deepEqual([exit(stream).EXIT_KIND, exit(stream).SIGNAL], [1, 9]);
});

test("the environment is the user's and the request's, never the guest's", async () => {
  const stream = await run(host, ["env"], { ENV: ["A=1", "B=x=y", "A=2"] });
  const lines = stream.text().trim().split("\n").sort();
  assert.ok(lines.includes("A=2") && lines.includes("B=x=y") && !lines.includes("A=1"));
  assert.ok(lines.includes("PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"));
  assert.ok(lines.some((line) => line.startsWith("HOME=")));
  assert.ok(!stream.text().includes("SECRET_OF_THE_HOST"));
});

test("an environment entry without = is refused", async () => {
  assert.equal((await start(host, ["env"], { ENV: ["A"] }).failed()).ERRNO_NAME, "EINVAL");
});

test("a program is looked up along the request's PATH", async () => {
  const fail = await start(host, ["sh", "-c", "true"], { ENV: ["PATH=/nowhere"] }).failed();
  assert.equal(fail.ERRNO_NAME, "ENOENT");
  assert.match(fail.MESSAGE, /'sh'/);
});

test("a cwd that does not exist is ENOENT, and no command is left behind", async () => {
  const stream = start(host, ["pwd"], { CWD: "/no/such/place" });
  const fail = await stream.failed();
  assert.equal(fail.ERRNO_NAME, "ENOENT");
  assert.equal(fail.MESSAGE, "cwd '/no/such/place' does not exist");
  const attach = host.request(FRAME.ATTACH, { COMMAND_ID: stream.commandId });
  assert.equal((await attach.failed()).ERRNO_NAME, "ESRCH");
});

test("a cwd is where the command starts", async () => {
  assert.equal((await run(host, ["pwd"], { CWD: "/usr" })).text(), "/usr\n");
});

test("a program that cannot be run says which and why", async () => {
  const missing = await start(host, ["/no/such/program"]).failed();
  assert.deepEqual(
    [missing.ERRNO_NAME, missing.MESSAGE],
    ["ENOENT", "cannot run '/no/such/program': No such file or directory"],
  );
  assert.equal((await start(host, ["/etc/passwd"]).failed()).ERRNO_NAME, "EACCES");
});

test("an id that is known starts nothing", async () => {
  const first = start(host, ["sleep", "5"]);
  await first.noted(NOTE.STARTED);
  const second = host.request(FRAME.START, { COMMAND_ID: first.commandId, ARG: ["true"] });
  assert.equal((await second.failed()).ERRNO_NAME, "EEXIST");
  host.request(FRAME.SIGNAL, { COMMAND_ID: first.commandId, SIGNAL: 9 });
  await first.done();
});

test("an unknown user is refused by name", async () => {
  const fail = await start(host, ["id"], { USER: "no-such-user" }).failed();
  assert.deepEqual([fail.ERRNO_NAME, fail.MESSAGE], ["EINVAL", "invalid username: 'no-such-user'"]);
});

test("a command runs as the user it names", { skip: !root && "needs root" }, async () => {
  assert.match((await run(host, ["id"], { USER: "nobody", CWD: "/" })).text(), /uid=65534\(nobody\) gid=65534/);
  assert.match((await run(host, ["id"], { USER: "12345", CWD: "/" })).text(), /uid=12345 gid=12345/);
  assert.match((await run(host, ["id"], { USER: "12345:77", CWD: "/" })).text(), /uid=12345 gid=77/);
  const status = (await run(host, ["cat", "/proc/self/status"], { USER: "nobody", CWD: "/" })).text();
  assert.match(status, /CapEff:\s+0000000000000000\n/);
  assert.match(status, /NoNewPrivs:\s+1\n/);
  assert.match(status, /Seccomp:\s+2\n/);
});

test("root has the capabilities of a container's root and no more", { skip: !root && "needs root" }, async () => {
  const status = (await run(host, ["cat", "/proc/self/status"])).text();
  for (const set of ["CapPrm", "CapEff", "CapBnd"]) assert.match(status, new RegExp(`${set}:\\s+00000000a80425fb\n`));
});

test("seccomp denies namespaces, mounts and the rest with EPERM", { skip: !root && "needs root" }, async () => {
  const denied = (await run(host, sh("unshare -U true; unshare -n true; mount -t tmpfs x /mnt; dmesg"))).text(2);
  assert.equal(denied.match(/not permitted|denied/gi)?.length, 4, denied);
});

test("a command inherits no descriptor and has its own session", async () => {
  const stream = await run(
    host,
    sh("ls /proc/self/fd | wc -l; ulimit -c; umask; ps -o sid= -p $$ | tr -d ' '; echo $$"),
  );
  const [fds, core, umask, session, pid] = stream.text().trim().split("\n");
  assert.deepEqual([fds, core, umask], ["4", "0", "0022"]);
  assert.equal(session, pid);
});

test("10 MB go through cat's stdin and come back", async () => {
  const bytes = Buffer.alloc(10_000_000, "0123456789abcdef\n");
  const stream = start(host, ["cat"], { STDIN: 1 });
  const sent = stream.send(bytes).then(() => stream.sendEof());
  await stream.done(60000);
  await sent;
  assert.ok(Buffer.concat(stream.data[1]).equals(bytes));
});

test("stdin is empty unless it is asked for", async () => {
  assert.equal((await run(host, ["wc", "-c"])).text().trim(), "0");
});

test("input for a command that does not read it does not hang the host", async () => {
  const stream = start(host, sh("exec <&-; sleep 0.5"), { STDIN: 1 });
  await stream.send(Buffer.alloc(1_000_000));
  await stream.done();
});

test("input comes through any stream of a command, and only EOF ends it", async () => {
  const stream = start(host, ["cat"], { STDIN: 1 });
  assert.equal((await stream.noted(NOTE.STARTED)).STDIN, 1);
  await stream.send(Buffer.from("one\n"));
  const second = host.request(FRAME.ATTACH, { COMMAND_ID: stream.commandId });
  stream.reset();
  assert.equal((await stream.failed()).ERRNO_NAME, "ECANCELED");
  assert.equal((await second.noted(NOTE.STARTED)).STDIN, 1);
  const other = await guest.connect();
  const third = other.request(FRAME.ATTACH, { COMMAND_ID: stream.commandId });
  await third.noted(NOTE.STARTED);
  await second.send(Buffer.from("two\n"));
  // Two connections have no order between them: the next may only follow when this one was taken.
  await second.until((s) => s.credit === 65536);
  await third.send(Buffer.from("three\n"));
  await third.until((s) => s.credit === 65536);
  other.close();
  await second.send(Buffer.from("four\n"));
  second.sendEof();
  const reader = host.request(FRAME.ATTACH, {
    COMMAND_ID: stream.commandId,
    OFFSET_OUT: 0,
    OFFSET_ERR: 0,
    WINDOW: 65536,
  });
  await reader.done();
  assert.equal(reader.text(), "one\ntwo\nthree\nfour\n");
});

test("a command that takes no input says so", async () => {
  const stream = start(host, ["sleep", "0.2"]);
  assert.equal((await stream.noted(NOTE.STARTED)).STDIN, undefined);
  await stream.done();
});

test("a stream that opens while input waits may send when that is read", async () => {
  const stream = start(host, sh("sleep 1; wc -c"), { STDIN: 1 });
  await stream.noted(NOTE.STARTED);
  // More than a pipe holds.
  const sent = stream.send(Buffer.alloc(200_000));
  await sleep(200);
  assert.equal(stream.credit, 0);
  const second = host.request(FRAME.ATTACH, { COMMAND_ID: stream.commandId });
  await second.noted(NOTE.STARTED);
  await sleep(50);
  assert.equal(second.credit, 0);
  await second.send(Buffer.alloc(100_000));
  await sent;
  second.sendEof();
  await stream.done();
  assert.equal(stream.text().trim(), "300000");
});

test("a pty has a size, a name and one channel", async () => {
  const stream = await run(host, sh("tty; stty size; test -t 2 && echo terminal >&2"), { PTY_COLS: 123, PTY_ROWS: 45 });
  assert.match(stream.text(1), /\/dev\/pts\/\d+\r\n45 123\r\nterminal\r\n/);
  assert.deepEqual(stream.eof, { 1: true, 2: false });
});

test("a pty is resized, and its input ends with VEOF", async () => {
  const stream = start(host, sh("read line; stty size; cat; echo end"), { PTY_COLS: 80, PTY_ROWS: 24 });
  await stream.noted(NOTE.STARTED);
  await host.request(FRAME.RESIZE, { COMMAND_ID: stream.commandId, PTY_COLS: 100, PTY_ROWS: 50 }).done();
  await stream.send(Buffer.from("go\n"));
  await stream.until((s) => s.text().includes("50 100"));
  await stream.send(Buffer.from("typed\n"));
  await stream.until((s) => s.text().split("typed").length > 2);
  stream.sendEof();
  await stream.done();
  assert.match(stream.text(), /end\r\n$/);
});

test("a deadline sends SIGTERM, then SIGKILL to a child that traps it", async () => {
  const before = Date.now();
  const stream = await run(host, sh("trap 'echo got TERM' TERM; while :; do sleep 0.05; done"), {
    TIMEOUT_MS: 300,
    GRACE_MS: 400,
  });
  assert.deepEqual([exit(stream).EXIT_KIND, exit(stream).SIGNAL, exit(stream).TIMED_OUT], [1, 9, 1]);
  assert.match(stream.text(), /got TERM/);
  assert.ok(Date.now() - before < 3000);
});

test("a signal to the whole reaches the children", async () => {
  const stream = start(host, sh("sleep 100 & echo $!; wait"));
  await stream.until((s) => s.text().includes("\n"));
  const child = Number(stream.text().trim());
  const { COUNT } = await host.request(FRAME.SIGNAL, { COMMAND_ID: stream.commandId, SIGNAL: 15, WHOLE: 1 }).done();
  assert.ok(COUNT >= 1);
  await stream.done();
  await sleep(100);
  assert.ok(!existsSync(`/proc/${child}/exe`) || /\sZ/.test(readFileSync(`/proc/${child}/stat`, "utf8")));
});

test("a descendant that holds the pipe does not hold the command, and is not killed by SIGPIPE", async () => {
  const before = Date.now();
  const stream = await run(
    host,
    sh(
      "(trap 'exit 9' PIPE; for i in 1 2 3 4 5 6 7 8 9 10; do sleep 0.1; echo late; done; echo alive > /tmp/holdfast-held-$$) & echo early; echo $$",
    ),
  );
  assert.ok(Date.now() - before < 900, `took ${Date.now() - before} ms`);
  assert.equal(stream.end.done.HELD, 1);
  const [first, pid] = stream.text().split("\n");
  assert.equal(first, "early");
  await host.request(FRAME.FORGET, { COMMAND_ID: stream.commandId }).done();
  await sleep(1500);
  const held = `/tmp/holdfast-held-${pid}`;
  const survived = existsSync(held);
  rmSync(held, { force: true });
  assert.ok(survived);
});

test("1000 quick commands leave no zombie, no descriptor and no growth", { timeout: 120000 }, async () => {
  const batch = async () => {
    const streams = Array.from({ length: 20 }, () => start(host, ["/bin/true"]));
    for (const stream of streams) {
      await stream.done();
      await host.request(FRAME.FORGET, { COMMAND_ID: stream.commandId }).done();
    }
  };
  await batch();
  const [rss, descriptors] = [guest.rssBytes(), guest.descriptors()];
  for (let i = 0; i < 50; i++) await batch();
  await sleep(100);
  assert.ok(guest.descriptors() <= descriptors, `${descriptors} descriptors became ${guest.descriptors()}`);
  // The address sanitizer keeps freed memory for a while.
  const allowed = (process.env.GUEST_BINARY ?? "").includes("asan") ? 256 << 20 : 512 << 10;
  assert.ok(guest.rssBytes() - rss < allowed, `grew by ${guest.rssBytes() - rss}`);
  const children = readFileSync(`/proc/${guest.process.pid}/task/${guest.process.pid}/children`, "utf8").trim();
  assert.equal(children, "");
});

test("FORGET is for commands that have ended", async () => {
  const stream = start(host, ["sleep", "5"]);
  await stream.noted(NOTE.STARTED);
  assert.equal((await host.request(FRAME.FORGET, { COMMAND_ID: stream.commandId }).failed()).ERRNO_NAME, "EBUSY");
  host.request(FRAME.SIGNAL, { COMMAND_ID: stream.commandId, SIGNAL: 9 });
  await stream.done();
  await host.request(FRAME.FORGET, { COMMAND_ID: stream.commandId }).done();
  assert.equal((await host.request(FRAME.FORGET, { COMMAND_ID: stream.commandId }).failed()).ERRNO_NAME, "ESRCH");
});

test("COMMANDS lists what runs and what ended", async () => {
  const ended = await run(host, sh("echo hi; exit 4"), { TAG: "first" });
  const running = start(host, ["sleep", "5"], { TAG: "second" });
  await running.noted(NOTE.STARTED);
  const list = host.request(FRAME.COMMANDS);
  await list.done();
  const byId = new Map(list.notes.map((note) => [note.COMMAND_ID, note]));
  const one = byId.get(ended.commandId);
  assert.deepEqual([one.TAG, one.EXIT_CODE, one.OUT_BYTES, one.ARG], ["first", 4, 3, sh("echo hi; exit 4")]);
  assert.deepEqual([byId.get(running.commandId).TAG, byId.get(running.commandId).EXIT_KIND], ["second", undefined]);
  host.request(FRAME.SIGNAL, { COMMAND_ID: running.commandId, SIGNAL: 9 });
  await running.done();
});

test("CONFIGURE sets what commands inherit", async () => {
  await host.request(FRAME.CONFIGURE, { PIDS: 4321, CPU_MILLIS: 1000 }).done();
  const stream = await run(host, ["/bin/bash", "-c", "ulimit -u; nproc"]);
  assert.equal(stream.text(), "4321\n1\n");
  await host.request(FRAME.CONFIGURE, { PIDS: 0, CPU_MILLIS: 0 }).done();
});
