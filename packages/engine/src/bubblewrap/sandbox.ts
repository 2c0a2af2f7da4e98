/** A running sandbox: its commands, its budget, and its one end. */
import type { Duplex } from "node:stream";
import {
  ceilingBytesOf,
  describeSandboxCause,
  HoldfastError,
  type MemoryLimitChange,
  type ProcessRow,
  printable,
  type ResizeLimits,
  type SandboxCause,
  type SandboxEnding,
  type SandboxId,
  type SandboxLimits,
} from "@holdfast/protocol";
import { FIELD, FRAME } from "@holdfast/protocol/guest";
import type { SandboxCgroup } from "../cgroups/index.js";
import type {
  Command,
  CommandSpec,
  CommandSummary,
  FinalLook,
  OutputOffsets,
  Sandbox,
  SandboxFiles,
  SandboxSpec,
  SandboxState,
  SandboxStats,
} from "../engine.js";
import type { Admission, MemoryEvent } from "../governor/types.js";
import type { GuestConnection } from "../guest/connection.js";
import { type DialTarget, dialGuest } from "../guest/dial.js";
import { GuestFiles } from "../guest/files.js";
import { Turns } from "../host/turns.js";
import { type LayerId, parseLayerId, type SnapshotReport } from "../layers.js";
import { Egress } from "../network/egress.js";
import { DiskGauge } from "../storage/disk-gauge.js";
import { causeForCommands } from "./cause-for-commands.js";
import { type CommandContext, RunningCommand } from "./command.js";
import { listCommands } from "./command-list.js";
import type { Monitor } from "./dismantle.js";
import { Endings } from "./endings.js";
import { takeFinalLook } from "./final-look.js";
import { Gauge } from "./gauge.js";
import type { HostParts } from "./host-parts.js";
import { readProcessRows } from "./process-rows.js";
import { bootedAtMs, type SandboxRecord } from "./records.js";
import { SandboxBudget } from "./sandbox-budget.js";
import { SandboxEnd } from "./sandbox-end.js";
import { SandboxRest } from "./sandbox-rest.js";
import { takeSnapshot } from "./snapshot.js";
import { Standstill } from "./standstill.js";
import { WallTimer } from "./wall-timer.js";

/** So many ids are written down as used at a time: a start shall not cost a write. */
export const COMMAND_ID_STEP = 1024;

export class BubblewrapSandbox implements Sandbox {
  readonly id: SandboxId;
  readonly spec: SandboxSpec;
  readonly createdAt: Date;
  readonly files: SandboxFiles;
  readonly gauge: Gauge;
  readonly ended: Promise<SandboxEnding>;

  readonly #host: HostParts;
  readonly #cgroup: SandboxCgroup;
  readonly #connection: GuestConnection;
  readonly #uidBase: number;
  readonly #monitor: Monitor | undefined;
  readonly #diskGauge: DiskGauge;
  readonly #standstill: Standstill;
  readonly #leaders = new Map<number, RunningCommand>();
  readonly #endings: Endings | undefined;
  readonly #egress: Egress | undefined;
  /** Whatever changes what it may take, or whether it moves. */
  readonly #turns = new Turns();
  readonly #budget: SandboxBudget;
  readonly #rest: SandboxRest;
  #record: SandboxRecord;
  #nextCommandId: number;
  #cause: SandboxCause | undefined;
  #ending: Promise<SandboxEnding> | undefined;
  #settleEnded!: (ending: SandboxEnding) => void;
  readonly #memoryListeners = new Set<(event: MemoryEvent) => void>();
  #finalLook: FinalLook | undefined;
  readonly #wallTimer: WallTimer | undefined;

  constructor(
    host: HostParts,
    parts: {
      readonly record: SandboxRecord;
      readonly cgroup: SandboxCgroup;
      readonly connection: GuestConnection;
      readonly uids: { readonly base: number };
      /** Absent for an adopted sandbox: its monitor is not our child. */
      readonly monitor?: Monitor | undefined;
      readonly nextCommandId?: number;
    },
  ) {
    this.#host = host;
    this.#record = parts.record;
    this.#cgroup = parts.cgroup;
    this.#connection = parts.connection;
    this.#uidBase = parts.uids.base;
    this.#monitor = parts.monitor;
    this.#nextCommandId = parts.nextCommandId ?? 1;
    this.#diskGauge = new DiskGauge(
      host.pool,
      parts.record.disk,
      () => this.limits.diskBytes,
      (used) => this.#onDiskLook(used),
    );
    this.id = parts.record.id;
    this.spec = parts.record.spec;
    this.#endings =
      this.spec.whenOwnerDies === "keep" ? new Endings(host.records.pathOf(this.id, "endings")) : undefined;
    this.createdAt = new Date(parts.record.createdAt);
    this.#standstill = new Standstill(parts.cgroup, host.records.pathOf(this.id));
    this.#budget = this.#openBudget();
    this.#rest = new SandboxRest({
      turns: this.#turns,
      standstill: this.#standstill,
      budget: this.#budget,
      cgroup: parts.cgroup,
      launcher: host.launcher,
      requireAlive: () => this.#requireAlive(),
    });
    this.files = new GuestFiles(
      () => this.#usableConnection(),
      () => this.#budget.relief(),
    );
    this.#egress = this.#openEgress();
    this.gauge = new Gauge(this.#commandContext(), host.records.pathOf(this.id));
    this.ended = new Promise((resolve) => {
      this.#settleEnded = resolve;
    });
    void parts.connection.closed.then((reason) => this.#onConnectionClosed(reason));
    void parts.monitor?.exited.then((status) => this.#end({ kind: "guest_exited", status }));
    this.#wallTimer = this.#armWallTimer();
  }

  get state(): SandboxState {
    if (this.#ending !== undefined) return "ended";
    return this.#standstill.isFrozen ? "frozen" : "running";
  }

  get limits(): SandboxLimits {
    return this.#record.limits;
  }

  async start(spec: CommandSpec, options: { signal?: AbortSignal } = {}): Promise<Command> {
    if (options.signal?.aborted) throw new HoldfastError("canceled", "the start of the command was canceled");
    this.#usableConnection();
    // What is begun while there is no memory for it fails for reasons that nobody understands.
    await this.#budget.relief();
    if (options.signal?.aborted) throw new HoldfastError("canceled", "the start of the command was canceled");
    const command = await RunningCommand.start(this.#commandContext(), this.#takeCommandId(), spec, this.spec);
    if (options.signal !== undefined) {
      const onAbort = () => void command.cancel("the caller's signal");
      if (options.signal.aborted) onAbort();
      options.signal.addEventListener("abort", onAbort, { once: true });
      void command.ended.then(() => options.signal?.removeEventListener("abort", onAbort));
    }
    return command;
  }

  async attach(
    commandId: number,
    options: { from?: OutputOffsets; whenReaderIsSlow?: "block" | "drop" } = {},
  ): Promise<Command> {
    this.#usableConnection();
    return RunningCommand.attach(this.#commandContext(), commandId, options);
  }

  commands(): Promise<CommandSummary[]> {
    return listCommands(this.#usableConnection());
  }

  dial(target: DialTarget): Promise<Duplex> {
    return dialGuest(this.#usableConnection(), target);
  }

  async stats(): Promise<SandboxStats> {
    const counters = this.#cgroup.readSandbox();
    return {
      memoryBytes: counters.memoryBytes,
      memoryCacheBytes: counters.memoryCacheBytes,
      memoryPeakBytes: counters.memoryPeakBytes ?? null,
      memoryLimitBytes: this.limits.memoryBytes,
      memoryCeilingBytes: ceilingBytesOf(this.limits),
      pids: counters.pids,
      pidsLimit: this.limits.pids,
      cpuMs: (counters.cpuUsec ?? 0) / 1000,
      diskBytes: await this.#diskGauge.read(),
      diskLimitBytes: this.limits.diskBytes,
    };
  }

  resize(change: ResizeLimits): Promise<void> {
    return this.#budget.resize(change);
  }

  get limitHistory(): readonly MemoryLimitChange[] {
    return this.#budget.history;
  }

  onMemory(listener: (event: MemoryEvent) => void): () => void {
    this.#memoryListeners.add(listener);
    return () => void this.#memoryListeners.delete(listener);
  }

  freeze(options: { keepsPromise?: boolean } = {}): Promise<void> {
    return this.#rest.freeze(options);
  }

  thaw(admission: Admission = {}): Promise<void> {
    return this.#rest.thaw(admission);
  }

  reclaim(): Promise<number> {
    return this.#rest.reclaim();
  }

  async snapshot(id: LayerId): Promise<SnapshotReport> {
    const requireRunning = () => this.#requireAlive();
    requireRunning();
    try {
      return await takeSnapshot(this.#host, parseLayerId(id), {
        disk: this.#record.disk,
        rest: this.#rest,
        requireRunning,
      });
    } catch (error) {
      requireRunning();
      throw error;
    }
  }

  processes(): ProcessRow[] {
    return this.#ending === undefined ? readProcessRows(this.#cgroup) : [];
  }

  get finalLook(): FinalLook | undefined {
    return this.#finalLook;
  }

  kill(by: string): Promise<SandboxEnding> {
    void this.#end({ kind: "killed", by: printable(by) });
    // Not the promise of #end: whoever listens to `ended`, the engine's list for one, hears of it first.
    return this.ended;
  }

  expire(limitMs: number): Promise<SandboxEnding> {
    void this.#end({ kind: "timed_out", limitMs });
    return this.ended;
  }

  async stop(by: string): Promise<SandboxEnding> {
    if (this.#ending === undefined) {
      const stopped = { by: printable(by), at: new Date().toISOString() };
      // Before anything is ended. If it cannot be written, everything goes on as it was.
      const limits = this.#budget.limitsAtRest;
      this.#updateRecord({ ...this.#record, limits, stopped, commandIdsBelow: this.#nextCommandId });
      void this.#end({ kind: "stopped", by: stopped.by });
    }
    return this.ended;
  }

  /** For the host's budget; as of the last look. */
  get lastDiskBytes(): number {
    return this.#diskGauge.lastUsedBytes;
  }

  /** It was another process's: what it takes of the host is ours to answer for now. */
  takeOverShare(): void {
    this.#budget.adopt(this.#standstill.isFrozen);
  }

  /** Lets go without ending it: another process may adopt it. If it is ending, it is let go when that is done. */
  async release(): Promise<void> {
    if (this.#ending !== undefined) {
      await this.ended;
      return;
    }
    this.#ending = new Promise(() => {});
    this.#stopAttending();
    // What stands still for a moment must not stay so.
    await this.#turns.idle();
    this.#connection.close();
    this.#host.records.disown(this.id, this.#host.us);
  }

  #updateRecord(record: SandboxRecord): void {
    this.#host.records.write(record);
    this.#record = record;
  }

  #takeCommandId(): number {
    const id = this.#nextCommandId++;
    // For whoever boots it again after a restart of the host, when no guest is left that could be asked.
    if (this.#endings !== undefined && id >= (this.#record.commandIdsBelow ?? 0)) {
      this.#updateRecord({ ...this.#record, commandIdsBelow: id + COMMAND_ID_STEP });
    }
    return id;
  }

  #commandContext(): CommandContext {
    return {
      connection: this.#connection,
      cgroup: this.#cgroup,
      oomLog: this.#host.oomLog,
      uidBase: this.#uidBase,
      endings: this.#endings,
      limits: () => this.limits,
      limitHistory: () => this.limitHistory,
      heldMs: () => this.#budget.heldMs,
      nextCommandId: () => this.#nextCommandId,
      diskGauge: this.#diskGauge,
      leaders: this.#leaders,
      lostCause: async (reason) =>
        this.#ending === undefined ? { kind: "lost", why: reason.message } : causeForCommands(this.#cause),
    };
  }

  /** Only a pool that cannot refuse a write needs this: a sandbox that is over its limit is ended. */
  #onDiskLook(usedBytes: number): void {
    if (this.#host.pool.enforcesLimits || usedBytes <= this.limits.diskBytes) return;
    void this.#end({ kind: "out_of_disk", limitBytes: this.limits.diskBytes, usedBytes });
  }

  #armWallTimer(): WallTimer | undefined {
    const { wallMs } = this.limits;
    if (wallMs === undefined) return undefined;
    return new WallTimer(
      bootedAtMs(this.#record) + wallMs,
      () => void this.#end({ kind: "timed_out", limitMs: wallMs }),
    );
  }

  #requireAlive(): void {
    if (this.#ending !== undefined) throw this.#endedError();
  }

  #usableConnection(): GuestConnection {
    this.#requireAlive();
    if (this.#standstill.isFrozen) {
      throw new HoldfastError("sandbox_frozen", `sandbox ${this.id} is frozen`, { hint: "Thaw it first." });
    }
    return this.#connection;
  }

  #endedError(): HoldfastError {
    const how = this.#cause === undefined ? "has ended" : describeSandboxCause(this.#cause);
    return new HoldfastError("sandbox_ended", `sandbox ${this.id} has ended. ${how}`, {
      details: { cause: this.#cause },
    });
  }

  #onConnectionClosed(reason: HoldfastError): void {
    if (this.#ending !== undefined) return;
    const cause: SandboxCause =
      reason.details.protocol === true
        ? { kind: "guest_broke_protocol", why: reason.message }
        : { kind: "guest_exited", status: reason.message };
    void this.#end(cause);
  }

  /** The first cause wins. Kill, wait until empty, read the counters, record, remove, answer. */
  #end(cause: SandboxCause): Promise<SandboxEnding> {
    if (this.#ending === undefined) {
      this.#cause = cause;
      this.#connection.expectEnd(this.#endedError());
      this.#ending = this.#finish();
      void this.#ending.then(this.#settleEnded);
    }
    return this.#ending;
  }

  #openBudget(): SandboxBudget {
    return new SandboxBudget(this.#host, this.id, {
      turns: this.#turns,
      cgroup: this.#cgroup,
      limits: () => this.limits,
      startMemoryBytes: this.#record.startMemoryBytes ?? this.spec.limits.memoryBytes,
      isRunning: () => this.state === "running",
      requireUsable: () => void this.#usableConnection(),
      enforce: (limits, startMemoryBytes) => {
        this.#cgroup.setLimits({ memoryBytes: limits.memoryBytes, pids: limits.pids, cpuMillis: limits.cpuMillis });
        this.#updateRecord({ ...this.#record, limits, startMemoryBytes });
      },
      // What the inside sees and inherits follows what is enforced.
      show: async (limits) => {
        await this.#connection.request(FRAME.CONFIGURE, [
          [FIELD.MEMORY_BYTES, ceilingBytesOf(limits)],
          [FIELD.CPU_MILLIS, limits.cpuMillis],
          [FIELD.PIDS, limits.pids],
        ]);
      },
      tell: (event) => {
        for (const listener of this.#memoryListeners) listener(event);
      },
      onError: (error) => {
        if (this.#ending !== undefined) return;
        const { message } = HoldfastError.from(error);
        this.#host.log.warn({ sandbox: this.id, error: message }, "the memory of a sandbox could not be looked after");
      },
    });
  }

  #openEgress(): Egress | undefined {
    const { network } = this.spec;
    if (network.kind !== "egress") return undefined;
    const { log } = this.#host;
    return new Egress({
      connection: this.#connection,
      rules: network,
      onRefused: (target) => log.info({ sandbox: this.id, target }, "a connection out of a sandbox was refused"),
      onBroken: (reason) => log.warn({ sandbox: this.id, error: reason.message }, "a sandbox lost its way out"),
    });
  }

  async #finish(): Promise<SandboxEnding> {
    this.#stopAttending();
    this.#finalLook = takeFinalLook(this.#host.pool, this.#cgroup, this.#record.disk);
    const end = new SandboxEnd(this.#host, { record: this.#record, cgroup: this.#cgroup, monitor: this.#monitor });
    await end.kill();
    this.#connection.close(this.#endedError());
    const ending = end.describe(this.#cause ?? { kind: "lost", why: "no cause was recorded" });
    this.#cause = ending.cause;
    await end.leave({ keepFiles: ending.cause.kind === "stopped" });
    return ending;
  }

  #stopAttending(): void {
    this.#wallTimer?.clear();
    this.#budget.close();
    this.#egress?.close();
    this.#diskGauge.stop();
  }
}
