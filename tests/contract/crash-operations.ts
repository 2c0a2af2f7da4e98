/**
 * What the server is killed in the middle of. Each begins something, and says how to prove after the restart that it
 * happened whole or not at all. An answer that arrived is a promise; without one, both are right.
 */
import { randomUUID } from "node:crypto";
import type { E2B, Sandbox } from "e2b";
import { expect } from "vitest";
import type { ServerInUse } from "../helpers/use-server.js";
import { sha256 } from "./cell.js";

const MIB = 1024 * 1024;

export interface Surroundings {
  readonly server: ServerInUse;
  readonly client: E2B;
  /** The moments and choices of this run. */
  random(): number;
  /** Alive through everything. */
  readonly witness: Sandbox;
  /** Ids of which an end has been seen: none of them may ever show up again. */
  readonly ended: Set<string>;
  /** When the witness's time is up, as far as it has been told. */
  endAt: Date;
}

interface Begun {
  /** Whether an answer came. Never rejects. */
  readonly answered: Promise<boolean>;
  verify(): Promise<void>;
}

/** First what it needs, then, all operations of a round together, the thing itself. */
type Operation = (surroundings: Surroundings) => Promise<() => Begun>;

function answer<T>(promise: Promise<T>): { answered: Promise<boolean>; value: Promise<T | undefined> } {
  const value = promise.catch(() => undefined);
  return {
    value,
    answered: promise.then(
      () => true,
      () => false,
    ),
  };
}

export async function listAll(
  { client }: Surroundings,
  metadata?: Record<string, string>,
): Promise<{ sandboxId: string; state: string }[]> {
  const paginator = client.Sandbox.list({
    query: { state: ["running", "paused"], ...(metadata === undefined ? {} : { metadata }) },
  });
  const found = [];
  while (paginator.hasNext) found.push(...(await paginator.nextItems()));
  return found;
}

async function expectWell(sandbox: Sandbox): Promise<void> {
  expect((await sandbox.commands.run("echo well")).stdout).toBe("well\n");
}

async function end({ ended }: Surroundings, sandbox: Sandbox): Promise<void> {
  expect(await sandbox.kill()).toBe(true);
  ended.add(sandbox.sandboxId);
}

const create: Operation = async (surroundings) => {
  const metadata = { tag: randomUUID() };
  return () => {
    const { answered, value } = answer(surroundings.client.Sandbox.create({ metadata, timeoutMs: 600_000 }));
    const verify = async () => {
      const found = await listAll(surroundings, metadata);
      const made = await value;
      if (made !== undefined) expect(found).toMatchObject([{ sandboxId: made.sandboxId, state: "running" }]);
      expect(found.length).toBeLessThanOrEqual(1);
      for (const { sandboxId } of found) {
        // The client that was told of it, or one that comes anew.
        const sandbox = made ?? (await surroundings.client.Sandbox.connect(sandboxId));
        await expectWell(sandbox);
        await end(surroundings, sandbox);
      }
    };
    return { answered, verify };
  };
};

const createOnce: Operation = async (surroundings) => {
  const { server, client } = surroundings;
  const body = { templateID: "base", timeout: 600, metadata: { tag: randomUUID() } };
  const headers = { "Idempotency-Key": randomUUID() };
  const call = () => server.call<{ sandboxID: string }>("POST", "/v2/sandboxes", body, headers);
  return () => {
    const { answered, value } = answer(call());
    const verify = async () => {
      const first = await value;
      const again = await call();
      expect(again.status, JSON.stringify(again.body)).toBe(201);
      const { sandboxID } = again.body;
      if (first !== undefined) expect(first.body.sandboxID).toBe(sandboxID);
      expect(await listAll(surroundings, body.metadata)).toMatchObject([{ sandboxId: sandboxID }]);
      const sandbox = await client.Sandbox.connect(sandboxID);
      await expectWell(sandbox);
      await end(surroundings, sandbox);
    };
    return { answered, verify };
  };
};

const kill: Operation = async (surroundings) => {
  const { client, server, ended } = surroundings;
  const sandbox = await client.Sandbox.create({ timeoutMs: 600_000 });
  const id = sandbox.sandboxId;
  return () => {
    const { answered } = answer(sandbox.kill());
    const verify = async () => {
      const isListed = (await listAll(surroundings)).some(({ sandboxId }) => sandboxId === id);
      if (await answered) expect(isListed).toBe(false);
      if (isListed) {
        await expectWell(sandbox);
        return end(surroundings, sandbox);
      }
      ended.add(id);
      const { status, body } = await server.call<{ message: string }>("GET", `/sandboxes/${id}`);
      expect(status).toBe(404);
      expect(body.message).toContain(id);
    };
    return { answered, verify };
  };
};

const pause: Operation = async (surroundings) => {
  const sandbox = await surroundings.client.Sandbox.create({ timeoutMs: 600_000 });
  const command = await sandbox.commands.run("sleep 1000", { background: true, timeoutMs: 0 });
  void command.wait().catch(() => {});
  await sandbox.files.write("kept", "kept");
  const keepMemory = surroundings.random() < 0.7;
  return () => {
    const { answered } = answer(sandbox.pause({ keepMemory }));
    const verify = async () => {
      const { state } = await sandbox.getInfo();
      if (await answered) expect(state).toBe("paused");
      await sandbox.connect({ timeoutMs: 600_000 });
      const pids = (await sandbox.commands.list()).map(({ pid }) => pid);
      if (keepMemory) expect(pids).toContain(command.pid);
      expect(await sandbox.files.read("kept")).toBe("kept");
      await end(surroundings, sandbox);
    };
    return { answered, verify };
  };
};

const changeTimeout: Operation = async (surroundings) => {
  const { witness } = surroundings;
  const before = surroundings.endAt;
  const timeoutMs = 3_000_000 + Math.floor(surroundings.random() * 1000) * 1000;
  return () => {
    const asked = Date.now();
    const { answered } = answer(witness.setTimeout(timeoutMs));
    const verify = async () => {
      const { endAt } = await witness.getInfo();
      const isNew = Math.abs(endAt.getTime() - (asked + timeoutMs)) < 5000;
      if (await answered) expect(isNew).toBe(true);
      else if (!isNew) expect(endAt).toEqual(before);
      surroundings.endAt = endAt;
    };
    return { answered, verify };
  };
};

const upload: Operation = async ({ witness }) => {
  const path = `/tmp/upload-${randomUUID()}`;
  const content = Buffer.alloc(6 * MIB, path);
  return () => {
    const { answered } = answer(witness.files.write(path, new Blob([content])));
    const verify = async () => {
      if (await answered) {
        expect((await witness.commands.run(`sha256sum ${path}`)).stdout).toContain(sha256(content));
      }
      await witness.files.remove(path);
    };
    return { answered, verify };
  };
};

export const OPERATIONS: readonly { readonly name: string; readonly prepare: Operation }[] = [
  { name: "create", prepare: create },
  { name: "kill", prepare: kill },
  { name: "upload", prepare: upload },
  { name: "create once", prepare: createOnce },
  { name: "pause", prepare: pause },
  { name: "change the time to live", prepare: changeTimeout },
];
