/**
 * What one sandbox may take: the limits that are in force, its part of the host's budget, and how its memory limit moves by
 * itself. The three change together or not at all.
 */
import {
  changedLimits,
  HoldfastError,
  type MemoryLimitChange,
  type ResizeLimits,
  resolveSandboxLimits,
  type SandboxId,
  type SandboxLimits,
} from "@holdfast/protocol";
import type { SandboxCgroup, SlowWrite } from "../cgroups/index.js";
import { type Amounts, amountsOf } from "../governor/amounts.js";
import { ElasticMemory } from "../governor/elastic-memory.js";
import type { AdmissionRequest } from "../governor/governor.js";
import type { Admission, MemoryEvent } from "../governor/types.js";
import { withLinkedSignal } from "../host/linked-signal.js";
import type { Turns } from "../host/turns.js";
import type { HostParts } from "./host-parts.js";

/** The lane of those that nobody named one for. */
const COMMON_LANE = "";

export function admissionRequest(
  host: Pick<HostParts, "records">,
  id: SandboxId,
  { limits, admission }: { readonly limits: SandboxLimits; readonly admission?: Admission | undefined },
): AdmissionRequest {
  return {
    id,
    kind: admission?.kind ?? "sandbox",
    lane: admission?.lane ?? COMMON_LANE,
    amounts: amountsOf(limits),
    record: host.records.pathOf(id),
  };
}

/** How long the kernel may look for what is in the way of a lower limit. */
const LOWER_MS = 10_000;

type Host = Pick<HostParts, "records" | "governor" | "watch" | "holdMs" | "launcher">;

export interface BudgetParts {
  readonly turns: Turns;
  readonly cgroup: SandboxCgroup;
  /** Those in force. */
  readonly limits: () => SandboxLimits;
  /** Where its memory limit started. */
  readonly startMemoryBytes: number;
  readonly isRunning: () => boolean;
  /** Throws if the sandbox has ended or stands still. */
  readonly requireUsable: () => void;
  /** Enforces them and writes them down, with where the memory limit begins. */
  readonly enforce: (limits: SandboxLimits, startMemoryBytes: number) => void;
  /** Lets the inside see them. */
  readonly show: (limits: SandboxLimits) => Promise<void>;
  readonly tell: (event: MemoryEvent) => void;
  readonly onError: (error: unknown) => void;
}

export class SandboxBudget {
  readonly #host: Host;
  readonly #id: SandboxId;
  readonly #parts: BudgetParts;
  readonly #request: AdmissionRequest;
  #startMemoryBytes: number;
  #elastic: ElasticMemory | undefined;
  readonly #closing = new AbortController();

  constructor(host: Host, id: SandboxId, parts: BudgetParts) {
    this.#host = host;
    this.#id = id;
    this.#parts = parts;
    this.#startMemoryBytes = parts.startMemoryBytes;
    this.#request = admissionRequest(host, id, { limits: parts.limits() });
    this.#followCeiling();
  }

  /** How its memory limit has moved by itself. */
  get history(): readonly MemoryLimitChange[] {
    return this.#elastic?.history ?? [];
  }

  /** How long it has been without room for more memory, in all. */
  get heldMs(): number {
    return this.#elastic?.heldMs ?? 0;
  }

  /** Undefined if nothing in it waits for room; else resolves when that is over. */
  relief(): Promise<void> | undefined {
    return this.#elastic?.relief;
  }

  /** What it is to have when it is booted again: a limit that has grown by itself starts anew. */
  get limitsAtRest(): SandboxLimits {
    return limitsAtRest(this.#parts.limits(), this.#startMemoryBytes);
  }

  /** For one that another process had: it is there already, so there is no question of room. */
  adopt(isFrozen: boolean): void {
    this.#agreeWithKernel();
    const amounts = amountsOf(this.#parts.limits());
    const request = { ...this.#request, amounts: isFrozen ? this.#heldOf(amounts) : amounts };
    // One that was frozen for the host's sake has kept what it was promised.
    this.#host.governor.adopt(request, { asItWas: isFrozen });
  }

  async resize(change: ResizeLimits): Promise<void> {
    const { turns, requireUsable, limits, show } = this.#parts;
    requireUsable();
    const changed = (before: SandboxLimits) => resolveSandboxLimits(changedLimits(before, change));
    changed(limits());
    // What it wanted for itself is settled by this.
    this.interrupt();
    await turns.take(async () => {
      const history = this.history;
      this.#elastic?.close();
      const startBefore = this.#startMemoryBytes;
      this.#startMemoryBytes = change.memoryBytes ?? Math.min(startBefore, change.memoryMaxBytes ?? startBefore);
      try {
        await this.#change(changed);
      } catch (error) {
        this.#startMemoryBytes = startBefore;
        throw error;
      } finally {
        if (!this.#closing.signal.aborted) this.#followCeiling(history);
      }
    });
    // Not in its turn: a guest that never answers must not keep anybody from freezing it.
    await show(limits());
  }

  /** Needs room for what it may take again. Whoever calls has the sandbox's turn. */
  async thaw(admission: Admission = {}): Promise<void> {
    await this.#untilClosed(admission, (until) => this.#growTo(this.#parts.limits(), until));
  }

  /** It may grow again. */
  goOn(): void {
    this.#elastic?.goOn().catch(this.#parts.onError);
  }

  /** It waits for no room until it goes on, and takes nothing back. */
  interrupt(): void {
    this.#elastic?.interrupt();
  }

  /** Standing still, it takes no more than it has. Whoever calls has the sandbox's turn. */
  freeze(): void {
    this.#host.governor.shrink(this.#id, this.#heldOf(amountsOf(this.#parts.limits())));
  }

  close(): void {
    this.#closing.abort();
    this.#elastic?.close();
    this.#host.watch.drop(this.#id);
  }

  /** In the sandbox's turn: what is promised and what is enforced are changed by nobody else meanwhile. */
  #change(changed: (limits: SandboxLimits) => SandboxLimits, admission: Admission = {}): Promise<void> {
    const { limits, requireUsable, isRunning } = this.#parts;
    return this.#untilClosed(admission, async (until) => {
      const before = limits();
      const after = changed(before);
      requireUsable();
      await this.#growTo(mostOf(before, after), until);
      try {
        requireUsable();
        await this.#enforce(before, after, until.signal);
      } finally {
        const amounts = amountsOf(limits());
        this.#host.governor.shrink(this.#id, isRunning() ? amounts : this.#heldOf(amounts));
      }
    });
  }

  /** All or nothing: if it fails, what is in force is what it was. */
  async #enforce(before: SandboxLimits, after: SandboxLimits, signal: AbortSignal): Promise<void> {
    const { cgroup, requireUsable, enforce } = this.#parts;
    try {
      if (after.memoryBytes < before.memoryBytes) {
        await cgroup.makeRoom(after.memoryBytes, this.#slowWrite(signal));
        requireUsable();
        if (signal.aborted) throw calledOff();
      }
      enforce(after, this.#startMemoryBytes);
    } catch (error) {
      try {
        const { memoryBytes, pids, cpuMillis } = before;
        cgroup.setLimits({ memoryBytes, pids, cpuMillis });
      } catch {
        // It has ended.
      }
      throw error;
    }
  }

  #slowWrite(signal = this.#closing.signal): SlowWrite {
    return async (file, value) => {
      try {
        await this.#host.launcher.reclaim(file, value, LOWER_MS, { signal });
        return true;
      } catch {
        // Without a process to spare it is done here.
        if (signal.aborted) throw calledOff();
        return false;
      }
    };
  }

  #untilClosed<T>(
    admission: Admission,
    work: (until: Admission & { readonly signal: AbortSignal }) => Promise<T>,
  ): Promise<T> {
    return withLinkedSignal([admission.signal, this.#closing.signal], (signal) => work({ ...admission, signal }));
  }

  /** A process that was killed in between has told the kernel, and not us. */
  #agreeWithKernel(): void {
    const { cgroup, limits, enforce } = this.#parts;
    const kernelBytes = cgroup.readSandbox().memoryLimitBytes;
    if (kernelBytes === undefined || kernelBytes === limits().memoryBytes) return;
    try {
      enforce(limits(), this.#startMemoryBytes);
    } catch {
      // It uses more already.
      enforce({ ...limits(), memoryBytes: kernelBytes }, this.#startMemoryBytes);
    }
  }

  async #growTo(limits: SandboxLimits, admission: Admission): Promise<void> {
    await this.#host.governor.grow({ ...this.#request, amounts: amountsOf(limits) }, admission);
  }

  #heldOf(most: Amounts): Amounts {
    const { cgroup } = this.#parts;
    return {
      memoryBytes: Math.min(most.memoryBytes, cgroup.readHeldBytes()),
      pids: Math.min(most.pids, cgroup.readSandbox().pids),
      diskBytes: most.diskBytes,
    };
  }

  /** The ceiling may have been set, moved or taken away. */
  #followCeiling(history: readonly MemoryLimitChange[] = []): void {
    const { turns, cgroup, limits, tell, onError, isRunning } = this.#parts;
    const { heldMs } = this;
    this.#elastic?.close();
    this.#elastic = undefined;
    const { memoryBytes, memoryMaxBytes } = limits();
    if (memoryMaxBytes === undefined || memoryMaxBytes <= Math.min(memoryBytes, this.#startMemoryBytes)) {
      this.#host.watch.drop(this.#id);
      cgroup.setHolding(false, this.#slowWrite()).catch(onError);
      return;
    }
    const elastic = new ElasticMemory(
      {
        get limitBytes() {
          return limits().memoryBytes;
        },
        get ceilingBytes() {
          return limits().memoryMaxBytes ?? limits().memoryBytes;
        },
        startBytes: this.#startMemoryBytes,
        isRunning,
        shortage: () => cgroup.memoryShortage(),
        setHolding: (holding) => cgroup.setHolding(holding, this.#slowWrite()),
        oomKills: () => cgroup.readSandbox().oomKills,
        workingSetBytes: () => cgroup.readWorkingSetBytes(),
        setLimit: (bytes, admission) =>
          turns.take(async () => {
            // Another may have been put in its place before its turn came: what it wanted is settled.
            if (this.#elastic !== elastic || admission?.signal?.aborted === true) throw calledOff();
            await this.#change((current) => ({ ...current, memoryBytes: bytes }), admission);
            this.#watch();
          }),
      },
      { waitMs: this.#host.holdMs, tell, onError, history, heldMs },
    );
    this.#elastic = elastic;
    this.#watch();
  }

  #watch(): void {
    const elastic = this.#elastic;
    if (elastic === undefined || this.#closing.signal.aborted) return;
    const target = this.#parts.cgroup.holdTarget(this.#parts.limits().memoryBytes);
    this.#host.watch.add(this.#id, target, () => void elastic.look().catch(this.#parts.onError));
  }
}

/** What a sandbox is to have when it is booted again: a memory limit that has grown by itself starts anew. */
export function limitsAtRest(limits: SandboxLimits, startMemoryBytes: number): SandboxLimits {
  if (limits.memoryMaxBytes === undefined) return limits;
  return { ...limits, memoryBytes: Math.min(limits.memoryBytes, startMemoryBytes) };
}

function calledOff(): HoldfastError {
  return new HoldfastError("canceled", "the change of the limits was called off");
}

/** While limits change, both the old and the new may be in force. */
function mostOf(a: SandboxLimits, b: SandboxLimits): SandboxLimits {
  return { ...b, memoryBytes: Math.max(a.memoryBytes, b.memoryBytes), pids: Math.max(a.pids, b.pids) };
}
