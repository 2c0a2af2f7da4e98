/** A real `holdfast serve`, as it is built, in a process of its own. */
import { type ChildProcess, spawn } from "node:child_process";
import { once } from "node:events";
import { mkdirSync, openSync } from "node:fs";
import { join } from "node:path";
import { createInterface } from "node:readline";
import type { Readable } from "node:stream";
import { fileURLToPath } from "node:url";
import { BubblewrapEngine } from "@holdfast/engine";
import { type Bench, createRow, type Row } from "./harness.js";
import { exitOf } from "./processes.js";
import type { ProbeQuestion, ProbeUsage } from "./server-probe.js";

const CLI = fileURLToPath(new URL("../../packages/cli/dist/main.js", import.meta.url));
const PROBE = new URL("./server-probe.js", import.meta.url).href;
/** Nobody is held up by the limit that new keys have. */
const FLAGS = ["serve", "--json", "--port", "0", "--key-requests-per-second", "none", "--log-level", "warn"];

interface Announcement {
  readonly url: string;
  readonly apiKey: string;
}

export class ServerProcess {
  readonly url: string;
  readonly apiKey: string;
  readonly #child: ChildProcess;
  readonly #profileDirectory: string | undefined;
  #asking: Promise<unknown> = Promise.resolve();

  constructor(child: ChildProcess, { url, apiKey }: Announcement, profileDirectory: string | undefined) {
    this.url = url;
    this.apiKey = apiKey;
    this.#child = child;
    this.#profileDirectory = profileDirectory;
  }

  /** `collect`: after the garbage is gone. */
  async usage(options: { readonly collect?: boolean } = {}): Promise<ProbeUsage> {
    return (await this.#ask({ ask: "usage", collect: options.collect ?? false })) as ProbeUsage;
  }

  /** Profiles the server while `work` goes on, if profiles are wanted. */
  async profiled<T>(name: string, work: () => Promise<T>): Promise<T> {
    const directory = this.#profileDirectory;
    if (directory === undefined) return work();
    mkdirSync(directory, { recursive: true });
    await this.#ask({ ask: "profile" });
    try {
      return await work();
    } finally {
      await this.#ask({ ask: "profile-end", path: join(directory, `${name}.cpuprofile`) });
    }
  }

  /** What its process holds now: a row for each kind. */
  async memoryRows(note?: string): Promise<Row[]> {
    const { rssBytes, heapBytes, externalBytes } = await this.usage({ collect: true });
    return [
      createRow("the server's process afterwards, resident", "bytes", [[rssBytes]], note === undefined ? {} : { note }),
      createRow("  of it: heap in use", "bytes", [[heapBytes]]),
      createRow("  of it: buffers", "bytes", [[externalBytes]]),
    ];
  }

  /** One question at a time: answers carry no number. */
  #ask(question: ProbeQuestion): Promise<unknown> {
    const answer = this.#asking.then(async () => {
      this.#child.send(question);
      const [said] = (await once(this.#child, "message")) as [unknown];
      return said;
    });
    this.#asking = answer.catch(() => {});
    return answer;
  }
}

async function announced(child: ChildProcess, log: string): Promise<Announcement> {
  const lines = createInterface({ input: child.stdout as Readable });
  const line = await Promise.race([once(lines, "line").then(([text]) => String(text)), exitOf(child).then(() => null)]);
  if (line === null) throw new Error(`the server ended before it was ready; see ${log}`);
  child.stdout?.resume();
  return JSON.parse(line) as Announcement;
}

/** Sandboxes outlive their server, as they should. These here are nobody's after it. */
async function killAll(stateDirectory: string): Promise<void> {
  const engine = await BubblewrapEngine.open({ stateDirectory });
  await engine.adopt();
  await engine.close({ sandboxes: "kill" });
}

/** Without sandboxes that are ready before they are asked for, unless the flags say so. */
export async function startServerProcess(
  bench: Bench,
  name: string,
  flags: readonly string[] = ["--warm-total", "0"],
): Promise<ServerProcess> {
  const stateDirectory = join(bench.scratchDirectory, `state-${name}`);
  const log = join(bench.scratchDirectory, `${name}.log`);
  const args = ["--expose-gc", "--import", PROBE, CLI, ...FLAGS, ...flags, "--state-dir", stateDirectory];
  // In a process group of its own, because Ctrl-C is for us to pass on.
  const child = spawn(process.execPath, args, {
    stdio: ["ignore", "pipe", openSync(log, "a"), "ipc"],
    detached: true,
  });
  bench.onEnd(async () => {
    child.kill("SIGTERM");
    await exitOf(child);
    await killAll(stateDirectory);
  });
  return new ServerProcess(child, await announced(child, log), bench.profileDirectory);
}

/** One for all figures of a run. */
let shared: Promise<ServerProcess> | undefined;

export function sharedServer(bench: Bench): Promise<ServerProcess> {
  shared ??= startServerProcess(bench, "server");
  return shared;
}
