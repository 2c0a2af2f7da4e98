/** Measurements of a client: each is a subject that can take turns with others. */
import { type Subject, timed } from "./harness.js";
import type { Client, ClientSandbox } from "./server-clients.js";
import type { ServerProcess } from "./server-process.js";

/** A create alone. What was made goes before the next turn, uncounted. */
export function createSubject(client: Client): Subject {
  return {
    name: client.name,
    async measure() {
      let sandbox: ClientSandbox | undefined;
      const spent = await timed(async () => {
        sandbox = await client.create();
      });
      await sandbox?.kill();
      return spent;
    },
  };
}

/** From the wish for a sandbox to the first byte that a command in it says. */
export function firstOutputSubject(client: Client): Subject {
  return {
    name: client.name,
    async measure() {
      const start = performance.now();
      let spent: number | undefined;
      const sandbox = await client.create();
      await sandbox.run(() => {
        spent ??= performance.now() - start;
      });
      await sandbox.kill();
      if (spent === undefined) throw new Error("the measured command said nothing");
      return spent;
    },
  };
}

export function commandSubject(name: string, sandbox: ClientSandbox): Subject {
  return { name, measure: () => timed(() => sandbox.run()) };
}

/**
 * A server that has just been started interprets what one that has served for a minute has compiled. The second is what
 * users have, and the engine beside it is warm from the figures before.
 */
export async function warmUp(work: () => Promise<unknown>, times: number): Promise<void> {
  let left = times;
  const worker = async () => {
    while (left-- > 0) await work();
  };
  await Promise.all(Array.from({ length: 4 }, worker));
}

/** As the subject, and counts the CPU time that a process spends on it: the noise of others is not in that. */
export function withCpu(subject: Subject, spentMs: number[], readCpuMs: () => Promise<number>): Subject {
  return {
    ...subject,
    async measure() {
      const before = await readCpuMs();
      const value = await subject.measure();
      spentMs.push((await readCpuMs()) - before);
      return value;
    },
  };
}

export const cpuOfServer = (server: ServerProcess) => async (): Promise<number> => (await server.usage()).cpuMs;

/** Where the engine works, when it is the one of the bench. */
export async function cpuOfThisProcess(): Promise<number> {
  const { user, system } = process.cpuUsage();
  return (user + system) / 1000;
}
