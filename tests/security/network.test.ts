/** The way out: what root inside makes of it. Root has no power over the namespace, and the host decides. */
import { once } from "node:events";
import { readdirSync, readFileSync } from "node:fs";
import { type AddressInfo, createServer, type Server } from "node:net";
import { networkInterfaces } from "node:os";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { expectAlive, tryInside, useSharedSandbox, WHO } from "../helpers/attack.js";
import { patienceMs } from "../helpers/scale.js";
import { MIB, useEngine } from "../helpers/use-engine.js";

const HOST_ADDRESSES = Object.values(networkInterfaces())
  .flatMap((list) => list ?? [])
  .filter(({ family, internal }) => family === "IPv4" && !internal)
  .map(({ address }) => address);

const EGRESS = { kind: "egress", allow: ["0.0.0.0/0"], deny: [] } as const;
/** Perl that prints the errno of a call, or "done". */
const trial = (modules: string, call: string) =>
  `perl -MSocket=:all ${modules} -e '${call} ? print "done\\n" : print 0+$!, "\\n"'`;
const EPERM = "1\n";

describe("a sandbox with a way out", () => {
  const shared = useSharedSandbox({ network: EGRESS });
  let server: Server;
  let port: number;
  let connections = 0;
  beforeAll(async () => {
    server = createServer((socket) => {
      connections += 1;
      socket.on("error", () => {}).end("from the host");
    });
    server.listen(0, "0.0.0.0");
    await once(server, "listening");
    ({ port } = server.address() as AddressInfo);
  });
  afterAll(() => void server.close());

  for (const user of WHO) {
    describe(`as ${user}`, () => {
      it("cannot reach a service of the host, by any of its addresses", async () => {
        for (const address of ["127.0.0.1", "127.0.0.53", "0.0.0.0", ...HOST_ADDRESSES]) {
          const seen = await tryInside(shared.sandbox, `timeout 5 cat < /dev/tcp/${address}/${port}`, user);
          expect(seen).toContain("Connection refused");
        }
        expect(connections).toBe(0);
      });

      it("cannot reach cloud metadata", async () => {
        const seen = await tryInside(shared.sandbox, "timeout 5 cat < /dev/tcp/169.254.169.254/80", user);
        expect(seen).toContain("Connection refused");
      });

      it.each([
        ["add a route", "ip route add 192.0.2.0/24 dev lo"],
        ["remove the default route", "ip route del default"],
        ["take the interface down", "ip link set eth0 down"],
        ["add an address", "ip addr add 192.0.2.9/32 dev eth0"],
        ["add an interface", "ip link add x0 type veth"],
        ["remove the rule for what is carried", "ip rule del priority 100"],
        ["flush the packet rules", "nft flush ruleset"],
        ["add a packet rule", "nft add table ip mine"],
        ["use the older packet filter", "iptables-legacy -F || iptables -F"],
        ["open a tunnel", "ip tuntap add dev t0 mode tun"],
      ])("cannot %s", async (_what, script) => {
        const before = await tryInside(shared.sandbox, "ip -o addr; ip route show table all; ip rule", "root");
        const seen = await tryInside(shared.sandbox, `PATH=$PATH:/usr/sbin:/sbin; (${script}) && echo DONE`, user);
        expect(seen).not.toContain("DONE");
        expect(await tryInside(shared.sandbox, "ip -o addr; ip route show table all; ip rule", "root")).toBe(before);
      });

      it.each([
        ["make a raw socket", trial("", "socket(S, PF_INET, SOCK_RAW, 1)")],
        ["make a raw socket for whole packets", trial("", "socket(S, PF_INET, SOCK_RAW, 255)")],
        [
          "mark its packets as the guest's",
          trial("", 'socket(S, PF_INET, SOCK_STREAM, 0); setsockopt(S, SOL_SOCKET, 36, pack("I", 1))'),
        ],
        [
          "pose as another address",
          trial("", 'socket(S, PF_INET, SOCK_STREAM, 0); setsockopt(S, 0, 19, pack("I", 1))'),
        ],
        ["make a raw socket for datagrams", trial("", "socket(S, PF_INET, SOCK_RAW, 17)")],
      ])("cannot %s", async (_what, script) => {
        expect(await tryInside(shared.sandbox, script, user)).toBe(EPERM);
      });

      it("cannot listen to the packets that the guest is told of", async () => {
        // NFULNL_MSG_CONFIG with a bind to group 1.
        const message = "1c000000 0104 0500 01000000 00000000 00 00 0001 0500 0100 01000000".replaceAll(" ", "");
        const seen = await tryInside(
          shared.sandbox,
          `perl -MSocket -e 'socket(S, 16, SOCK_RAW, 12) or die "no socket $!"; defined send(S, pack("H*", "${message}"), 0, pack("SSII", 16, 0, 0, 0)) or die "no send $!"; recv(S, my $b, 1000, 0); print unpack("l", substr($b, 16, 4))'`,
          user,
        );
        expect(seen).toMatch(/^-1$|no (socket|send)/);
      });

      it("gets nothing by coming straight to the guest's door", async () => {
        const script = `perl -MSocket -e '$SIG{ALRM} = sub { print "waits\\n"; exit }; alarm 5; socket(S, PF_INET, SOCK_STREAM, 0); connect(S, sockaddr_in(1, inet_aton("127.18.0.1"))) or die "refused\\n"; syswrite(S, "GET / HTTP/1.0\\r\\n\\r\\n"); my $n = sysread(S, my $b, 100); print $n ? "answered $b" : "closed", "\\n"'`;
        expect(await tryInside(shared.sandbox, script, user)).toMatch(/^(closed|refused)\n$/);
      });

      it("cannot take the guest's door over", async () => {
        const bind = (type: string) =>
          `perl -MSocket -e 'socket(S, PF_INET, ${type}, 0); setsockopt(S, SOL_SOCKET, $_, pack("i", 1)) for SO_REUSEADDR, 15; print bind(S, sockaddr_in(1, inet_aton("127.18.0.1"))) ? "bound" : "not", "\\n"'`;
        expect(await tryInside(shared.sandbox, bind("SOCK_STREAM"), user)).toBe("not\n");
        expect(await tryInside(shared.sandbox, bind("SOCK_DGRAM"), user)).toBe("not\n");
      });

      it("cannot send datagrams, multicast or pings", async () => {
        for (const [type, to] of [
          ["SOCK_DGRAM, 0", "192.0.2.1"],
          ["SOCK_DGRAM, 0", "224.0.0.251"],
          ["SOCK_DGRAM, 0", "255.255.255.255"],
        ]) {
          const script = `perl -MSocket -e 'socket(S, PF_INET, ${type}); setsockopt(S, SOL_SOCKET, SO_BROADCAST, pack("i", 1)); print defined send(S, "x", 0, sockaddr_in(5353, inet_aton("${to}"))) ? "sent" : 0+$!, "\\n"'`;
          expect(await tryInside(shared.sandbox, script, user)).toMatch(/^(1|101)\n$/);
        }
        const ping = `perl -MSocket -e 'socket(S, PF_INET, SOCK_DGRAM, 1) or print 0+$!, "\\n"'`;
        expect(await tryInside(shared.sandbox, ping, user)).toBe("13\n");
      });
    });
  }

  it("has no capability over its network that a command could have", async () => {
    const NET_ADMIN = 12n;
    const NET_RAW = 13n;
    const status = await tryInside(shared.sandbox, "cat /proc/self/status", "root");
    for (const set of ["CapPrm", "CapEff", "CapBnd", "CapAmb", "CapInh"]) {
      const bits = BigInt(`0x${new RegExp(`^${set}:\\s+(\\w+)`, "m").exec(status)?.[1]}`);
      expect([(bits >> NET_ADMIN) & 1n, (bits >> NET_RAW) & 1n]).toEqual([0n, 0n]);
    }
  });
});

describe("a hostile program with a way out", () => {
  const use = useEngine();

  const guestRssBytes = (): number =>
    Math.max(
      ...readdirSync("/proc")
        .filter((name) => /^\d+$/.test(name))
        .map((name) => {
          try {
            const status = readFileSync(`/proc/${name}/status`, "utf8");
            if (!/^Name:\s+holdfast-guest$/m.test(status)) return 0;
            return Number(/^VmRSS:\s+(\d+)/m.exec(status)?.[1] ?? 0) * 1024;
          } catch {
            return 0;
          }
        }),
    );

  it("does not exhaust the guest with connections that nobody accepts", { timeout: patienceMs(40_000) }, async () => {
    const sandbox = await use.create({ network: { kind: "egress", allow: [], deny: ["0.0.0.0/0"] } });
    const script = `perl -MSocket -MFcntl -e 'my $end = time + 4; my $n = 0; while (time < $end) { socket(my $s, PF_INET, SOCK_STREAM, 0) or next; fcntl($s, F_SETFL, O_NONBLOCK); connect($s, sockaddr_in(1 + $n % 60000, pack("N", 0x08000000 + $n++))); push @s, $s; shift @s if @s > 800 } print $n > 1000 ? "many" : $n'`;
    expect(await tryInside(sandbox, script, "root")).toBe("many");
    expect(guestRssBytes()).toBeLessThan(16 * MIB);
    await expectAlive(sandbox);
  });

  it("does not exhaust the guest with questions", { timeout: patienceMs(40_000) }, async () => {
    const sandbox = await use.create({ network: { kind: "egress", allow: [], deny: [] } });
    const script = `perl -MSocket -e 'my $end = time + 3; my $n = 0; while (time < $end) { socket(my $s, PF_INET, SOCK_DGRAM, 0); send($s, "x" x 3000, 0, sockaddr_in(53, pack("N", $n++))); push @s, $s; shift @s if @s > 500 } print $n > 1000 ? "many" : $n'`;
    expect(await tryInside(sandbox, script, "user")).toBe("many");
    expect(guestRssBytes()).toBeLessThan(16 * MIB);
    await expectAlive(sandbox);
  });
});
