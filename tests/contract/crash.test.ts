/** The server may be killed with SIGKILL at any moment: sandboxes go on, and what it had promised holds. */
import { basename } from "node:path";
import { setTimeout as sleep } from "node:timers/promises";
import { E2B } from "e2b";
import { beforeAll, describe, expect, test } from "vitest";
import { takeInventory } from "../helpers/leaks.js";
import { patienceMs, scaled } from "../helpers/scale.js";
import { useServer } from "../helpers/use-server.js";
import { failure, says } from "./cell.js";
import { listAll, OPERATIONS, type Surroundings } from "./crash-operations.js";
import { ConnectReader, OffsetReader } from "./numbered-output.js";

const KILLS = scaled(32, 4);
/** By then most of what was begun is done; short times are the likelier ones. */
const LONGEST_MS = patienceMs(100);

/** The same numbers for the same seed. */
function randomFrom(seed: number): () => number {
  let state = seed;
  return () => {
    state = (state + 0x6d2b79f5) | 0;
    let t = Math.imul(state ^ (state >>> 15), 1 | state);
    t = (t + Math.imul(t ^ (t >>> 7), 61 | t)) ^ t;
    return ((t ^ (t >>> 14)) >>> 0) / 2 ** 32;
  };
}

const server = useServer();
let client: E2B;
beforeAll(() => {
  client = new E2B({ apiKey: server.apiKey, apiUrl: server.url, sandboxUrl: server.url });
});

async function crash(): Promise<void> {
  await server.kill("SIGKILL");
  await server.restart();
}

/** What somebody else left on this host before we came is not ours to explain. */
const foreignCgroups = new Set(takeInventory().sandboxCgroups);

/** On the host there is nothing of a sandbox that the server does not list. */
async function expectNothingElse(surroundings: Surroundings): Promise<void> {
  const listed = new Set((await listAll(surroundings)).map(({ sandboxId }) => sandboxId));
  const unknown = () => {
    const known = new Set([...listed, ...server.readyDirectories()]);
    return [
      ...server.sandboxDirectories().filter((name) => !known.has(name)),
      ...takeInventory().sandboxCgroups.filter((path) => !known.has(basename(path)) && !foreignCgroups.has(path)),
    ];
  };
  await expect.poll(unknown, { timeout: 3000 }).toEqual([]);
}

describe("a SIGKILL at any moment", () => {
  const seed = Number(process.env.HOLDFAST_SEED ?? Math.floor(Math.random() * 2 ** 31));

  test(
    `${KILLS} times, loses nothing that was promised (HOLDFAST_SEED=${seed})`,
    async () => {
      const random = randomFrom(seed);
      const metadata = { role: "witness, größe & more" };
      const witness = await client.Sandbox.create({ timeoutMs: 3_600_000, metadata, envs: { KEPT: "env" } });
      const surroundings: Surroundings = {
        server,
        client,
        random,
        witness,
        ended: new Set(),
        endAt: (await witness.getInfo()).endAt,
      };
      const connectReader = new ConnectReader(witness);
      const offsetReader = new OffsetReader(server, witness.sandboxId);
      await connectReader.start();
      await offsetReader.start();
      const counts = new Map<string, { answered: number; cut: number }>();

      for (let kills = 0; kills < KILLS; kills++) {
        // Half of them in turn, so that all are there; the moment is what is random.
        const chosen = OPERATIONS.filter((_, i) => i % 2 === kills % 2);
        const prepared = await Promise.all(
          chosen.map(async ({ name, prepare }) => ({ name, begin: await prepare(surroundings) })),
        );
        const begun = prepared.map(({ name, begin }) => ({ name, ...begin() }));
        await sleep(random() ** 2 * LONGEST_MS);
        await crash();

        for (const { name, answered } of begun) {
          const count = counts.get(name) ?? { answered: 0, cut: 0 };
          count[(await answered) ? "answered" : "cut"]++;
          counts.set(name, count);
        }
        await Promise.all([connectReader.connectAgain(), offsetReader.connectAgain()]);
        await Promise.all(begun.map(({ verify }) => verify()));

        const info = await witness.getInfo();
        expect(info).toMatchObject({ state: "running", metadata, endAt: surroundings.endAt });
        expect((await witness.commands.run("echo $KEPT")).stdout).toBe("env\n");
        expect((await witness.commands.list()).map(({ pid }) => pid)).toContain(connectReader.pid);
        const shown = (await listAll(surroundings)).map(({ sandboxId }) => sandboxId);
        expect(shown.filter((id) => surroundings.ended.has(id))).toEqual([]);
        await expectNothingElse(surroundings);
        expect([connectReader.problem, offsetReader.problem]).toEqual([undefined, undefined]);
      }

      const [byConnect, byOffset] = [connectReader.position, offsetReader.position];
      await expect.poll(() => connectReader.position, { timeout: 5000 }).toBeGreaterThan(byConnect);
      await expect.poll(() => offsetReader.position, { timeout: 5000 }).toBeGreaterThan(byOffset);
      expect([connectReader.problem, offsetReader.problem]).toEqual([undefined, undefined]);
      const summary = [...counts].map(([name, { answered, cut }]) => `${name} ${answered} answered, ${cut} cut`);
      console.log(
        `${KILLS} kills; ${summary.join("; ")}; ${connectReader.position} bytes of output by Connect ` +
          `(${connectReader.repeatedBytes} of them twice), ${offsetReader.position} by offset`,
      );
      await witness.kill();
    },
    patienceMs(120_000),
  );
});

describe("after a SIGKILL", () => {
  test("a command that ended meanwhile has its exit code and all its output", async () => {
    const sandbox = await client.Sandbox.create();
    const command = await sandbox.commands.run("echo one; sleep 0.7; echo two; exit 9", { background: true });
    void command.wait().catch(() => {});
    await says(command, "one");
    await server.kill("SIGKILL");
    await sleep(1000);
    await server.restart();
    const again = await sandbox.commands.connect(command.pid);
    expect(await failure(again.wait())).toMatchObject({ exitCode: 9, stdout: "two\n" });
    await sandbox.kill();
  });

  test("a time that ran out meanwhile is up", async () => {
    const sandbox = await client.Sandbox.create({ timeoutMs: 1000 });
    const pausing = await client.Sandbox.create({ timeoutMs: 1000, lifecycle: { onTimeout: "pause" } });
    await server.kill("SIGKILL");
    await sleep(1500);
    await server.restart();
    await expect.poll(() => sandbox.isRunning(), { timeout: 3000 }).toBe(false);
    await expect
      .poll(async () => (await server.call<{ message: string }>("GET", `/sandboxes/${sandbox.sandboxId}`)).body.message)
      .toMatch(/end of its life/i);
    await expect.poll(async () => (await pausing.getInfo()).state, { timeout: 3000 }).toBe("paused");
    await pausing.connect({ timeoutMs: 60_000 });
    expect((await pausing.commands.run("echo back")).stdout).toBe("back\n");
    await pausing.kill();
  });

  test("a paused sandbox is paused, and goes on when it is asked", async () => {
    const frozen = await client.Sandbox.create();
    const stopped = await client.Sandbox.create();
    const command = await frozen.commands.run("sleep 1000", { background: true, timeoutMs: 0 });
    void command.wait().catch(() => {});
    await stopped.files.write("kept", "kept");
    await frozen.pause();
    await stopped.pause({ keepMemory: false });
    await crash();
    for (const sandbox of [frozen, stopped]) {
      expect((await sandbox.getInfo()).state).toBe("paused");
      expect(await sandbox.isRunning()).toBe(false);
      await sandbox.connect();
    }
    expect((await frozen.commands.list()).map(({ pid }) => pid)).toContain(command.pid);
    expect(await stopped.files.read("kept")).toBe("kept");
    await frozen.kill();
    await stopped.kill();
  });

  test("tokens are the same, and a reader's sandbox needs no new client", async () => {
    const sandbox = await client.Sandbox.create({ network: { allowPublicTraffic: false } });
    await crash();
    const again = await client.Sandbox.connect(sandbox.sandboxId);
    expect(again.trafficAccessToken).toBe(sandbox.trafficAccessToken);
    expect((await sandbox.commands.run("echo same")).stdout).toBe("same\n");
    await sandbox.kill();
  });
});

describe("after a SIGTERM", () => {
  test("the server leaves in order, and the next one goes on", async () => {
    const sandbox = await client.Sandbox.create();
    const command = await sandbox.commands.run("echo one; read line; echo two", {
      background: true,
      stdin: true,
      timeoutMs: 0,
    });
    void command.wait().catch(() => {});
    await says(command, "one");
    await server.stop();
    await server.restart();
    const again = await sandbox.commands.connect(command.pid, { timeoutMs: 0 });
    await again.sendStdin("go\n");
    expect(await again.wait()).toMatchObject({ exitCode: 0, stdout: "two\n" });
    await sandbox.kill();
  });
});
