/** A sandbox: the object that you work with. */
import type {
  CommandInfo,
  CommandList,
  CreateSandboxBody,
  Postmortem,
  SandboxEnding,
  SandboxEvent,
  SandboxInfo,
  SandboxLimits,
  SandboxUsage,
} from "@holdfast/protocol";
import { randomToken } from "./bytes.js";
import { Command, type Waiting } from "./command.js";
import { type EventsOptions, events } from "./events.js";
import { Files } from "./files.js";
import { type ListOptions, listSandboxes } from "./list.js";
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

export interface CreateOptions extends CreateSandboxBody, Waiting {
  /** The same key gives the same sandbox, however often it is asked. Default: a new one for each call. */
  readonly idempotencyKey?: string | undefined;
}

/** The limits that can be changed while it runs. */
export type ResizeLimits = Partial<Pick<SandboxLimits, "memoryBytes" | "cpuMillis" | "pids">>;

export async function createSandbox(transport: Transport, options: CreateOptions = {}): Promise<Sandbox> {
  const { template, limits, env, metadata, timeoutMs, onTimeout, autoResume, idempotencyKey, signal } = options;
  const info: SandboxInfo = await transport.json("POST", "/sandboxes", {
    json: { template, limits, env, metadata, timeoutMs, onTimeout, autoResume },
    // With it, a create whose answer was lost can be asked for once more.
    headers: { "idempotency-key": idempotencyKey ?? randomToken() },
    repeatable: true,
    signal,
  });
  return new Sandbox(transport, info.id);
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
