/**
 * What one sandbox may take: the limits that are in force, its part of the host's budget, and how its memory limit moves by
 * itself. The three change together or not at all.
 */
import {
  changedLimits,
  type MemoryLimitChange,
  type ResizeLimits,
  resolveSandboxLimits,
  type SandboxId,
  type SandboxLimits,
} from "@holdfast/protocol";
import type { SandboxCgroup } from "../cgroups/index.js";
import { type Amounts, amountsOf } from "../governor/amounts.js";
import { ElasticMemory } from "../governor/elastic-memory.js";
import type { AdmissionRequest } from "../governor/governor.js";
import type { Admission, MemoryEvent } from "../governor/types.js";
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

type Host = Pick<HostParts, "records" | "governor" | "watch" | "holdMs">;

export interface BudgetParts {
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
  #isClosed = false;

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
    this.#parts.requireUsable();
    const changed = (limits: SandboxLimits) => resolveSandboxLimits(changedLimits(limits, change));
    changed(this.#parts.limits());
    // What it wanted for itself is settled by this.
    const history = this.history;
    this.#elastic?.close();
    const startBefore = this.#startMemoryBytes;
    this.#startMemoryBytes = change.memoryBytes ?? Math.min(startBefore, change.memoryMaxBytes ?? startBefore);
    try {
      await this.#change(changed);
      await this.#parts.show(this.#parts.limits());
    } catch (error) {
      this.#startMemoryBytes = startBefore;
      throw error;
    } finally {
      this.#followCeiling(history);
    }
  }

  /** Needs room for what it may take again. */
  async thaw(admission: Admission = {}): Promise<void> {
    await this.#growTo(this.#parts.limits(), admission);
  }

  /** After a thaw. */
  goOn(): void {
    this.#elastic?.goOn().catch(this.#parts.onError);
  }

  /** Standing still, it takes no more than it has. */
  freeze(): void {
    this.#elastic?.interrupt();
    this.#host.governor.shrink(this.#id, this.#heldOf(amountsOf(this.#parts.limits())));
  }

  close(): void {
    this.#isClosed = true;
    this.#elastic?.close();
    this.#host.watch.drop(this.#id);
  }

  /** `changed` is asked twice: others may have changed them while this one waited for room. */
  async #change(changed: (limits: SandboxLimits) => SandboxLimits, admission?: Admission): Promise<void> {
    const { limits, requireUsable, enforce, isRunning } = this.#parts;
    await this.#growTo(mostOf(limits(), changed(limits())), admission);
    try {
      requireUsable();
      enforce(changed(limits()), this.#startMemoryBytes);
    } finally {
      const amounts = amountsOf(limits());
      this.#host.governor.shrink(this.#id, isRunning() ? amounts : this.#heldOf(amounts));
    }
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

  async #growTo(limits: SandboxLimits, admission: Admission = {}): Promise<void> {
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
    const { cgroup, limits, tell, onError, isRunning } = this.#parts;
    this.#elastic?.close();
    this.#elastic = undefined;
    const { memoryBytes, memoryMaxBytes } = limits();
    if (memoryMaxBytes === undefined || memoryMaxBytes <= Math.min(memoryBytes, this.#startMemoryBytes)) {
      this.#host.watch.drop(this.#id);
      cgroup.setHolding(false);
      return;
    }
    this.#elastic = new ElasticMemory(
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
        setHolding: (holding) => cgroup.setHolding(holding),
        oomKills: () => cgroup.readSandbox().oomKills,
        workingSetBytes: () => cgroup.readWorkingSetBytes(),
        setLimit: async (bytes, admission) => {
          await this.#change((current) => ({ ...current, memoryBytes: bytes }), admission);
          this.#watch();
        },
      },
      { waitMs: this.#host.holdMs, tell, onError, history },
    );
    this.#watch();
  }

  #watch(): void {
    const elastic = this.#elastic;
    if (elastic === undefined || this.#isClosed) return;
    const target = this.#parts.cgroup.holdTarget(this.#parts.limits().memoryBytes);
    this.#host.watch.add(this.#id, target, () => void elastic.look().catch(this.#parts.onError));
  }
}

/** What a sandbox is to have when it is booted again: a memory limit that has grown by itself starts anew. */
export function limitsAtRest(limits: SandboxLimits, startMemoryBytes: number): SandboxLimits {
  if (limits.memoryMaxBytes === undefined) return limits;
  return { ...limits, memoryBytes: Math.min(limits.memoryBytes, startMemoryBytes) };
}

/** While limits change, both the old and the new may be in force. */
function mostOf(a: SandboxLimits, b: SandboxLimits): SandboxLimits {
  return { ...b, memoryBytes: Math.max(a.memoryBytes, b.memoryBytes), pids: Math.max(a.pids, b.pids) };
}
