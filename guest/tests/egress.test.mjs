// The way out: a guest in a network namespace of its own, and a host (this test) that decides and dials.
import assert from "node:assert/strict";
import { spawn, spawnSync } from "node:child_process";
import { createHash } from "node:crypto";
import { mkdtempSync, renameSync, rmSync } from "node:fs";
import net from "node:net";
import os from "node:os";
import path from "node:path";
import { after, before, test } from "node:test";
import { binary, FIELD, FRAME, Guest, NOTE, run, sh, sleep, start } from "./guest-client.mjs";

const possible = process.getuid() === 0 && spawnSync("unshare", ["-n", "true"]).status === 0;
const skip = possible ? false : "needs root and network namespaces";
const ECONNREFUSED = 111;
const ETIMEDOUT = 110;
const ENETUNREACH = 101;

/** As Guest.start, in a namespace of its own. */
async function startGuest() {
  const guest = new Guest();
  guest.directory = mkdtempSync(path.join(os.tmpdir(), "holdfast-guest-"));
  process.on("exit", () => rmSync(guest.directory, { recursive: true, force: true }));
  guest.path = path.join(guest.directory, "guest.sock");
  const server = net.createServer();
  await new Promise((resolve) => server.listen(`${guest.path}.new`, resolve));
  renameSync(`${guest.path}.new`, guest.path);
  guest.process = spawn("unshare", ["-n", binary, "--listen-fd", "3", "--outside", "--egress"], {
    stdio: ["ignore", "inherit", "pipe", server._handle],
    env: { ...process.env, ASAN_OPTIONS: "detect_leaks=1" },
  });
  guest.stderr = "";
  guest.process.stderr.on("data", (chunk) => (guest.stderr += chunk));
  guest.exit = new Promise((resolve) => guest.process.on("exit", (code, signal) => resolve({ code, signal })));
  server._handle.close();
  guest.connections = [];
  return guest;
}

/** Notes of an EGRESS stream, one after the other; the client of the tests knows no DATAGRAM, so they are parsed here. */
class Egress {
  #seen = 0;
  constructor(connection, window = 1 << 20) {
    this.connection = connection;
    this.stream = connection.request(FRAME.EGRESS, { WINDOW: window });
    const receive = this.stream.receive.bind(this.stream);
    this.datagrams = new Map();
    this.stream.receive = (type, channel, payload) => {
      if (type !== FRAME.NOTE) return receive(type, channel, payload);
      const note = {};
      for (let at = 0; at < payload.length; ) {
        const name = Object.keys(FIELD).find((key) => FIELD[key] === payload[at]);
        const length = payload.readUInt32LE(at + 1);
        const value = Buffer.from(payload.subarray(at + 5, at + 5 + length));
        note[name] = name === "DATAGRAM" ? value : Number(value.readBigUInt64LE());
        at += 5 + length;
      }
      this.stream.notes.push(note);
      this.stream.wake();
    };
  }
  async next() {
    await this.stream.until((stream) => stream.notes.length > this.#seen || stream.end);
    return this.stream.notes[this.#seen++];
  }
  accept(note) {
    return this.connection.request(FRAME.ACCEPT, { CONNECTION: note.CONNECTION, WINDOW: 1 << 20 });
  }
  refuse(note, errno) {
    return this.connection.request(FRAME.REFUSE, { CONNECTION: note.CONNECTION, ERRNO: errno }).done();
  }
}

/** A program inside that connects and says how that went. */
const connecting = (address, port) => [
  "perl",
  "-MSocket",
  "-MErrno",
  "-e",
  `socket(S, PF_INET, SOCK_STREAM, 0); my $t = time; connect(S, sockaddr_in(${port}, inet_aton("${address}"))) or do { print 0+$!; exit };` +
    `print "connected"; $| = 1; syswrite(S, "hello"); shutdown(S, 1); my $got = ""; while (sysread(S, my $b, 65536)) { $got .= $b } print " ", $got, " ", 0+$!`,
];

let guest;
let host;
before(async () => {
  if (skip) return;
  guest = await startGuest();
  host = await guest.connect();
});
after(async () => {
  if (!skip) await guest.stop();
});
const address = (text) => text.split(".").reduce((sum, part) => sum * 256 + Number(part), 0);

test("a connection is made when the host has accepted it, and carries bytes and half closes", { skip }, async () => {
  const egress = new Egress(host);
  const command = start(host, connecting("203.0.113.7", 443));
  const note = await egress.next();
  assert.deepEqual([note.NOTE_KIND, note.ADDRESS, note.PORT], [NOTE.CONNECTION, address("203.0.113.7"), 443]);
  await sleep(200);
  assert.equal(command.text(), "", "not connected before the host is");
  const carried = egress.accept(note);
  await carried.noted(NOTE.CONNECTED);
  await carried.until((stream) => stream.eof[1]);
  assert.equal(carried.text(), "hello");
  await carried.send(Buffer.from("answer"));
  carried.sendEof();
  await carried.done();
  await command.done();
  assert.equal(command.text(), "connected answer 0");
});

for (const [errno, seen] of [
  [ECONNREFUSED, 111],
  [ETIMEDOUT, 113],
  [ENETUNREACH, 101],
  [12345, 111],
]) {
  test(`a refusal with ${errno} fails connect with ${seen} at once`, { skip }, async () => {
    const egress = new Egress(host);
    const begun = Date.now();
    const command = start(host, connecting("198.51.100.1", 81));
    await egress.refuse(await egress.next(), errno);
    await command.done();
    assert.equal(command.text(), String(seen));
    assert.ok(Date.now() - begun < 900, "no repeated packet was needed");
  });
}

test("a host that goes away breaks what it carried and is waited for by what it did not", { skip }, async () => {
  const first = await guest.connect();
  const egress = new Egress(first);
  const carriedCommand = start(host, connecting("203.0.113.8", 1000));
  const carried = egress.accept(await egress.next());
  await carried.noted(NOTE.CONNECTED);
  const waiting = start(host, connecting("203.0.113.9", 1001));
  await egress.next();
  await first.close();
  await carriedCommand.done();
  assert.equal(carriedCommand.text(), "connected  104");
  const later = start(host, connecting("203.0.113.10", 1002));
  await sleep(300);
  const again = new Egress(host);
  const notes = [await again.next(), await again.next()].sort((a, b) => a.PORT - b.PORT);
  assert.deepEqual(
    notes.map((note) => note.PORT),
    [1001, 1002],
  );
  for (const note of notes) await again.refuse(note, ECONNREFUSED);
  for (const command of [waiting, later]) {
    await command.done();
    assert.equal(command.text(), "111");
  }
});

test("a second host takes over", { skip }, async () => {
  const one = new Egress(host);
  const other = new Egress(host);
  assert.equal((await one.stream.failed()).ERRNO_NAME, "ECANCELED");
  const command = start(host, connecting("203.0.113.1", 99));
  await other.refuse(await other.next(), ECONNREFUSED);
  await command.done();
});

test("a host that gives up on a connection it accepted resets it", { skip }, async () => {
  const egress = new Egress(host);
  const command = start(host, connecting("203.0.113.8", 1000));
  const carried = egress.accept(await egress.next());
  await carried.noted(NOTE.CONNECTED);
  await carried.until((stream) => stream.eof[1]);
  carried.reset();
  await carried.failed();
  await command.done();
  assert.equal(command.text(), "connected  104");
});

test("a program that gave up meanwhile costs the host a FAIL", { skip, timeout: 20000 }, async () => {
  const egress = new Egress(host);
  const command = start(host, connecting("203.0.113.8", 1000));
  const note = await egress.next();
  host.request(FRAME.SIGNAL, { COMMAND_ID: command.commandId, SIGNAL: 9 });
  await command.done();
  const carried = egress.accept(note);
  assert.equal((await carried.failed()).ERRNO_NAME, "ECONNABORTED");
  assert.equal((await egress.accept(note).failed()).ERRNO_NAME, "ECONNABORTED");
});

test("notes wait for credit", { skip }, async () => {
  const egress = new Egress(host, 60);
  const commands = [start(host, connecting("203.0.113.1", 1)), start(host, connecting("203.0.113.1", 2))];
  const first = await egress.next();
  await sleep(200);
  assert.equal(egress.stream.notes.length, 1);
  await egress.refuse(first, ECONNREFUSED);
  egress.stream.window(1, 60);
  await egress.refuse(await egress.next(), ECONNREFUSED);
  for (const command of commands) await command.done();
});

test("loopback is left alone, and our own door is closed", { skip }, async () => {
  const egress = new Egress(host);
  const server = start(host, [
    "perl",
    "-MIO::Socket::INET",
    "-e",
    '$| = 1; my $s = IO::Socket::INET->new(LocalPort => 8080, Listen => 5) or die; print "up\\n"; while (my $c = $s->accept) { while (sysread($c, my $b, 100)) {} print $c "inside"; close $c }',
  ]);
  await server.until((stream) => stream.text().includes("up"));
  for (const to of ["127.0.0.1", "127.1.2.3", "198.18.0.2", "0.0.0.0"])
    assert.equal((await run(host, connecting(to, 8080))).text(), "connected inside 0", to);
  assert.equal((await run(host, connecting("127.0.0.1", 8081))).text(), "111");
  assert.match((await run(host, connecting("127.18.0.1", 1))).text(), /^connected {2}104$|^connected {2}0$/);
  assert.equal(egress.stream.notes.length, 0);
  server.reset();
  host.request(FRAME.SIGNAL, { COMMAND_ID: server.commandId, SIGNAL: 9 });
});

const udp = (to, port, text) => [
  "perl",
  "-MSocket",
  "-e",
  `socket(S, PF_INET, SOCK_DGRAM, 0); defined send(S, "${text}", 0, sockaddr_in(${port}, inet_aton("${to}"))) or do { print 0+$!; exit };` +
    `my $f = recv(S, my $b, 1000, 0); my ($p, $a) = sockaddr_in($f); print "$b from ", inet_ntoa($a), ":$p"`,
];

test("a question to any DNS server is answered in its name; other datagrams fail at once", { skip }, async () => {
  const egress = new Egress(host);
  for (const to of ["8.8.8.8", "127.0.0.1", "127.0.0.53", "198.18.0.2"]) {
    const command = start(host, udp(to, 53, "question"));
    const note = await egress.next();
    assert.equal(note.NOTE_KIND, NOTE.QUERY);
    assert.equal(note.DATAGRAM.toString(), "question");
    await host.request(FRAME.ANSWER, { QUERY: note.QUERY, DATAGRAM: "answer" }).done();
    await host.request(FRAME.ANSWER, { QUERY: note.QUERY, DATAGRAM: "again" }).done();
    await command.done();
    assert.equal(command.text(), `answer from ${to}:53`);
  }
  assert.equal((await run(host, udp("8.8.8.8", 123, "x"))).text(), "1");
  assert.equal((await run(host, udp("224.0.0.251", 5353, "x"))).text(), "1");
});

test("DNS over TCP on loopback comes to the host too", { skip }, async () => {
  const egress = new Egress(host);
  const command = start(host, connecting("127.0.0.1", 53));
  const note = await egress.next();
  assert.deepEqual([note.ADDRESS, note.PORT], [address("127.0.0.1"), 53]);
  const carried = egress.accept(note);
  await carried.send(Buffer.from("tcp answer"));
  carried.sendEof();
  await carried.done();
  await command.done();
  assert.equal(command.text(), "connected tcp answer 0");
});

test("a DNS server inside is reached on loopback", { skip }, async () => {
  const egress = new Egress(host);
  const server = start(host, [
    "perl",
    "-MSocket",
    "-e",
    '$| = 1; socket(S, PF_INET, SOCK_DGRAM, 0); bind(S, sockaddr_in(53, INADDR_ANY)) or die $!; print "up\\n"; while (my $f = recv(S, my $b, 1000, 0)) { send(S, "own $b", 0, $f) }',
  ]);
  await server.until((stream) => stream.text().includes("up"));
  assert.equal((await run(host, udp("127.0.0.1", 53, "question"))).text(), "own question from 127.0.0.1:53");
  const outside = start(host, udp("8.8.8.8", 53, "question"));
  const note = await egress.next();
  await host.request(FRAME.ANSWER, { QUERY: note.QUERY, DATAGRAM: "theirs" }).done();
  await outside.done();
  assert.equal(outside.text(), "theirs from 8.8.8.8:53");
  server.reset();
  host.request(FRAME.SIGNAL, { COMMAND_ID: server.commandId, SIGNAL: 9 });
});

test("300 connections at once, beyond what may wait", { skip, timeout: 60000 }, async () => {
  const egress = new Egress(host);
  const count = 300;
  const command = start(host, [
    "perl",
    "-MSocket",
    "-MIO::Select",
    "-MFcntl",
    "-e",
    `my @s; for my $i (1..${count}) { socket(my $s, PF_INET, SOCK_STREAM, 0); fcntl($s, F_SETFL, O_NONBLOCK); connect($s, sockaddr_in($i, inet_aton("203.0.113.1"))); push @s, $s }
     my $ok = 0; for my $s (@s) { my $w = ""; vec($w, fileno($s), 1) = 1; select(undef, $w, undef, 30); $ok++ if getpeername($s) } print $ok`,
  ]);
  const ports = new Set();
  const streams = [];
  for (let i = 0; i < count; i++) {
    const note = await egress.next();
    ports.add(note.PORT);
    streams.push(egress.accept(note));
  }
  await command.done(40000);
  assert.equal(command.text(), String(count));
  assert.equal(ports.size, count);
  for (const stream of streams) stream.reset();
  for (const stream of streams) await stream.finished();
});

test("much data both ways at once", { skip, timeout: 60000 }, async () => {
  const egress = new Egress(host);
  const total = 30_000_000;
  const command = start(host, [
    "perl",
    "-MSocket",
    "-MDigest::SHA",
    "-e",
    `socket(S, PF_INET, SOCK_STREAM, 0); connect(S, sockaddr_in(5, inet_aton("203.0.113.1"))) or die; if (!fork) { my $b = "x" x 65536; my $left = ${total}; while ($left > 0) { my $n = syswrite(S, $b, $left < 65536 ? $left : 65536); $left -= $n } shutdown(S, 1); exit }
     my $d = Digest::SHA->new(256); while (sysread(S, my $b, 65536)) { $d->add($b) } wait; print $d->hexdigest`,
  ]);
  const carried = egress.accept(await egress.next());
  carried.keep = false;
  const content = Buffer.alloc(total, "some text that repeats");
  await carried.send(content);
  carried.sendEof();
  await carried.done(40000);
  assert.equal(carried.bytes[1], total);
  await command.done();
  assert.equal(command.text(), createHash("sha256").update(content).digest("hex"));
});

test("a slow reader inside holds up its own stream, within its credit", { skip }, async () => {
  const egress = new Egress(host);
  const command = start(host, [
    "perl",
    "-MSocket",
    "-e",
    'socket(S, PF_INET, SOCK_STREAM, 0); connect(S, sockaddr_in(5, inet_aton("203.0.113.1"))) or die; sleep 1; my $n = 0; while (my $r = sysread(S, my $b, 65536)) { $n += $r } print $n',
  ]);
  const carried = egress.accept(await egress.next());
  await carried.noted(NOTE.CONNECTED);
  let sent = 0;
  const sending = carried.send(Buffer.alloc(8_000_000)).then(() => (sent = 8_000_000));
  await sleep(600);
  assert.equal(sent, 0);
  assert.equal((await run(host, ["echo", "others go on"])).text(), "others go on\n");
  await sending;
  carried.sendEof();
  await carried.done();
  await command.done();
  assert.equal(command.text(), "8000000");
});

test("nobody inside can change the routes, the rules or make raw packets", { skip }, async () => {
  const script = `exec 2>&1
    ip route add 10.0.0.0/8 dev lo; ip link set eth0 down; ip rule del priority 100
    nft list ruleset; nft flush ruleset
    perl -MSocket -e 'socket(S, PF_INET, SOCK_RAW, 1) and print "raw\\n"; socket(S, PF_INET, SOCK_STREAM, 0); setsockopt(S, 1, 36, pack("I", 1)) and print "mark\\n"; setsockopt(S, 0, 19, pack("I", 1)) and print "transparent\\n"'`;
  const text = (await run(host, sh(script))).text();
  assert.doesNotMatch(text, /^(raw|mark|transparent)$/m);
  assert.match(text, /Operation not permitted/);
  const egress = new Egress(host);
  const command = start(host, connecting("203.0.113.7", 443));
  await egress.refuse(await egress.next(), ECONNREFUSED);
  await command.done();
  assert.equal(command.text(), "111");
});

test("IPv6 leads nowhere, at once", { skip }, async () => {
  const result = await run(host, [
    "perl",
    "-MSocket=:all",
    "-e",
    'socket(S, PF_INET6, SOCK_STREAM, 0); connect(S, pack_sockaddr_in6(80, inet_pton(AF_INET6, "2001:db8::1"))) or print 0+$!',
  ]);
  assert.equal(result.text(), "101");
});

test("a guest without a way out says so", async () => {
  const plain = await Guest.start();
  const connection = await plain.connect();
  for (const type of [FRAME.EGRESS, FRAME.ACCEPT, FRAME.REFUSE, FRAME.ANSWER])
    assert.equal((await connection.request(type, {}).failed()).ERRNO_NAME, "ENOTSUP");
  await plain.stop();
});
