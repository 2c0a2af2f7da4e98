/** A command in a bubblewrap sandbox: what the guest reports, joined with what the kernel counted. */
import type { Writable } from "node:stream";
import {
  type CommandCause,
  type CommandEnding,
  HoldfastError,
  invalidArgument,
  type MemoryLimitChange,
  printable,
  type SandboxLimits,
  signalNumber,
  validateCommandLimits,
} from "@holdfast/protocol";
import { FIELD, type FieldList, FRAME } from "@holdfast/protocol/guest";
import { endingWithoutExit, explainEnding, type KillIntent } from "../attribution.js";
import type { OomLog, OomVictim, SandboxCgroup } from "../cgroups/index.js";
import type { Command, CommandSpec, OutputEvent, OutputOffsets, SandboxSpec } from "../engine.js";
import { CommandStream, type GuestExit } from "../guest/command-stream.js";
import type { GuestConnection } from "../guest/connection.js";
import type { DiskGauge, DiskWatch } from "../storage/disk-gauge.js";
import type { Endings } from "./endings.js";

export const DEFAULT_GRACE_MS = 2000;
/** How much later than the guest we act ourselves, should the guest not. */
const BACKUP_MARGIN_MS = 500;
/** The kernel's log has a clock of its own, which may be behind ours by a third of a second for each day since boot. */
const KERNEL_CLOCK_DRIFT_USEC = 60_000_000;
const SIGTERM = 15;
const SIGKILL = 9;

/** What a command needs of its sandbox. */
export interface CommandContext {
  readonly connection: GuestConnection;
  readonly cgroup: SandboxCgroup;
  readonly oomLog: OomLog;
  readonly uidBase: number;
  /** Where endings are kept for a later owner; undefined if there will be none. */
  readonly endings: Endings | undefined;
  limits(): SandboxLimits;
  limitHistory(): readonly MemoryLimitChange[];
  /** How long it has been without room for more memory, in all. */
  heldMs(): number;
  /** No command has this id yet, nor a higher one. */
  nextCommandId(): number;
  readonly diskGauge: DiskGauge;
  /**
   * The first handle to each command that has not ended. It alone finds out how the command ended: counters are read once
   * and then removed, so two that looked would tell two stories.
   */
  readonly leaders: Map<number, RunningCommand>;
  /** Why a command has no exit of its own: the sandbox's end, in the words of a command's. */
  lostCause(reason: HoldfastError): Promise<CommandCause>;
}

function envFields(env: Readonly<Record<string, string>>): FieldList {
  return Object.entries(env).map(([name, value]) => {
    if (!/^[^=\0]+$/.test(name)) throw invalidArgument("env", name, "a name without '=' and NUL");
    if (value.includes("\0")) throw invalidArgument(`env.${name}`, value, "a value without NUL");
    return [FIELD.ENV, `${name}=${value}`] as const;
  });
}

/** The whole start is one frame to the guest; the rest of it is small. */
const MAX_START_BYTES = 240 * 1024;

function checkSize(argv: readonly string[], env: Readonly<Record<string, string>>): void {
  const argvBytes = argv.reduce((sum, arg) => sum + Buffer.byteLength(arg) + 8, 0);
  const envBytes = Object.entries(env).reduce((sum, [name, value]) => sum + Buffer.byteLength(name + value) + 8, 0);
  if (argvBytes + envBytes <= MAX_START_BYTES) return;
  const field = argvBytes > envBytes ? "argv" : "env";
  throw new HoldfastError(
    "invalid_argument",
    `${field}: expected arguments and environment of ${MAX_START_BYTES} bytes at most, got ${argvBytes + envBytes}`,
    { details: { field }, hint: "Write what is large to a file, or to the command's stdin." },
  );
}

function startFields(
  id: number,
  spec: CommandSpec,
  sandbox: { env: Readonly<Record<string, string>>; workdir: string | undefined; outputBytes: number },
): FieldList {
  if (spec.argv.length === 0 || spec.argv[0] === "")
    throw invalidArgument("argv", JSON.stringify(spec.argv), "a program and its arguments");
  for (const arg of spec.argv) if (arg.includes("\0")) throw invalidArgument("argv", arg, "arguments without NUL");
  validateCommandLimits(spec.limits ?? {});
  const env = { ...sandbox.env, ...spec.env };
  checkSize(spec.argv, env);
  return [
    [FIELD.COMMAND_ID, id],
    ...spec.argv.map((arg) => [FIELD.ARG, arg] as const),
    ...envFields(env),
    [FIELD.CWD, spec.cwd],
    // Where to start if there is such a directory, unlike the above.
    [FIELD.PATH, spec.cwd === undefined ? sandbox.workdir : undefined],
    [FIELD.USER, spec.user],
    [FIELD.STDIN, spec.stdin === "open" ? 1 : 0],
    [FIELD.PTY_COLS, spec.pty?.columns],
    [FIELD.PTY_ROWS, spec.pty?.rows],
    [FIELD.TIMEOUT_MS, spec.limits?.wallMs],
    [FIELD.GRACE_MS, spec.graceMs ?? DEFAULT_GRACE_MS],
    [FIELD.MEMORY_BYTES, spec.limits?.memoryBytes],
    [FIELD.PIDS, spec.limits?.pids],
    [FIELD.KEEP_BYTES, sandbox.outputBytes],
    [FIELD.SPILL_BYTES, spec.spillBytes],
    [FIELD.BLOCK, spec.whenReaderIsSlow === "block" ? 1 : 0],
    [FIELD.TAG, spec.tag],
  ];
}

/** The errors of a start that are the program's, not the sandbox's: what a shell calls 126 and 127. */
function startError(error: HoldfastError, program: string): HoldfastError {
  if (error.code === "user_not_found" || error.code === "canceled" || error.details.errno === undefined) return error;
  if (error.message.startsWith("cwd '")) {
    return new HoldfastError("invalid_argument", error.message, {
      cause: error,
      details: { ...error.details, field: "cwd" },
    });
  }
  return new HoldfastError("command_failed_to_start", error.message, {
    cause: error,
    details: { ...error.details, program, exitCode: error.details.errno === "ENOENT" ? 127 : 126 },
  });
}

/** What is noted at its start, to be compared with at its end. */
interface Before {
  readonly hostPid: number | undefined;
  readonly pidsRefused: number;
  readonly heldMs: number;
  readonly diskWatch: Promise<DiskWatch>;
}

export class RunningCommand implements Command {
  readonly id: number;
  readonly pid: number;
  readonly stdin: Writable | undefined;
  readonly ended: Promise<CommandEnding>;

  readonly #context: CommandContext;
  readonly #stream: CommandStream;
  readonly #limits: NonNullable<CommandSpec["limits"]>;
  /** Undefined if this is the leader itself. */
  readonly #leader: RunningCommand | undefined;
  readonly #startedAt = Date.now();
  /** On the kernel's clock, for its log. */
  readonly #startedUsec = Number(process.hrtime.bigint() / 1000n) - KERNEL_CLOCK_DRIFT_USEC;
  #intent: KillIntent | undefined;
  #callersSignal: number | undefined;
  #outputTaken = false;
  readonly #attached: boolean;
  #backupTimer: NodeJS.Timeout | undefined;

  private constructor(
    context: CommandContext,
    id: number,
    pid: number,
    stream: CommandStream,
    spec: Partial<CommandSpec>,
    attached = false,
  ) {
    this.#context = context;
    this.id = id;
    this.pid = pid;
    this.#stream = stream;
    this.#limits = spec.limits ?? {};
    this.#attached = attached;
    this.#leader = context.leaders.get(id);
    if (this.#leader !== undefined) {
      this.stdin = this.#leader.stdin;
      this.ended = this.#leader.ended;
      return;
    }
    this.stdin = spec.stdin === "open" || spec.pty !== undefined ? stream.stdin : undefined;
    context.leaders.set(id, this);
    this.#armBackup(spec);
    // Whatever fails on our own side, the command has ended and somebody waits to hear how.
    this.ended = this.#conclude(this.#lookBefore())
      .catch((error) => {
        const why = `its ending could not be established: ${HoldfastError.from(error).message}`;
        return endingWithoutExit({ kind: "lost", why }, Date.now() - this.#startedAt);
      })
      .finally(() => context.leaders.delete(id));
  }

  static async start(
    context: CommandContext,
    id: number,
    spec: CommandSpec,
    sandbox: Pick<SandboxSpec, "env" | "workdir">,
  ): Promise<RunningCommand> {
    const { env, workdir } = sandbox;
    const fields = startFields(id, spec, { env, workdir, outputBytes: context.limits().outputBytes });
    const stream = new CommandStream(context.connection, id, FRAME.START, fields);
    let pid: number;
    try {
      pid = await stream.started;
    } catch (error) {
      throw startError(HoldfastError.from(error), spec.argv[0] ?? "");
    }
    return new RunningCommand(context, id, pid, stream, spec);
  }

  static async attach(
    context: CommandContext,
    id: number,
    options: { readonly from?: OutputOffsets; readonly whenReaderIsSlow?: "block" | "drop" } = {},
  ): Promise<RunningCommand> {
    const from = options.from ?? { stdout: 0, stderr: 0 };
    const stream = new CommandStream(
      context.connection,
      id,
      FRAME.ATTACH,
      [
        [FIELD.COMMAND_ID, id],
        [FIELD.OFFSET_OUT, from.stdout],
        [FIELD.OFFSET_ERR, from.stderr],
        [FIELD.BLOCK, options.whenReaderIsSlow === "block" ? 1 : 0],
      ],
      from,
    );
    const pid = await stream.started;
    const stdin = stream.takesInput ? "open" : "closed";
    return new RunningCommand(context, id, pid, stream, { stdin, limits: stream.limits }, true);
  }

  output(): AsyncIterable<OutputEvent> {
    if (this.#outputTaken)
      throw new HoldfastError(
        "invalid_argument",
        "the output of this command is being read already; attach to read it again",
      );
    this.#outputTaken = true;
    return this.#stream.output;
  }

  async signal(signal: string | number, options: { whole?: boolean } = {}): Promise<void> {
    if (this.#leader !== undefined) return this.#leader.signal(signal, options);
    const number = signalNumber(signal);
    this.#callersSignal = number;
    await this.#sendSignal(number, options.whole ?? false);
  }

  async resize(size: { columns: number; rows: number }): Promise<void> {
    await this.#context.connection.request(FRAME.RESIZE, [
      [FIELD.COMMAND_ID, this.id],
      [FIELD.PTY_COLS, size.columns],
      [FIELD.PTY_ROWS, size.rows],
    ]);
  }

  async cancel(by: string, options: { graceMs?: number } = {}): Promise<CommandEnding> {
    if (this.#leader !== undefined) return this.#leader.cancel(by, options);
    this.#intent ??= { kind: "canceled", by: printable(by) };
    const graceMs = options.graceMs ?? DEFAULT_GRACE_MS;
    const timer = setTimeout(() => void this.#killWhole(), graceMs);
    try {
      if (graceMs > 0) await this.#sendSignal(SIGTERM, true).catch(() => this.#killWhole());
      else await this.#killWhole();
      return await this.ended;
    } finally {
      clearTimeout(timer);
    }
  }

  detach(): void {
    if (this.#leader === undefined) this.#stream.detach();
    else this.#stream.release();
  }

  async #sendSignal(signal: number, whole: boolean): Promise<void> {
    await this.#context.connection.request(FRAME.SIGNAL, [
      [FIELD.COMMAND_ID, this.id],
      [FIELD.SIGNAL, signal],
      [FIELD.WHOLE, whole ? 1 : 0],
    ]);
  }

  /** From outside, by the cgroup: does not depend on the guest's good will. */
  async #killWhole(): Promise<void> {
    await this.#context.cgroup.killCommand(this.id);
    // Without cgroups for the command (its directory is gone) only the guest can reach it; usually there is nothing left.
    await this.#sendSignal(SIGKILL, true).catch(() => {});
  }

  /** The kernel's log counts pids as the host's first namespace does, which need not be ours. */
  #isFirstProcess(hostPid: number, before: Before, victims: readonly unknown[], exit: GuestExit): boolean {
    return hostPid === before.hostPid || (victims.length === 1 && exit.signal === SIGKILL);
  }

  #armBackup(spec: Partial<CommandSpec>): void {
    const limitMs = spec.limits?.wallMs;
    if (limitMs === undefined) return;
    const atMs = limitMs + (spec.graceMs ?? DEFAULT_GRACE_MS) + BACKUP_MARGIN_MS;
    if (atMs > 2 ** 31 - 1) return;
    this.#backupTimer = setTimeout(() => {
      this.#intent ??= { kind: "timed_out", limitMs };
      void this.#killWhole();
    }, atMs);
    this.#backupTimer.unref();
  }

  #victims(): OomVictim[] | undefined {
    const { cgroup, oomLog, uidBase } = this.#context;
    return oomLog.victimsOf(`${cgroup.oomLogPath}/cmd/${this.id}`, { base: uidBase, sinceUsec: this.#startedUsec });
  }

  #lookBefore(): Before {
    const { cgroup, diskGauge } = this.#context;
    return {
      hostPid: cgroup.firstProcessOf(this.id),
      pidsRefused: cgroup.readUnattributedForksRefused(),
      heldMs: this.#context.heldMs(),
      diskWatch: diskGauge.watch(),
    };
  }

  async #conclude(before: Before): Promise<CommandEnding> {
    const exit = await this.#stream.exited;
    clearTimeout(this.#backupTimer);
    const disk = await (await before.diskWatch).finish();
    const kept = this.#attached ? this.#context.endings?.read(this.id) : undefined;
    if (kept !== undefined) return kept;
    if (exit instanceof HoldfastError) {
      return endingWithoutExit(await this.#context.lostCause(exit), Date.now() - this.#startedAt);
    }
    const { cgroup } = this.#context;
    // Read before the kill below: what we end ourselves is not the command's doing.
    const counters = cgroup.readCommand(this.id);
    if (this.#intent !== undefined || exit.timedOut) await cgroup.killCommand(this.id);
    const killed = counters !== undefined && counters.oomKills > 0;
    const log = killed ? this.#victims() : undefined;
    const ending = explainEnding({
      intent: this.#intent,
      exit,
      counters,
      sandboxLimits: this.#context.limits(),
      limitHistory: this.#context.limitHistory(),
      heldMs: this.#context.heldMs() - before.heldMs,
      commandLimits: this.#limits,
      unattributedPidsRefused: cgroup.readUnattributedForksRefused() - before.pidsRefused,
      victims: (log ?? []).map((victim) => ({
        name: victim.name,
        pid: this.#isFirstProcess(victim.hostPid, before, log ?? [], exit) ? this.pid : null,
        hostPid: victim.hostPid,
        rssBytes: victim.rssBytes,
      })),
      hostWideOom: (log ?? []).some((victim) => victim.scope === "host"),
      disk,
      callersSignal: this.#callersSignal,
    });
    this.#context.endings?.write(this.id, ending);
    cgroup.removeCommand(this.id);
    return ending;
  }
}
