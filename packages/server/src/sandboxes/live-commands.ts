/**
 * The commands of one running sandbox. For each there is one handle that stays as long as the command runs: input and
 * signals go through it, and its ending is recorded by it whether or not anybody reads the output. Readers come and go.
 */
import { setImmediate as nextTurn } from "node:timers/promises";
import type { Command, CommandSpec, CommandSummary, OutputEvent, OutputOffsets, Sandbox } from "@holdfast/engine";
import { type CommandEnding, HoldfastError, type SandboxId } from "@holdfast/protocol";
import type { Logger } from "pino";
import type { CommandRow, Store } from "../store/store.js";
import type { DeliveredOffsets } from "./delivered-offsets.js";
import type { EventLog } from "./event-log.js";
import { OutputTail, TAIL_BYTES } from "./output-tail.js";
import type { Attachment, CommandSelector, LiveCommands } from "./types.js";

/** Older output than this is lost to a reader who comes back; it lies in a file inside and counts against the disk. */
const SPILL_BYTES = 32 * 1024 * 1024;
/** How many ended commands a selector looks through. */
const REMEMBERED = 256;
/** How long a dying sandbox is asked for the last words of commands that nobody was reading. */
const LAST_WORDS_MS = 150;
const MAX_LAST_WORDS = 16;

interface Entry {
  readonly row: CommandRow;
  readonly control: Command;
  readonly ended: Promise<CommandEnding>;
  readonly tails: { readonly stdout: OutputTail; readonly stderr: OutputTail };
  /** Settles when the store knows that it started: its ending must not come first. */
  readonly stored: Promise<void>;
}

export interface LastWords {
  readonly row: CommandRow;
  readonly stdout: Buffer;
  readonly stderr: Buffer;
}

function commandNotFound(selector: CommandSelector): HoldfastError {
  const [name, value] = Object.entries(selector)[0] ?? ["id", "?"];
  return new HoldfastError("command_not_found", `no command with ${name} ${String(value)} in this sandbox`);
}

export class SandboxCommands implements LiveCommands {
  readonly #sandbox: Sandbox;
  readonly #keyId: string;
  readonly #store: Store;
  readonly #events: EventLog;
  readonly #delivered: DeliveredOffsets;
  readonly #log: Logger;
  readonly #admitCommand: (id: SandboxId) => Promise<() => void>;
  readonly #running = new Map<number, Entry>();
  /** The last few that ended, with what they said. */
  readonly #ended: Entry[] = [];
  readonly #recording = new Set<Promise<void>>();
  #released = false;

  constructor(parts: {
    readonly sandbox: Sandbox;
    readonly keyId: string;
    readonly store: Store;
    readonly events: EventLog;
    readonly delivered: DeliveredOffsets;
    readonly log: Logger;
    readonly admitCommand: (id: SandboxId) => Promise<() => void>;
  }) {
    this.#sandbox = parts.sandbox;
    this.#keyId = parts.keyId;
    this.#store = parts.store;
    this.#events = parts.events;
    this.#delivered = parts.delivered;
    this.#log = parts.log;
    this.#admitCommand = parts.admitCommand;
  }

  async start(spec: CommandSpec): Promise<Attachment> {
    const leave = await this.#admitCommand(this.#sandbox.id);
    // E2B's programs look there; the files of the same names in /run/e2b are the engine's.
    const identity = { E2B_SANDBOX: "true", E2B_SANDBOX_ID: this.#sandbox.id };
    const env = { ...identity, ...this.#sandbox.spec.env, ...spec.env };
    const starting = this.#sandbox.start({ whenReaderIsSlow: "block", spillBytes: SPILL_BYTES, ...spec, env });
    starting.then((started) => started.ended.then(leave), leave);
    const control = await starting;
    const row: CommandRow = {
      sandboxId: this.#sandbox.id,
      id: control.id,
      pid: control.pid,
      argv: spec.argv,
      env: spec.env ?? {},
      cwd: spec.cwd ?? null,
      user: spec.user ?? null,
      tag: spec.tag ?? null,
      pty: spec.pty !== undefined,
      startedAt: new Date(),
      endedAt: null,
      ending: null,
    };
    return this.#attachment(this.#keep(row, control, this.#recordStart(row)), control);
  }

  /** Takes over what runs in an adopted sandbox, and learns how those ended that ended while nobody looked. */
  async adopt(): Promise<void> {
    const stored = new Map((await this.#store.commands.list(this.#sandbox.id)).map((row) => [row.id, row]));
    for (const summary of await this.#sandbox.commands()) {
      const row = stored.get(summary.id);
      stored.delete(summary.id);
      if (row !== undefined && row.ending !== null) continue;
      const control = await this.#sandbox.attach(summary.id, {
        from: { stdout: summary.stdoutBytes, stderr: summary.stderrBytes },
      });
      control.detach();
      if (row !== undefined) this.#keep({ ...row, argv: summary.argv }, control, Promise.resolve());
      else {
        const found = rowFromSummary(this.#sandbox.id, summary);
        this.#keep(found, control, this.#recordStart(found));
      }
    }
    for (const row of stored.values()) {
      const why = "it ended while no server was running, and the sandbox no longer remembers how";
      if (row.ending === null) await this.#recordEnd(row, lostEnding(row, why));
    }
  }

  async running(): Promise<CommandRow[]> {
    return [...this.#running.values()].map((entry) => entry.row);
  }

  async find(selector: CommandSelector): Promise<CommandRow> {
    const fits = (row: CommandRow): boolean =>
      "id" in selector
        ? row.id === selector.id
        : "pid" in selector
          ? row.pid === selector.pid
          : row.tag === selector.tag;
    const entry = [...this.#running.values()].reverse().find(({ row }) => fits(row));
    if (entry !== undefined) return entry.row;
    await Promise.all(this.#recording);
    const row = (await this.#store.commands.list(this.#sandbox.id, { limit: REMEMBERED })).find(fits);
    if (row === undefined) throw commandNotFound(selector);
    return row;
  }

  async attach(
    id: number,
    options: { from?: OutputOffsets | undefined; whenReaderIsSlow?: "block" | "drop" } = {},
  ): Promise<Attachment> {
    const from = options.from ?? this.#delivered.get(id);
    const command = await this.#sandbox.attach(id, { from, whenReaderIsSlow: options.whenReaderIsSlow ?? "block" });
    const entry = this.#running.get(id);
    if (entry !== undefined) return this.#attachment(entry, command);
    const row = await this.find({ id });
    const ended = row.ending === null ? command.ended : Promise.resolve(row.ending);
    const tails = { stdout: new OutputTail(), stderr: new OutputTail() };
    return this.#attachment({ row, control: command, ended, tails, stored: Promise.resolve() }, command);
  }

  async signal(id: number, signal: string | number, options: { whole?: boolean } = {}): Promise<void> {
    await this.#entry(id).control.signal(signal, options);
  }

  async resize(id: number, size: { columns: number; rows: number }): Promise<void> {
    await this.#entry(id).control.resize(size);
  }

  async writeInput(id: number, bytes: Uint8Array): Promise<void> {
    const stdin = this.#input(id);
    await new Promise<void>((resolve, reject) => {
      stdin.write(bytes, (error) => (error == null ? resolve() : reject(HoldfastError.from(error))));
    });
  }

  async closeInput(id: number): Promise<void> {
    const stdin = this.#input(id);
    await new Promise<void>((resolve) => {
      stdin.end(() => resolve());
    });
  }

  cancel(id: number, by: string, options: { graceMs?: number } = {}): Promise<CommandEnding> {
    return this.#entry(id).control.cancel(by, options);
  }

  /** What the commands said last. Asks the guest for what no reader has seen, but not for long. */
  async lastWords(options: { readonly askGuest: boolean }): Promise<LastWords[]> {
    const running = [...this.#running.values()].slice(-MAX_LAST_WORDS);
    if (options.askGuest && running.length > 0) {
      const deadline = new Promise<void>((resolve) => setTimeout(resolve, LAST_WORDS_MS).unref());
      // A guest that cannot answer any more has said its last words.
      await Promise.race([deadline, this.#readTails(running).catch(() => {})]);
    }
    return [...this.#ended.slice(-MAX_LAST_WORDS), ...running].slice(-MAX_LAST_WORDS).map(({ row, tails }) => ({
      row,
      stdout: tails.stdout.bytes,
      stderr: tails.stderr.bytes,
    }));
  }

  /** The sandbox's processes have ended: resolves when every command's ending is in the store. */
  async settled(): Promise<void> {
    await Promise.all([...this.#running.values()].map((entry) => entry.ended));
    while (this.#recording.size > 0) await Promise.all(this.#recording);
    // Those that were never taken over: it was frozen all the time that this server has run.
    for (const row of await this.#store.commands.list(this.#sandbox.id, { unended: true })) {
      await this.#recordEnd(row, lostEnding(row, "its sandbox was ended while it was paused"));
    }
  }

  /** Another server will take over: whatever happens from now on is not ours to record. */
  release(): void {
    this.#released = true;
  }

  #entry(id: number): Entry {
    const entry = this.#running.get(id);
    if (entry === undefined) throw commandNotFound({ id });
    return entry;
  }

  #input(id: number): NonNullable<Command["stdin"]> {
    const { control, row } = this.#entry(id);
    const { stdin } = control;
    if (stdin === undefined || stdin.writableEnded || stdin.destroyed) {
      throw new HoldfastError("invalid_argument", `the command with pid ${row.pid} has no open stdin`, {
        details: { field: "stdin" },
        hint: "Start it with stdin open, and write before closing it.",
      });
    }
    return stdin;
  }

  #keep(row: CommandRow, control: Command, stored: Promise<void>): Entry {
    const tails = { stdout: new OutputTail(), stderr: new OutputTail() };
    const ended = control.ended.then(async (ending) => {
      await stored;
      // Let go of, not ended: the next server hears how.
      if (this.#released) return ending;
      this.#running.delete(row.id);
      this.#delivered.forget(row.id);
      this.#ended.push({ ...entry, row: { ...row, ending, endedAt: new Date() } });
      if (this.#ended.length > MAX_LAST_WORDS) this.#ended.shift();
      void this.#recordEnd(row, ending);
      return ending;
    });
    const entry: Entry = { row, control, ended, tails, stored };
    this.#running.set(row.id, entry);
    return entry;
  }

  #attachment(entry: Entry, command: Command): Attachment {
    const { row, ended, tails } = entry;
    async function* output(): AsyncGenerator<OutputEvent> {
      try {
        for await (const event of command.output()) {
          if (event.kind === "data") tails[event.stream].add(event.offset, event.bytes);
          yield event;
        }
      } finally {
        command.detach();
      }
    }
    const delivered = (event: OutputEvent) => {
      const length = event.kind === "data" ? event.bytes.length : event.length;
      this.#delivered.advance(row.id, event.stream, event.offset + length);
    };
    return { row, ended, output, delivered, detach: () => command.detach() };
  }

  async #readTails(entries: readonly Entry[]): Promise<void> {
    const totals = new Map((await this.#sandbox.commands()).map((summary) => [summary.id, summary]));
    await Promise.all(
      entries.map(async ({ row, tails }) => {
        const total = totals.get(row.id);
        if (total === undefined) return;
        const missing = total.stdoutBytes > tails.stdout.end || total.stderrBytes > tails.stderr.end;
        if (!missing) return;
        const from = {
          stdout: Math.max(0, total.stdoutBytes - TAIL_BYTES),
          stderr: Math.max(0, total.stderrBytes - TAIL_BYTES),
        };
        const command = await this.#sandbox.attach(row.id, { from, whenReaderIsSlow: "drop" });
        for await (const event of command.output()) {
          if (event.kind === "data") tails[event.stream].add(event.offset, event.bytes);
          if (tails.stdout.end >= total.stdoutBytes && tails.stderr.end >= total.stderrBytes) break;
        }
      }),
    );
  }

  /** The whole of it is in memory while it runs; what is kept for the history is short. */
  #recordStart(row: CommandRow): Promise<void> {
    const message = `Command ${row.id} started as pid ${row.pid}.`;
    const argv = abridge(row.argv);
    const data = { commandId: row.id, pid: row.pid, argv };
    return this.#record(() =>
      this.#events.commandStarted(
        { ...row, argv, env: abridgeRecord(row.env) },
        { kind: "command_started", message, data, keyId: this.#keyId },
      ),
    );
  }

  #recordEnd(row: CommandRow, ending: CommandEnding): Promise<void> {
    const data = { commandId: row.id, cause: ending.cause, incidents: ending.incidents, exitCode: ending.exitCode };
    const message = `Command ${row.id}: ${ending.message}`;
    if (wasSpared(this.#sandbox, ending)) this.#events.spared();
    return this.#record(() =>
      this.#events.commandEnded(row.sandboxId, row.id, ending, new Date(), {
        kind: "command_ended",
        message,
        data,
        keyId: this.#keyId,
      }),
    );
  }

  /**
   * After what the client waits for: should we die in between, the next server learns the same from the guest. A store
   * that fails must not end commands; it is said in the log.
   */
  #record(work: () => Promise<void>): Promise<void> {
    const recording = nextTurn()
      .then(work)
      .catch((error) => {
        this.#log.error(
          { sandbox: this.#sandbox.id, error: HoldfastError.from(error).message },
          "an event was not kept",
        );
      })
      .finally(() => this.#recording.delete(recording));
    this.#recording.add(recording);
    return recording;
  }
}

function rowFromSummary(sandboxId: CommandRow["sandboxId"], summary: CommandSummary): CommandRow {
  return {
    sandboxId,
    id: summary.id,
    pid: summary.pid,
    argv: summary.argv,
    env: {},
    cwd: null,
    user: null,
    tag: summary.tag ?? null,
    pty: false,
    startedAt: new Date(),
    endedAt: null,
    ending: null,
  };
}

function lostEnding(row: CommandRow, why: string): CommandEnding {
  return {
    cause: { kind: "lost", why },
    incidents: [],
    exitCode: -1,
    usage: {
      memoryPeakBytes: null,
      cpuMs: 0,
      wallMs: Date.now() - row.startedAt.getTime(),
      pidsPeak: null,
      stdoutBytes: 0,
      stderrBytes: 0,
    },
    message: `Lost: ${why}.`,
  };
}

/** How much of a command line, and of an environment, is kept. */
const KEPT_CHARACTERS = 4096;

function abridge(texts: readonly string[]): string[] {
  let left = KEPT_CHARACTERS;
  const kept: string[] = [];
  for (const text of texts) {
    if (left <= 0) return [...kept, `… ${texts.length - kept.length} more`];
    kept.push(text.length <= left ? text : `${text.slice(0, left)}…`);
    left -= text.length;
  }
  return kept;
}

function abridgeRecord(record: Readonly<Record<string, string>>): Record<string, string> {
  let left = KEPT_CHARACTERS;
  return Object.fromEntries(
    Object.entries(record).filter(([name, value]) => {
      left -= name.length + value.length;
      return left >= 0;
    }),
  );
}

/** It needed more than its sandbox had begun with, and was given it: with a fixed limit it would have been killed. */
function wasSpared({ spec, limits }: Sandbox, { cause, incidents, usage }: CommandEnding): boolean {
  if (limits.memoryMaxBytes === undefined || (usage.memoryPeakBytes ?? 0) <= spec.limits.memoryBytes) return false;
  return ![cause, ...incidents].some(({ kind }) => kind === "out_of_memory");
}
