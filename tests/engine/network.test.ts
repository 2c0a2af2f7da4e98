/** What a sandbox reaches of the world, and what that costs the host. */
import { createHash } from "node:crypto";
import { once } from "node:events";
import { mkdtempSync, rmSync } from "node:fs";
import { type AddressInfo, createServer, type Server, type Socket } from "node:net";
import { networkInterfaces } from "node:os";
import { setTimeout as sleep } from "node:timers/promises";
import { BubblewrapEngine, type NetworkSpec, type Sandbox } from "@holdfast/engine";
import { afterEach, beforeAll, describe, expect, it } from "vitest";
import { buildEngine, runScript } from "../helpers/built-engine.js";
import { assertNoLeaks, OUR_DIRECTORIES, takeInventory } from "../helpers/leaks.js";
import { forgiveZombies } from "../helpers/processes.js";
import { patienceMs, scaled } from "../helpers/scale.js";
import { collect, MIB, run, SMALL_LIMITS, shell, useEngine } from "../helpers/use-engine.js";

const EPERM = 1;
const ENETUNREACH = 101;
const ECONNRESET = 104;
const ECONNREFUSED = 111;

/** An address of this host that is not loopback. */
const HOST_ADDRESS = Object.values(networkInterfaces())
  .flatMap((list) => list ?? [])
  .find(({ family, internal }) => family === "IPv4" && !internal)?.address;

const servers: Server[] = [];
const sockets = new Set<Socket>();

/** A server on every address of this host. */
async function serve(onConnection: (socket: Socket) => void): Promise<number> {
  const server = createServer({ allowHalfOpen: true }, (socket) => {
    sockets.add(socket);
    socket.on("error", () => {}).on("close", () => sockets.delete(socket));
    onConnection(socket);
  });
  servers.push(server);
  server.listen(0, "0.0.0.0");
  await once(server, "listening");
  return (server.address() as AddressInfo).port;
}

afterEach(() => {
  for (const server of servers.splice(0)) server.close();
  for (const socket of sockets) socket.destroy();
});

const egress = (...allow: string[]): NetworkSpec => ({ kind: "egress", allow, deny: [] });

/** A program that connects; prints "errno milliseconds", or "0 milliseconds" and what it then reads. */
const connecting = (address: string, port: number, then = "while (sysread(S, my $b, 65536)) { print $b }") => [
  "perl",
  "-MSocket",
  "-MTime::HiRes=time,sleep",
  "-e",
  `$| = 1; socket(S, PF_INET, SOCK_STREAM, 0); my $t = time; my $ok = connect(S, sockaddr_in(${port}, inet_aton("${address}")));
   printf "%d %d\\n", $ok ? 0 : $!, 1000 * (time - $t); exit if !$ok; ${then}`,
];

async function tryConnect(
  sandbox: Sandbox,
  address: string,
  port: number,
): Promise<{ errno: number; ms: number; text: string }> {
  const { stdout } = await run(sandbox, connecting(address, port), { limits: { wallMs: 60_000 } });
  const [, errno, ms, text] = /^(\d+) (\d+)\n(.*)$/s.exec(stdout) ?? [];
  return { errno: Number(errno), ms: Number(ms), text: text ?? "" };
}

describe("a sandbox without a network", () => {
  const use = useEngine();

  it("is told so at once", async () => {
    const sandbox = await use.create();
    expect(sandbox.spec.network).toEqual({ kind: "none" });
    for (const address of ["192.0.2.1", "169.254.169.254"]) {
      const { errno, ms } = await tryConnect(sandbox, address, 80);
      expect(errno).toBe(ENETUNREACH);
      expect(ms).toBeLessThan(patienceMs(300));
    }
    const { stdout } = await shell(sandbox, "ip -o link | wc -l; ss -ltunH | wc -l");
    expect(stdout.split(/\s+/).slice(0, 2)).toEqual(["1", "0"]);
  });
});

describe("a network spec", () => {
  const use = useEngine();

  it("with a rule that makes no sense makes no sandbox", async () => {
    await expect(
      use.create({ network: { kind: "egress", allow: ["10.0.0.1", "10.0.0.0/8:443", "example.com"], deny: [] } }),
    ).rejects.toMatchObject({ code: "invalid_argument", message: expect.stringContaining("network.allow[2]") });
    expect(use.engine.list()).toEqual([]);
  });
});

describe.skipIf(HOST_ADDRESS === undefined)("a sandbox with a way out (needs an address that is not loopback)", () => {
  const use = useEngine();
  const host = HOST_ADDRESS ?? "";

  it("reaches a server on this host only if a rule says so", async () => {
    const port = await serve((socket) => socket.end("from the host"));
    const closed = await use.create({ network: egress() });
    const wide = await use.create({ network: egress("0.0.0.0/0") });
    const other = await use.create({ network: egress(`${host}:${port === 1 ? 2 : 1}`) });
    for (const sandbox of [closed, wide, other]) {
      const { errno, ms } = await tryConnect(sandbox, host, port);
      expect(errno).toBe(ECONNREFUSED);
      expect(ms).toBeLessThan(patienceMs(300));
    }
    const open = await use.create({ network: egress(`${host}:${port}`) });
    expect(await tryConnect(open, host, port)).toMatchObject({ errno: 0, text: "from the host" });
  });

  it("sees what connect says where it goes", async () => {
    const port = await serve((socket) => socket.end());
    servers.pop()?.close();
    const sandbox = await use.create({ network: egress(host) });
    expect(await tryConnect(sandbox, host, port)).toMatchObject({ errno: ECONNREFUSED });
  });

  it("is denied what a rule denies", async () => {
    const port = await serve((socket) => socket.end("from the host"));
    const sandbox = await use.create({ network: { kind: "egress", allow: [`${host}/32`], deny: [host] } });
    expect(await tryConnect(sandbox, host, port)).toMatchObject({ errno: ECONNREFUSED });
  });

  it("keeps its loopback to itself", async () => {
    const sandbox = await use.create({ network: egress() });
    const server = await sandbox.start({
      argv: [
        "perl",
        "-MIO::Socket::INET",
        "-e",
        '$| = 1; my $s = IO::Socket::INET->new(LocalPort => 8080, Listen => 5) or die; print "up\\n"; while (my $c = $s->accept) { print $c "inside"; close $c }',
      ],
    });
    await server.output()[Symbol.asyncIterator]().next();
    for (const address of ["127.0.0.1", "198.18.0.2"]) {
      expect(await tryConnect(sandbox, address, 8080)).toMatchObject({ errno: 0, text: "inside" });
    }
    expect(await tryConnect(sandbox, "127.0.0.1", 8081)).toMatchObject({ errno: ECONNREFUSED });
    const dialled = await sandbox.dial({ port: 8080 });
    expect((await dialled.toArray()).join("")).toBe("inside");
    await server.cancel("the test", { graceMs: 0 });
  });

  it("cannot send datagrams but to nameservers, nor use IPv6, and learns both at once", async () => {
    const sandbox = await use.create({ network: egress("0.0.0.0/0", host) });
    const { stdout } = await run(sandbox, [
      "perl",
      "-MSocket=:all",
      "-e",
      `socket(U, PF_INET, SOCK_DGRAM, 0); print defined(send(U, "x", 0, sockaddr_in(123, inet_aton("${host}")))) ? 0 : 0+$!, "\\n";
       socket(S, PF_INET6, SOCK_STREAM, 0); connect(S, pack_sockaddr_in6(80, inet_pton(AF_INET6, "2001:db8::1"))); print 0+$!, "\\n"`,
    ]);
    expect(stdout).toBe(`${EPERM}\n${ENETUNREACH}\n`);
  });

  it("carries much both ways at once, with half closes", { timeout: patienceMs(60_000) }, async () => {
    const size = 24 * MIB;
    const received = createHash("sha256");
    let receivedBytes = 0;
    const sent = Buffer.alloc(size, "what the server says ");
    const port = await serve((socket) => {
      socket.on("data", (chunk) => {
        received.update(chunk);
        receivedBytes += chunk.length;
      });
      // It ends its side long before the program does, and the other way round for the last byte.
      socket.end(sent);
    });
    const sandbox = await use.create({ network: egress(host) });
    const script = `use Digest::SHA; if (!fork) { my $b = "program " x 8192; my $left = ${size}; while ($left > 0) { my $n = syswrite(S, $b, $left < 65536 ? $left : 65536) or die; $left -= $n } exit }
      my $d = Digest::SHA->new(256); while (sysread(S, my $b, 65536)) { $d->add($b) } wait; shutdown(S, 1); print $d->hexdigest`;
    const { stdout } = await run(sandbox, connecting(host, port, script), { limits: { wallMs: 60_000 } });
    expect(stdout.split("\n")[1]).toBe(createHash("sha256").update(sent).digest("hex"));
    while (receivedBytes < size) await sleep(10);
    expect(received.digest("hex")).toBe(createHash("sha256").update(Buffer.alloc(size, "program ")).digest("hex"));
  });

  it("hears that a server broke a connection, and the server that a program did", async () => {
    const ended: string[] = [];
    const port = await serve((socket) => {
      socket.once("data", (text) => {
        if (text.toString() === "break it") socket.resetAndDestroy();
      });
      socket.on("error", (error: NodeJS.ErrnoException) => ended.push(error.code ?? ""));
      socket.on("end", () => ended.push("end"));
    });
    const sandbox = await use.create({ network: egress(host) });
    const broken = 'syswrite(S, "break it"); my $n = sysread(S, my $b, 1); print defined $n ? "end" : 0+$!';
    expect((await run(sandbox, connecting(host, port, broken))).stdout).toMatch(/^0 \d+\n104$/);
    const linger = 'setsockopt(S, SOL_SOCKET, SO_LINGER, pack("II", 1, 0)); syswrite(S, "x"); sleep 0.2; close S';
    await run(sandbox, connecting(host, port, linger));
    for (let i = 0; i < 100 && ended.length === 0; i++) await sleep(20);
    expect(ended).toEqual(["ECONNRESET"]);
  });

  it("has 200 connections at once", { timeout: patienceMs(30_000) }, async () => {
    const count = 200;
    const port = await serve((socket) => socket.pipe(socket));
    const sandbox = await use.create({ network: egress(host) });
    const script = `use Fcntl; my @s; for (1..${count}) { socket(my $s, PF_INET, SOCK_STREAM, 0); fcntl($s, F_SETFL, O_NONBLOCK); connect($s, sockaddr_in(${port}, inet_aton("${host}"))); push @s, $s }
      my ($i, $ok) = (0, 0); for my $s (@s) { my $w = ""; vec($w, fileno($s), 1) = 1; select(undef, $w, undef, 30); fcntl($s, F_SETFL, 0); syswrite($s, "n" . $i++); shutdown($s, 1) }
      $i = 0; for my $s (@s) { my $got = ""; while (sysread($s, my $b, 100)) { $got .= $b } $ok++ if $got eq "n" . $i++ } print $ok`;
    const { stdout, stderr } = await run(sandbox, ["perl", "-MSocket", "-e", script], { limits: { wallMs: 60_000 } });
    expect(stderr).toBe("");
    expect(stdout).toBe(String(count));
  });

  it("is refused more connections than it may have, and may have others when those are gone", {
    timeout: patienceMs(30_000),
  }, async () => {
    const port = await serve((socket) => socket.on("end", () => socket.end()).resume());
    const sandbox = await use.create({ network: egress(host) });
    const script = `use Fcntl; my @s; for (1..600) { socket(my $s, PF_INET, SOCK_STREAM, 0); fcntl($s, F_SETFL, O_NONBLOCK); connect($s, sockaddr_in(${port}, inet_aton("${host}"))); push @s, $s }
      my $ok = 0; for my $s (@s) { my $w = ""; vec($w, fileno($s), 1) = 1; select(undef, $w, undef, 30); $ok++ if getpeername($s) } print $ok`;
    const { stdout } = await run(sandbox, ["perl", "-MSocket", "-e", script], { limits: { wallMs: 60_000 } });
    expect(stdout).toBe("512");
    for (let i = 0; i < 100 && sockets.size > 0; i++) await sleep(20);
    expect((await tryConnect(sandbox, host, await serve((socket) => socket.end("again")))).text).toBe("again");
  });

  it("that reads slowly holds up the server, and fills no memory on the way", {
    timeout: patienceMs(60_000),
  }, async () => {
    let writtenBytes = 0;
    const chunk = Buffer.alloc(MIB);
    const port = await serve((socket) => {
      const flood = () => {
        socket.write(chunk, (error) => {
          if (error) return;
          writtenBytes += chunk.length;
          flood();
        });
      };
      flood();
    });
    const sandbox = await use.create({ network: egress(host) });
    const count = scaled(20, 4);
    const before = process.memoryUsage.rss();
    const readers = await Promise.all(
      Array.from({ length: count }, () =>
        sandbox.start({
          argv: connecting(
            host,
            port,
            'sleep 3; my $n = 0; while ($n < 20 << 20) { $n += sysread(S, my $b, 65536) } print "done"',
          ),
        }),
      ),
    );
    const results = Promise.all(readers.map(collect));
    await sleep(2000);
    // The kernel's buffers of 20 connections, and ours.
    expect(writtenBytes).toBeLessThan(count * 16 * MIB);
    const stuckAt = writtenBytes;
    await sleep(500);
    expect(writtenBytes - stuckAt).toBeLessThan(4 * MIB);
    expect(process.memoryUsage.rss() - before).toBeLessThan(128 * MIB);
    for (const { stdout } of await results) expect(stdout).toContain("done");
  });

  it("goes on after it was frozen", async () => {
    const port = await serve((socket) => socket.pipe(socket));
    const sandbox = await use.create({ network: egress(host) });
    const command = await sandbox.start({
      argv: connecting(host, port, "while (<STDIN>) { syswrite(S, $_); sysread(S, my $b, 100); print $b }"),
      stdin: "open",
    });
    const output = command.output()[Symbol.asyncIterator]();
    const next = async () => {
      const { value } = await output.next();
      return value?.kind === "data" ? value.bytes.toString() : undefined;
    };
    expect(await next()).toMatch(/^0 /);
    command.stdin?.write("one\n");
    expect(await next()).toBe("one\n");
    await sandbox.freeze();
    for (const socket of sockets) socket.write("two\n");
    await sleep(200);
    await sandbox.thaw();
    command.stdin?.write("three\n");
    expect(await next()).toBe("two\n");
    await command.cancel("the test", { graceMs: 0 });
  });

  it("leaves nothing connected when it ends", async () => {
    const port = await serve((socket) => socket.resume());
    const sandbox = await use.create({ network: egress(host) });
    const command = await sandbox.start({ argv: connecting(host, port, "sleep 100") });
    await command.output()[Symbol.asyncIterator]().next();
    expect(sockets.size).toBe(1);
    await sandbox.kill("the test");
    for (let i = 0; i < 100 && sockets.size > 0; i++) await sleep(20);
    expect(sockets.size).toBe(0);
  });

  it("has it again when it was stopped and booted", async () => {
    const port = await serve((socket) => socket.end("still there"));
    const sandbox = await use.create({ network: egress(host) });
    await sandbox.stop("the test");
    const booted = await use.engine.boot(sandbox.id);
    expect((await tryConnect(booted, host, port)).text).toBe("still there");
  });
});

describe.skipIf(HOST_ADDRESS === undefined)("after our own SIGKILL", () => {
  const host = HOST_ADDRESS ?? "";
  beforeAll(buildEngine, patienceMs(60_000));

  it("a sandbox waits for its way out, and has it again when it is adopted", {
    timeout: patienceMs(60_000),
  }, async () => {
    const before = takeInventory();
    const stateDirectory = mkdtempSync(OUR_DIRECTORIES);
    const port = await serve((socket) => socket.end("served"));
    let isConnected = false;
    // Not before the program itself knows: what only we have connected is connected anew by whoever comes next.
    const silent = await serve((socket) => {
      socket.once("data", () => {
        isConnected = true;
      });
    });
    const wait = 'syswrite(S, "x"); my $n = sysread(S, my $b, 1); print defined $n ? "end" : 0+$!';
    const held = connecting(host, silent, wait);
    const owner = runScript("owner.mjs", [
      stateDirectory,
      JSON.stringify({
        sandboxes: [
          {
            spec: { limits: SMALL_LIMITS, network: egress(host) },
            // One that is connected when the owner dies, and one that connects while there is none.
            commands: [{ argv: held }, { argv: ["sh", "-c", `sleep 2; exec "$@"`, "sh", ...connecting(host, port)] }],
          },
        ],
      }),
    ]);
    const { made } = await owner.next<{ made: { id: string; commands: number[] }[] }>();
    await expect.poll(() => isConnected, { timeout: patienceMs(20_000) }).toBe(true);
    owner.child.kill("SIGKILL");
    await owner.exited;
    await sleep(2500);
    const engine = await BubblewrapEngine.open({ stateDirectory });
    try {
      const [sandbox] = await engine.adopt();
      if (sandbox === undefined) throw new Error("it was not adopted");
      const outputs = (made[0]?.commands ?? []).map(async (id) => {
        const command = await sandbox.attach(id, { from: { stdout: 0, stderr: 0 } });
        return (await collect(command)).stdout.split("\n")[1];
      });
      expect(await Promise.all(outputs)).toEqual([String(ECONNRESET), "served"]);
      expect((await tryConnect(sandbox, host, port)).text).toBe("served");
    } finally {
      await engine.close({ sandboxes: "kill" });
      rmSync(stateDirectory, { recursive: true, force: true });
    }
    await assertNoLeaks(forgiveZombies(before));
  });
});
