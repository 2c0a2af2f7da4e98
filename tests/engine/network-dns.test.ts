/** Names: what a sandbox asks, who answers, and what becomes of a nameserver that lies. */
import { createSocket, type Socket as UdpSocket } from "node:dgram";
import { once } from "node:events";
import { createServer as createHttpServer } from "node:http";
import { type AddressInfo, createServer, type Server } from "node:net";
import { networkInterfaces } from "node:os";
import type { Sandbox } from "@holdfast/engine";
import { afterAll, afterEach, beforeAll, describe, expect, it } from "vitest";
import { DnsForwarder } from "../../packages/engine/src/network/dns-forwarder.js";
import { patienceMs } from "../helpers/scale.js";
import { run, shell, useEngine } from "../helpers/use-engine.js";

const HOST_ADDRESS = Object.values(networkInterfaces())
  .flatMap((list) => list ?? [])
  .find(({ family, internal }) => family === "IPv4" && !internal)?.address;

const TYPE_A = 1;
const TYPE_TXT = 16;

/** A nameserver for the tests: knows some names, over UDP and TCP. */
class Nameserver {
  readonly #udp: UdpSocket = createSocket("udp4");
  readonly #tcp: Server;
  readonly asked: string[] = [];
  readonly addresses = new Map<string, string>();
  /** Instead of the answer. */
  mischief: ((question: Buffer, answer: Buffer) => Buffer[]) | undefined;

  constructor() {
    this.#udp.on("message", (question, from) => {
      const answer = this.#answer(question, "udp");
      const answers = this.mischief?.(question, answer) ?? [answer];
      for (const bytes of answers) this.#udp.send(bytes, from.port, from.address);
    });
    this.#tcp = createServer((socket) => {
      socket
        .on("error", () => {})
        .on("data", (bytes) => {
          const answer = this.#answer(bytes.subarray(2), "tcp");
          const length = Buffer.alloc(2);
          length.writeUInt16BE(answer.length);
          // In pieces, as networks do.
          socket.write(length.subarray(0, 1));
          setImmediate(() => socket.write(Buffer.concat([length.subarray(1), answer])));
        });
    });
  }

  async listen(): Promise<number> {
    this.#udp.bind(0, "127.0.0.1");
    await once(this.#udp, "listening");
    const { port } = this.#udp.address();
    this.#tcp.listen(port, "127.0.0.1");
    await once(this.#tcp, "listening");
    return port;
  }

  close(): void {
    this.#udp.close();
    this.#tcp.close();
  }

  #answer(question: Buffer, over: "udp" | "tcp"): Buffer {
    const labels: string[] = [];
    let at = 12;
    while (question[at] !== 0) {
      const length = question[at] ?? 0;
      labels.push(question.subarray(at + 1, at + 1 + length).toString("latin1"));
      at += 1 + length;
    }
    const name = labels.join(".").toLowerCase();
    const type = question.readUInt16BE(at + 1);
    this.asked.push(`${over} ${name} ${type}`);
    const address = this.addresses.get(name);
    const big = name === "big.test";
    const records =
      type === TYPE_A && address !== undefined
        ? [Buffer.from([0xc0, 12, 0, 1, 0, 1, 0, 0, 0, 9, 0, 4, ...address.split(".").map(Number)])]
        : type === TYPE_TXT && big && over === "tcp"
          ? Array.from({ length: 20 }, () =>
              Buffer.concat([Buffer.from([0xc0, 12, 0, 16, 0, 1, 0, 0, 0, 9, 0, 101, 100]), Buffer.alloc(100, "t")]),
            )
          : [];
    const head = Buffer.alloc(12);
    question.copy(head, 0, 0, 2);
    const known = address !== undefined || big;
    head.writeUInt16BE(0x8180 | (known ? 0 : 3) | (big && over === "udp" ? 0x0200 : 0), 2);
    head.writeUInt16BE(1, 4);
    head.writeUInt16BE(records.length, 6);
    return Buffer.concat([head, question.subarray(12, at + 5), ...records]);
  }
}

function question(name: string, type = TYPE_A, id = 0x4711): Buffer {
  const head = Buffer.from([id >> 8, id & 255, 1, 0, 0, 1, 0, 0, 0, 0, 0, 0]);
  const labels = name.split(".").map((label) => Buffer.concat([Buffer.from([label.length]), Buffer.from(label)]));
  return Buffer.concat([head, ...labels, Buffer.from([0, type >> 8, type & 255, 0, 1])]);
}

const rcodeOf = (answer: Buffer | undefined) => (answer === undefined ? undefined : (answer[3] ?? 0) & 15);

let nameserver: Nameserver;
let port: number;
const forwarders: DnsForwarder[] = [];
beforeAll(async () => {
  nameserver = new Nameserver();
  port = await nameserver.listen();
  process.env.HOLDFAST_NAMESERVERS = `127.0.0.1:${port}`;
});
afterAll(() => {
  nameserver.close();
  delete process.env.HOLDFAST_NAMESERVERS;
});
afterEach(() => {
  nameserver.mischief = undefined;
  nameserver.asked.length = 0;
  for (const forwarder of forwarders.splice(0)) forwarder.close();
});

function forwarder(...ports: number[]): DnsForwarder {
  const made = new DnsForwarder(() =>
    (ports.length === 0 ? [port] : ports).map((one) => ({ address: "127.0.0.1", port: one })),
  );
  forwarders.push(made);
  return made;
}

describe("the forwarder", () => {
  it("asks and answers", async () => {
    nameserver.addresses.set("known.test", "192.0.2.77");
    const answer = await forwarder().answer(question("Known.test"), "udp");
    expect(answer?.readUInt16BE(0)).toBe(0x4711);
    expect(answer?.subarray(-4)).toEqual(Buffer.from([192, 0, 2, 77]));
    expect(answer?.includes("Known")).toBe(true);
    expect(rcodeOf(await forwarder().answer(question("unknown.test"), "udp"))).toBe(3);
  });

  it("does not believe an answer to another question", async () => {
    nameserver.addresses.set("known.test", "192.0.2.77");
    nameserver.mischief = (asked, answer) => {
      const wrongId = Buffer.from(answer);
      wrongId.writeUInt16BE((answer.readUInt16BE(0) + 1) & 0xffff);
      wrongId.set([6, 6, 6, 6], wrongId.length - 4);
      const wrongName = Buffer.from(answer.toString("latin1").replace("known", "other"), "latin1");
      wrongName.set([6, 6, 6, 6], wrongName.length - 4);
      return [Buffer.alloc(0), Buffer.alloc(5), asked, wrongId, wrongName, answer];
    };
    const answer = await forwarder().answer(question("known.test"), "udp");
    expect(answer?.subarray(-4)).toEqual(Buffer.from([192, 0, 2, 77]));
  });

  it("goes to the next nameserver, and gives up after the last", { timeout: patienceMs(10_000) }, async () => {
    nameserver.addresses.set("known.test", "192.0.2.77");
    const silent = createSocket("udp4");
    silent.bind(0, "127.0.0.1");
    await once(silent, "listening");
    const dead = silent.address().port;
    expect(rcodeOf(await forwarder(dead, port).answer(question("known.test"), "udp"))).toBe(0);
    expect(rcodeOf(await forwarder(dead).answer(question("known.test"), "udp"))).toBe(2);
    silent.close();
    // Nobody is there at all, which the kernel knows at once.
    expect(rcodeOf(await forwarder(dead, port).answer(question("known.test"), "udp"))).toBe(0);
  });

  it("gets over TCP what does not fit into a datagram, for clients that ask over TCP", async () => {
    const short = await forwarder().answer(question("big.test", TYPE_TXT), "udp");
    expect((short?.[2] ?? 0) & 2).toBe(2);
    const whole = await forwarder().answer(question("big.test", TYPE_TXT), "tcp");
    expect(whole?.readUInt16BE(6)).toBe(20);
    expect(nameserver.asked).toEqual(["udp big.test 16", "udp big.test 16", "tcp big.test 16"]);
  });

  it("answers only so many questions at a time", async () => {
    const silent = createSocket("udp4");
    silent.bind(0, "127.0.0.1");
    await once(silent, "listening");
    const asking = forwarder(silent.address().port);
    const answers = Array.from({ length: 70 }, (_, index) => asking.answer(question(`n${index}.test`), "udp"));
    const refused = await Promise.all(answers.slice(64));
    expect(refused.map(rcodeOf)).toEqual([5, 5, 5, 5, 5, 5]);
    asking.close();
    expect(new Set((await Promise.all(answers.slice(0, 64))).map(rcodeOf))).toEqual(new Set([2]));
    silent.close();
  });

  it("answers only so many questions in a second", async () => {
    nameserver.addresses.set("known.test", "192.0.2.77");
    const asking = forwarder();
    let refused = 0;
    for (let round = 0; round < 30; round++) {
      const answers = await Promise.all(Array.from({ length: 50 }, () => asking.answer(question("known.test"), "udp")));
      refused += answers.filter((answer) => rcodeOf(answer) === 5).length;
    }
    expect(refused).toBeGreaterThan(0);
  });

  it("asks nobody what it answers itself", async () => {
    await forwarder().answer(question("localhost"), "udp");
    await forwarder().answer(question("known.test", 28), "udp");
    await forwarder().answer(question("bad name.test"), "udp");
    expect(nameserver.asked).toEqual([]);
  });
});

describe.skipIf(HOST_ADDRESS === undefined)("names in a sandbox (needs an address that is not loopback)", () => {
  const use = useEngine();
  const host = HOST_ADDRESS ?? "";
  const resolving = (sandbox: Sandbox, name: string) =>
    run(sandbox, ["perl", "-MSocket", "-e", `my $a = inet_aton("${name}"); print $a ? inet_ntoa($a) : "none"`]);

  it("a server is reached by its name", async () => {
    const server = createHttpServer((request, response) => response.end(`hello ${request.headers.host}`));
    server.listen(0, "0.0.0.0");
    await once(server, "listening");
    const { port: httpPort } = server.address() as AddressInfo;
    nameserver.addresses.set("served.test", host);
    try {
      const sandbox = await use.create({ network: { kind: "egress", allow: [`${host}:${httpPort}`], deny: [] } });
      const { stdout, stderr } = await run(sandbox, ["curl", "-sS", "-m", "10", `http://served.test:${httpPort}/`]);
      expect([stdout, stderr]).toEqual([`hello served.test:${httpPort}`, ""]);
    } finally {
      server.close();
      server.closeAllConnections();
    }
  });

  it("are resolved whatever /etc says", async () => {
    nameserver.addresses.set("known.test", "192.0.2.77");
    const sandbox = await use.create({ network: { kind: "egress", allow: [], deny: [] } });
    for (const file of [
      "rm -f /etc/resolv.conf",
      ": > /etc/resolv.conf",
      "echo nameserver 192.0.2.99 > /etc/resolv.conf",
      "echo nameserver 127.0.0.53 > /etc/resolv.conf",
    ]) {
      await shell(sandbox, file, { user: "root" });
      expect((await resolving(sandbox, "known.test")).stdout).toBe("192.0.2.77");
      expect((await resolving(sandbox, "unknown.test")).stdout).toBe("none");
    }
    await shell(sandbox, "rm -f /etc/hosts /etc/resolv.conf", { user: "root" });
    expect((await resolving(sandbox, "localhost")).stdout).toBe("127.0.0.1");
  });

  it("do not tell what this host calls its neighbours", async () => {
    const sandbox = await use.create({ network: { kind: "egress", allow: [], deny: [] } });
    await resolving(sandbox, "ip6-allnodes.test");
    expect(nameserver.asked).toEqual(["udp ip6-allnodes.test 1"]);
  });

  it("are answered over TCP too, whoever is asked", async () => {
    nameserver.addresses.set("known.test", "192.0.2.77");
    const sandbox = await use.create({ network: { kind: "egress", allow: [], deny: ["0.0.0.0/0"] } });
    const asked = question("big.test", TYPE_TXT);
    for (const address of ["127.0.0.1", "192.0.2.99"]) {
      const { stdout } = await run(sandbox, [
        "perl",
        "-MSocket",
        "-e",
        // Two questions at once, the second in pieces, then no more.
        `$| = 1; socket(S, PF_INET, SOCK_STREAM, 0); connect(S, sockaddr_in(53, inet_aton("${address}"))) or die "$!"; my $q = pack("n", ${asked.length}) . pack("H*", "${asked.toString("hex")}");
         syswrite(S, $q . substr($q, 0, 3)); select(undef, undef, undef, 0.1); syswrite(S, substr($q, 3)); shutdown(S, 1); my $got = ""; while (sysread(S, my $b, 65536)) { $got .= $b } print length($got)`,
      ]);
      expect(stdout).toBe(String(2 * (2 + asked.length + 20 * 113)));
    }
  });

  it("an endless or nonsensical question over TCP ends the connection", async () => {
    const sandbox = await use.create({ network: { kind: "egress", allow: [], deny: [] } });
    for (const sent of ['"\\xff\\xff" . "x" x 5000', '"\\0\\x04abcd"']) {
      const { stdout } = await run(sandbox, [
        "perl",
        "-MSocket",
        "-e",
        `socket(S, PF_INET, SOCK_STREAM, 0); connect(S, sockaddr_in(53, inet_aton("192.0.2.99"))) or die; syswrite(S, ${sent}); my $n = sysread(S, my $b, 100); print $n ? "answered" : "ended"`,
      ]);
      expect(stdout).toBe("ended");
    }
  });
});
