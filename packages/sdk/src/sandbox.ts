/** A sandbox: the object that you work with. */
import {
  type CommandInfo,
  type CommandList,
  type CreateSandboxBody,
  type ForkList,
  HoldfastError,
  type Postmortem,
  parseSize,
  type ResizeLimits,
  type SandboxEnding,
  type SandboxEvent,
  type SandboxInfo,
  type SandboxUsage,
  type SnapshotInfo,
} from "@holdfast/protocol";
import { Image } from "@holdfast/recipe";
import { type BuildOptions, buildImage } from "./build.js";
import { randomToken } from "./bytes.js";
import { Command, type Waiting } from "./command.js";
import { type EventsOptions, events } from "./events.js";
import { Files } from "./files.js";
import { type ListOptions, listSandboxes } from "./list.js";
import { errorFromBody } from "./rebuild-error.js";
import {
  type CommandLine,
  commandBody,
  type RunOptions,
  type RunResult,
  runCommand,
  type StartOptions,
  type StreamedCommand,
  streamCommand,
} from "./run.js";
import { type ConnectionOptions, Transport } from "./transport.js";

export interface CreateOptions extends Omit<CreateSandboxBody, "image">, Waiting {
  /** An image by name, digest or id; or one that you have declared, which is built first if it is not there. */
  readonly image?: string | Image | undefined;
  /** Short for `limits.memoryBytes`, in MiB. */
  readonly memoryMb?: number | undefined;
  /** A limit that starts small and grows while there is room on the host, instead of `memoryMb`. */
  readonly memory?: MemoryRange | undefined;
  /** Short for `limits.cpuMillis`; may be a fraction. */
  readonly cpus?: number | undefined;
  /** Short for `limits.diskBytes`, in MiB. */
  readonly diskMb?: number | undefined;
  /** While a declared image is built: every line of the log. */
  readonly onBuildLog?: BuildOptions["onLog"];
  /** For the same: whom to be to registries. */
  readonly registryAuths?: BuildOptions["registryAuths"];
  /** The same key gives the same sandbox, however often it is asked. Default: a new one for each call. */
  readonly idempotencyKey?: string | undefined;
}

/** Sandboxes that were made of another, and how. */
export type Forks = Sandbox[] & {
  /** What came with them: files only, on this engine. */
  readonly restored: "files";
  /** `clone`: took the same time whatever its size. `copy`: the pool cannot do that. */
  readonly method: ForkList["method"];
};

/** In bytes, or as texts such as "128m" and "1g". */
export interface MemoryRange {
  readonly start: number | string;
  readonly max: number | string;
}

/** All of them: one that is missing here or there is a type error. */
const CREATE_OPTIONS: Readonly<Record<keyof (CreateOptions & ConnectionOptions), true>> = {
  template: true,
  image: true,
  strict: true,
  limits: true,
  env: true,
  metadata: true,
  timeoutMs: true,
  onTimeout: true,
  autoResume: true,
  memoryMb: true,
  memory: true,
  cpus: true,
  diskMb: true,
  onBuildLog: true,
  registryAuths: true,
  waitMs: true,
  idempotencyKey: true,
  signal: true,
  url: true,
  apiKey: true,
  fetch: true,
  retry: true,
};

/** A limit that is misspelt would be none. */
function refuseUnknown(options: CreateOptions): void {
  for (const name of Object.keys(options)) {
    if (Object.hasOwn(CREATE_OPTIONS, name)) continue;
    throw new HoldfastError("invalid_argument", `create.${name}: there is no such option`, {
      hint: `There are ${Object.keys(CREATE_OPTIONS).join(", ")}.`,
      details: { field: name },
    });
  }
}

export async function createSandbox(transport: Transport, options: CreateOptions = {}): Promise<Sandbox> {
  refuseUnknown(options);
  const { template, strict, env, metadata, timeoutMs, onTimeout, autoResume, waitMs, idempotencyKey, signal } = options;
  const image =
    options.image instanceof Image
      ? (
          await buildImage(transport, options.image, {
            signal,
            onLog: options.onBuildLog,
            registryAuths: options.registryAuths,
          })
        ).id
      : options.image;
  const limits = limitsOf(options);
  const info: SandboxInfo = await transport.json("POST", "/sandboxes", {
    json: { template, image, strict, limits, env, metadata, timeoutMs, onTimeout, autoResume, waitMs },
    // With it, a create whose answer was lost can be asked for once more.
    headers: { "idempotency-key": idempotencyKey ?? randomToken() },
    repeatable: true,
    signal,
  });
  return new Sandbox(transport, info.id);
}

const MIB = 1024 * 1024;

/** One way to say it is enough; with two there would have to be a winner. */
function limitsOf(options: CreateOptions): CreateSandboxBody["limits"] {
  const { limits, memoryMb, memory, cpus, diskMb } = options;
  if (memory !== undefined && memoryMb !== undefined) {
    throw new HoldfastError("invalid_argument", "create.memory: is given twice, here and as memoryMb", {
      details: { field: "memory" },
    });
  }
  const short = {
    ...(memoryMb === undefined ? {} : { memoryBytes: Math.round(memoryMb * MIB) }),
    ...(memory === undefined ? {} : rangeOf(memory)),
    ...(cpus === undefined ? {} : { cpuMillis: Math.round(cpus * 1000) }),
    ...(diskMb === undefined ? {} : { diskBytes: Math.round(diskMb * MIB) }),
  };
  for (const name of Object.keys(short)) {
    if (limits !== undefined && Object.hasOwn(limits, name)) {
      throw new HoldfastError("invalid_argument", `limits.${name}: is given twice, here and in its short form`, {
        details: { field: `limits.${name}` },
      });
    }
  }
  return Object.keys(short).length === 0 ? limits : { ...limits, ...short };
}

function rangeOf({ start, max }: MemoryRange): { memoryBytes: number; memoryMaxBytes: number } {
  const bytesOf = (name: string, size: number | string) =>
    typeof size === "number" ? size : parseSize(size, `create.memory.${name}`);
  return { memoryBytes: bytesOf("start", start), memoryMaxBytes: bytesOf("max", max) };
}

/** Makes sure that it is there. One that has ended is found too, for a day. */
export async function connectSandbox(transport: Transport, id: string, options: Waiting = {}): Promise<Sandbox> {
  const sandbox = new Sandbox(transport, id);
  await sandbox.info(options);
  return sandbox;
}

export class Sandbox {
  readonly id: string;
  readonly files: Files;
  readonly #transport: Transport;
  readonly #path: string;

  /** @internal Use `Sandbox.create` or `Sandbox.connect`. */
  constructor(transport: Transport, id: string) {
    this.#transport = transport;
    this.id = id;
    this.#path = `/sandboxes/${encodeURIComponent(id)}`;
    this.files = new Files(transport, this.#path);
  }

  /** A new sandbox. If the connection fails on the way, the same one is asked for again: there are never two. */
  static create(options: CreateOptions & ConnectionOptions = {}): Promise<Sandbox> {
    return createSandbox(new Transport(options), options);
  }

  /** One that exists. It is not resumed by it if it is paused. */
  static connect(id: string, options: ConnectionOptions & Waiting = {}): Promise<Sandbox> {
    return connectSandbox(new Transport(options), id, options);
  }

  /** Those of your key, newest first, page by page as you read on. */
  static list(options: ListOptions & ConnectionOptions = {}): AsyncGenerator<SandboxInfo> {
    return listSandboxes(new Transport(options), options);
  }

  /**
   * Runs a command to its end. A text runs under `/bin/bash -l -c`, a list is a program and its arguments. Whatever the
   * program did (it failed, crashed, ran out of memory, timed out) is in the result: nothing of it is thrown.
   */
  run(line: CommandLine, options: RunOptions = {}): Promise<RunResult> {
    return runCommand(this.#transport, this.#path, line, options);
  }

  /**
   * Starts a command and reads it from its first byte: however fast it writes, nothing is lost, because it waits for its
   * reader.
   */
  stream(line: CommandLine, options: StartOptions = {}): Promise<StreamedCommand> {
    return streamCommand(this.#transport, this.#path, line, options);
  }

  /** Starts a command and leaves it running. Its output is kept, as much as `limits.outputBytes` of the sandbox says. */
  async start(line: CommandLine, options: StartOptions = {}): Promise<Command> {
    const info: CommandInfo = await this.#transport.json("POST", `${this.#path}/commands`, {
      json: commandBody(line, options),
      signal: options.signal,
    });
    return new Command(this.#transport, this.#path, info);
  }

  /** A command that was started before, by whomever. */
  async command(id: number, options: Waiting = {}): Promise<Command> {
    const path = `${this.#path}/commands/${id}`;
    const info: CommandInfo = await this.#transport.json("GET", path, { signal: options.signal });
    return new Command(this.#transport, this.#path, info);
  }

  /** Those that run and those that have ended, newest first. */
  async commands(options: Waiting = {}): Promise<readonly CommandInfo[]> {
    const { commands }: CommandList = await this.#transport.json("GET", `${this.#path}/commands`, {
      signal: options.signal,
    });
    return commands;
  }

  async info(options: Waiting = {}): Promise<SandboxInfo> {
    return this.#transport.json("GET", this.#path, { signal: options.signal });
  }

  /** What it uses now, beside what it may use. */
  async usage(options: Waiting = {}): Promise<SandboxUsage> {
    return this.#transport.json("GET", `${this.#path}/usage`, { signal: options.signal });
  }

  /** Changes its limits while it runs. */
  async resize(limits: ResizeLimits, options: Waiting = {}): Promise<SandboxInfo> {
    return this.#transport.json("PATCH", `${this.#path}/limits`, {
      json: limits,
      signal: options.signal,
      repeatable: true,
    });
  }

  /** Its time is up so long from now. */
  async setTimeout(timeoutMs: number, options: Waiting = {}): Promise<SandboxInfo> {
    return this.#transport.json("POST", `${this.#path}/timeout`, {
      json: { timeoutMs },
      signal: options.signal,
      repeatable: true,
    });
  }

  /** With its processes (default), or with `memory: false` its files only. */
  async pause(options: Waiting & { readonly memory?: boolean | undefined } = {}): Promise<SandboxInfo> {
    return this.#transport.json("POST", `${this.#path}/pause`, {
      json: { memory: options.memory },
      signal: options.signal,
    });
  }

  /** `memory: false` boots it anew from its files, even if its processes were kept. */
  async resume(
    options: Waiting & { readonly timeoutMs?: number | undefined; readonly memory?: boolean | undefined } = {},
  ): Promise<SandboxInfo> {
    const { signal, timeoutMs, memory } = options;
    return this.#transport.json("POST", `${this.#path}/resume`, { json: { timeoutMs, memory }, signal });
  }

  /** Keeps its files as an image. It goes on running. */
  async snapshot(options: Waiting & { readonly name?: string | undefined } = {}): Promise<SnapshotInfo> {
    return this.#transport.json("POST", `${this.#path}/snapshots`, {
      json: { name: options.name },
      signal: options.signal,
    });
  }

  /**
   * New sandboxes with its files as of now, and none of its processes: `count` of them (1 to 100; default 1), or none and
   * the reason.
   */
  async fork(
    options: Waiting & { readonly count?: number | undefined; readonly timeoutMs?: number | undefined } = {},
  ): Promise<Forks> {
    const { signal, count, timeoutMs } = options;
    const { forks, method }: ForkList = await this.#transport.json("POST", `${this.#path}/fork`, {
      json: { count, timeoutMs },
      signal,
    });
    const made = forks.flatMap((fork) => ("sandbox" in fork ? [new Sandbox(this.#transport, fork.sandbox.id)] : []));
    const failed = forks.flatMap((fork) => ("error" in fork ? [fork.error] : []))[0];
    if (failed === undefined) return Object.assign(made, { restored: "files" as const, method });
    // Half of a fork is nobody's plan.
    await Promise.all(made.map((sandbox) => sandbox.kill().catch(() => {})));
    throw errorFromBody(failed) ?? new HoldfastError("engine_fault", "a fork failed without a reason");
  }

  /** Ends it. One that has ended already says how. */
  async kill(options: Waiting = {}): Promise<SandboxEnding> {
    return this.#transport.json("DELETE", this.#path, { signal: options.signal, repeatable: true });
  }

  /** What happens to it, until its end. Comes back by itself when the connection breaks. */
  events(options: EventsOptions = {}): AsyncGenerator<SandboxEvent> {
    return events(this.#transport, `${this.#path}/events`, options);
  }

  /** For a day after its end: cause, evidence, processes, counters, the last output of its commands. */
  async postmortem(options: Waiting = {}): Promise<Postmortem> {
    return this.#transport.json("GET", `${this.#path}/postmortem`, { signal: options.signal });
  }

  /** `await using sandbox = await Sandbox.create()` ends it when the block is left. */
  async [Symbol.asyncDispose](): Promise<void> {
    await this.kill();
  }
}
