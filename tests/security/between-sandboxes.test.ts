/** Two sandboxes on one host share nothing but the host. */
import { readdirSync, readFileSync } from "node:fs";
import { type AddressInfo, createServer } from "node:net";
import { networkInterfaces } from "node:os";
import type { Sandbox } from "@holdfast/engine";
import { describe, expect, it } from "vitest";
import { expectAlive, tryInside, WHO } from "../helpers/attack.js";
import { run, shell, useEngine } from "../helpers/use-engine.js";

describe("two sandboxes", () => {
  const use = useEngine();

  /** The uids that the kernel knows their processes by. */
  async function hostUids(sandbox: Sandbox): Promise<number[]> {
    const { stdout } = await shell(sandbox, "cat /proc/self/uid_map /proc/self/gid_map", { user: "root" });
    return stdout
      .trim()
      .split("\n")
      .map((line) => Number(line.trim().split(/\s+/)[1]));
  }

  it("cannot share a uid or a gid on the host", async () => {
    const sandboxes = await Promise.all([use.create(), use.create(), use.create(), use.create()]);
    const bases = await Promise.all(sandboxes.map(async (sandbox) => (await hostUids(sandbox))[0] ?? 0));
    expect(new Set(bases).size).toBe(4);
    for (const base of bases) {
      expect(base).toBeGreaterThanOrEqual(0x70000000);
      for (const other of bases) if (other !== base) expect(Math.abs(other - base)).toBeGreaterThanOrEqual(65_536);
    }
  });

  for (const user of WHO) {
    it(`cannot see, signal or trace each other's processes, as ${user}`, async () => {
      const [a, b] = await Promise.all([use.create(), use.create()]);
      const victim = await a.start({ argv: ["sleep", "1000"], user });
      const seen = await tryInside(
        b,
        "cat /proc/[0-9]*/comm; for p in $(seq 2 400); do [ $p = $$ ] || kill -9 $p; done 2>/dev/null; kill -9 -1",
        user,
      );
      expect(seen).not.toContain("sleep");
      await expectAlive(a);
      expect((await a.commands()).find((command) => command.id === victim.id)?.running).toBe(true);
      await victim.cancel("the test", { graceMs: 0 });
    });

    it(`cannot see each other's files, shared memory, queues or sockets, as ${user}`, async () => {
      const [a, b] = await Promise.all([use.create(), use.create()]);
      await tryInside(
        a,
        "echo mine > /tmp/mine; echo mine > /dev/shm/mine; echo mine > /var/tmp/mine; echo mine > ~/mine; ipcmk -M 4096",
        user,
      );
      const holding = await a.start({
        argv: ["/bin/bash", "-c", "exec 3<>/dev/tcp/127.0.0.1/1 || true; sleep 100"],
        user,
      });
      const seen = await tryInside(
        b,
        "cat /tmp/mine /dev/shm/mine /var/tmp/mine ~/mine; ipcs -m | grep -c 4096; cat /proc/net/unix | grep -vc holdfast-sudo",
        user,
      );
      expect(seen).not.toMatch(/^mine$/m);
      expect(seen).toMatch(/^0\n1\n$/m);
      await holding.cancel("the test", { graceMs: 0 });
    });
  }

  it("cannot reach each other's guest by its sudo socket", async () => {
    const [a, b] = await Promise.all([use.create({ hostname: "first" }), use.create({ hostname: "second" })]);
    expect((await run(a, ["sudo", "hostname"])).stdout).toBe("first\n");
    expect((await run(b, ["sudo", "hostname"])).stdout).toBe("second\n");
  });

  it("cannot reach each other's ports", async () => {
    const [a, b] = await Promise.all([use.create(), use.create()]);
    const server = await a.start({
      argv: [
        "/bin/bash",
        "-c",
        'exec 2>&1; perl -e \'use IO::Socket::INET; my $s = IO::Socket::INET->new(LocalPort => 8080, Listen => 5, ReuseAddr => 1) or die; print "up\\n"; $| = 1; while (my $c = $s->accept) { print $c "from a\\n"; close $c }\'',
      ],
    });
    const reachable = async (sandbox: Sandbox) =>
      (
        await tryInside(
          sandbox,
          "for i in 1 2 3 4 5 6 7 8 9 10; do cat < /dev/tcp/127.0.0.1/8080 && break; sleep 0.1; done 2>/dev/null",
          "user",
        )
      ).includes("from a");
    expect(await reachable(a)).toBe(true);
    expect(await reachable(b)).toBe(false);
    await server.cancel("the test", { graceMs: 0 });
  });

  it("cannot reach a port of the host", async () => {
    const server = createServer((socket) => socket.on("error", () => {}).end("from the host"));
    await new Promise<void>((resolve) => server.listen(0, "0.0.0.0", resolve));
    const { port } = server.address() as AddressInfo;
    const addresses = Object.values(networkInterfaces())
      .flatMap((list) => list ?? [])
      .filter((address) => address.family === "IPv4")
      .map((address) => address.address);
    try {
      const sandbox = await use.create();
      for (const user of WHO) {
        for (const address of ["127.0.0.1", "127.0.0.2", ...addresses]) {
          const seen = await tryInside(sandbox, `timeout 1 cat < /dev/tcp/${address}/${port}`, user);
          expect(seen).not.toContain("from the host");
        }
      }
    } finally {
      server.close();
    }
  });

  it("cannot inherit a uid range with something left in it", async () => {
    const first = await use.create();
    const [base] = await hostUids(first);
    await shell(first, "(setsid sleep 1000 &) ; true");
    await first.kill("the test");
    const living = readdirSync("/proc")
      .filter((name) => /^\d+$/.test(name))
      .filter((name) => {
        try {
          return (
            Number(/^Uid:\s+(\d+)/m.exec(readFileSync(`/proc/${name}/status`, "utf8"))?.[1]) >>> 16 ===
            (base ?? 0) >>> 16
          );
        } catch {
          return false;
        }
      });
    expect(living).toEqual([]);
  });
});

describe("ids of sandboxes", () => {
  const use = useEngine();

  for (const id of [
    "../escape",
    "..",
    ".",
    "a/b",
    "/etc",
    "",
    "a\0b",
    "a\nb",
    "A".repeat(300),
    "-rf",
    "a b",
    "é",
    "%2e%2e",
  ]) {
    it(`cannot be ${JSON.stringify(id).slice(0, 40)}`, async () => {
      await expect(use.create({ id: id as never })).rejects.toMatchObject({ code: "invalid_argument" });
    });
  }

  it("cannot be taken twice", async () => {
    const first = await use.create();
    await expect(use.create({ id: first.id })).rejects.toMatchObject({ code: "sandbox_exists" });
    await expectAlive(first);
  });
});
