/** The engine's warm pool: sandboxes of shapes that were asked for, ready for whoever asks next. */
import { createSandboxId, HoldfastError, type SandboxId } from "@holdfast/protocol";
import type { SandboxSpec, WarmSandboxes } from "../engine.js";
import { RESOURCES, type Resource } from "../governor/amounts.js";
import type { Admission } from "../governor/types.js";
import { WarmPool } from "../governor/warm/warm-pool.js";
import type { LayerId } from "../layers.js";
import type { WarmClaim, WarmSettings, WarmStats } from "../warm.js";
import type { HostParts } from "./host-parts.js";
import { layersToMakeOf } from "./layer-claims.js";
import type { BubblewrapSandbox } from "./sandbox.js";
import { admissionRequest } from "./sandbox-budget.js";
import { resolveSandboxSpec } from "./spec.js";
import { WarmSandbox } from "./warm-sandbox.js";
import { neutralSpec, warmShapeOf } from "./warm-shape.js";
import { endSpares } from "./warm-token.js";

const OFF: WarmSettings = { perShape: 0, total: 0, maxAgeMs: 0, keepFreeShare: 1 };

interface Held {
  readonly shape: string;
  readonly sandbox: WarmSandbox;
}

export class EngineWarm implements WarmSandboxes {
  readonly #host: HostParts;
  readonly #pool: WarmPool<WarmSandbox, SandboxSpec>;
  readonly #keepFreeShare: number;
  /** Claimed, and not yet handed over. */
  readonly #held = new Map<SandboxId, Held>();

  constructor(host: HostParts, settings: WarmSettings = OFF) {
    this.#host = host;
    this.#keepFreeShare = settings.keepFreeShare;
    this.#pool = new WarmPool<WarmSandbox, SandboxSpec>({
      settings,
      make: (spec, signal) => this.#make(spec, signal),
      canSpare: (spec) => this.#canSpare(spec),
      log: host.log,
    });
    host.governor.onShortage = async (resource, missing) =>
      (await this.#pool.giveBack(resource, missing)) || (await this.#evictOthers(resource, missing));
  }

  async claim(given: Partial<SandboxSpec>): Promise<WarmClaim | undefined> {
    // Whoever waits goes first, and gets the room of those that are ready.
    if (!this.#pool.isOn || this.#host.governor.isShort) return undefined;
    const spec = resolveSandboxSpec(given);
    const shape = warmShapeOf(spec, this.#host.skeleton());
    if (shape === undefined) return undefined;
    const sandbox = await this.#pool.claim(shape, neutralSpec(spec));
    if (sandbox === undefined) return undefined;
    const { id } = sandbox;
    this.#held.set(id, { shape, sandbox });
    return {
      id,
      release: () => {
        if (this.#held.delete(id)) this.#pool.putBack(id);
      },
    };
  }

  /** Undefined if it has died since it was claimed: nothing is left of it then, and its id is free. */
  async handOver(
    { id }: WarmClaim,
    spec: SandboxSpec,
    admission: Admission | undefined,
  ): Promise<BubblewrapSandbox | undefined> {
    const held = this.#held.get(id);
    this.#held.delete(id);
    if (held === undefined) throw new HoldfastError("engine_fault", `sandbox ${id} is not claimed`);
    const { sandbox, shape } = held;
    // Another shape: the host was upgraded in this very moment, or the caller has changed its mind.
    if (sandbox.hasDied || warmShapeOf(spec, this.#host.skeleton()) !== shape) {
      await this.#pool.giveUp(id);
      return undefined;
    }
    // Not if the pool has been closed meanwhile: it is being ended then.
    if (!this.#pool.handedOut(id)) return undefined;
    try {
      return sandbox.handOver(spec, admission);
    } catch (error) {
      await sandbox.end();
      throw error;
    }
  }

  stats(): WarmStats {
    return this.#pool.stats();
  }

  evictAll(): Promise<void> {
    return this.#pool.evictAll();
  }

  idle(): Promise<void> {
    return this.#pool.idle();
  }

  /** The layer is about to be removed: what is only ready does not keep it. */
  drain(layer: LayerId): Promise<void> {
    return this.#pool.drain((spec) => layersToMakeOf(spec).includes(layer));
  }

  close(): Promise<void> {
    return this.#pool.close();
  }

  async #make(spec: SandboxSpec, signal: AbortSignal): Promise<WarmSandbox> {
    const { governor, cgroups } = this.#host;
    const id = createSandboxId();
    const { limits } = spec;
    await governor.reserve(admissionRequest(this.#host, id, { limits, admission: { kind: "warm" } }), { signal });
    try {
      return await WarmSandbox.make(this.#host, id, { spec, signal });
    } catch (error) {
      if (cgroups.open(id) === undefined) governor.release(id);
      throw error;
    }
  }

  #canSpare({ limits }: SandboxSpec): boolean {
    const { governor } = this.#host;
    if (governor.isShort) return false;
    const { room, reserved } = governor.report();
    const { amounts } = admissionRequest(this.#host, createSandboxId(), { limits });
    return RESOURCES.every(
      (resource) => room[resource] - reserved[resource] - amounts[resource] >= room[resource] * this.#keepFreeShare,
    );
  }

  /** Those of other processes on the same state directory. */
  async #evictOthers(resource: Resource, missing: number): Promise<boolean> {
    const { governor, records } = this.#host;
    const ids: SandboxId[] = [];
    let freed = 0;
    for (const { id, kind, amounts } of governor.report().reservations) {
      if (freed >= missing) break;
      if (kind !== "warm" || !records.exists(id as SandboxId)) continue;
      ids.push(id as SandboxId);
      freed += amounts[resource];
    }
    return (await endSpares(this.#host, ids)) > 0;
  }
}
