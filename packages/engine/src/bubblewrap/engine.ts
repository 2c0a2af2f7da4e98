/** The bubblewrap engine: keeps the list of sandboxes that this process answers for. */
import { createSandboxId, HoldfastError, type SandboxId, type SandboxLimits } from "@holdfast/protocol";
import type { Engine, Sandbox, SandboxSpec, SweepReport } from "../engine.js";
import { readHostCapacity } from "../governor/host-budget.js";
import { readHostPressure } from "../governor/host-pressure.js";
import type { PressureReading, UnownedReport } from "../governor/pressure.js";
import type { Admission, BudgetReport, HostCapacity } from "../governor/types.js";
import { withLinkedSignal } from "../host/linked-signal.js";
import type { Layers } from "../layers.js";
import type { Volumes } from "../volumes.js";
import type { WarmClaim, WarmSettings } from "../warm.js";
import { adoptSandbox } from "./adopt.js";
import { createSandbox } from "./create.js";
import { EngineLayers } from "./engine-layers.js";
import { EngineWarm } from "./engine-warm.js";
import type { HostParts } from "./host-parts.js";
import { type BubblewrapEngineOptions, closeHost, openHost } from "./open-host.js";
import type { BubblewrapSandbox } from "./sandbox.js";
import { admissionRequest } from "./sandbox-budget.js";
import { resolveSandboxSpec } from "./spec.js";
import { bootStopped, discardStopped, isStopped, listStopped, salvage } from "./stopped.js";
import { removeStaleReservations, sweepHost } from "./sweep.js";
import { UnownedCgroups } from "./unowned-cgroups.js";

interface StartOptions {
  readonly signal?: AbortSignal | undefined;
  readonly admission?: Admission | undefined;
}

export class BubblewrapEngine implements Engine {
  readonly kind = "bubblewrap";
  readonly layers: Layers;
  readonly volumes: Volumes;
  readonly warm: EngineWarm;
  readonly #host: HostParts;
  readonly #sandboxes: Map<SandboxId, BubblewrapSandbox>;
  readonly #creations = new Set<Promise<BubblewrapSandbox>>();
  readonly #closing = new AbortController();
  readonly #unowned: UnownedCgroups;

  private constructor(
    sandboxes: Map<SandboxId, BubblewrapSandbox>,
    host: HostParts,
    options: { readonly warm: WarmSettings | undefined },
  ) {
    this.#sandboxes = sandboxes;
    this.#host = host;
    this.warm = new EngineWarm(host, options.warm);
    this.layers = new EngineLayers(host, (layer) => this.warm.drain(layer));
    this.volumes = host.volumes;
    this.#unowned = new UnownedCgroups(host);
  }

  /** Checks that the host can keep every promise, and says which it cannot. Never a weaker sandbox in silence. */
  static async open(options: BubblewrapEngineOptions = {}): Promise<BubblewrapEngine> {
    const sandboxes = new Map<SandboxId, BubblewrapSandbox>();
    const usedDiskBytes = () => [...sandboxes.values()].reduce((sum, sandbox) => sum + sandbox.lastDiskBytes, 0);
    const host = await openHost(options, usedDiskBytes);
    removeStaleReservations(host);
    return new BubblewrapEngine(sandboxes, host, { warm: options.warm });
  }

  async create(
    claimed: Partial<SandboxSpec>,
    options: StartOptions & { readonly warm?: WarmClaim | undefined } = {},
  ): Promise<Sandbox> {
    const given = options.warm === undefined ? claimed : { ...claimed, id: options.warm.id };
    this.#host.volumes.requireThere(given.mounts ?? []);
    const spec = resolveSandboxSpec(given);
    if (options.warm !== undefined) {
      if (options.signal?.aborted === true || options.admission?.signal?.aborted === true) {
        throw new HoldfastError("canceled", "the creation of the sandbox was canceled");
      }
      const ready = await this.warm.handOver(options.warm, spec, options.admission);
      if (ready !== undefined) {
        this.#keep(ready);
        return ready;
      }
    }
    const id = spec.id ?? createSandboxId();
    return this.#track(
      this.#admitted(id, { limits: spec.limits, ...options }, (signal) =>
        createSandbox(this.#host, id, { ...spec, id }, { signal }),
      ),
    );
  }

  async boot(id: SandboxId, options: StartOptions = {}): Promise<Sandbox> {
    const record = this.#host.records.read(id);
    const start = (signal: AbortSignal) => bootStopped(this.#host, id, { signal });
    // What is not stopped takes nothing more; the refusal is the start's own.
    if (!isStopped(record)) return this.#track(this.#withSignal([options.signal], start));
    return this.#track(this.#admitted(id, { limits: record.limits, ...options }, start)).catch((error: unknown) => {
      if (!(error instanceof HoldfastError) || error.code !== "sandbox_exists") throw error;
      throw new HoldfastError("sandbox_busy", `sandbox ${id} is just being started`, {
        cause: error,
        hint: "Try again in a moment.",
      });
    });
  }

  /** Takes its part of the host's budget first. What fails gives it back: whoever takes a sandbox down does. */
  async #admitted(
    id: SandboxId,
    { limits, admission, signal: given }: StartOptions & { readonly limits: SandboxLimits },
    start: (signal: AbortSignal) => Promise<BubblewrapSandbox>,
  ): Promise<BubblewrapSandbox> {
    const { governor } = this.#host;
    await this.#withSignal([given, admission?.signal], (signal) =>
      governor.reserve(admissionRequest(this.#host, id, { limits, admission }), { ...admission, signal }),
    );
    try {
      return await this.#withSignal([given], start);
    } catch (error) {
      // What could not be taken down whole goes on counting, until the sweep that finishes it.
      if (this.#host.cgroups.open(id) === undefined) governor.release(id);
      throw error;
    }
  }

  stopped(): SandboxId[] {
    return listStopped(this.#host);
  }

  async discard(id: SandboxId): Promise<void> {
    await discardStopped(this.#host, id);
  }

  salvage(id: SandboxId): boolean {
    return salvage(this.#host, id);
  }

  async capacity(): Promise<HostCapacity> {
    return readHostCapacity(this.#host);
  }

  pressure(): PressureReading {
    return readHostPressure(this.#host);
  }

  async endUnowned(): Promise<UnownedReport[]> {
    const swept = await this.sweep({ which: "all" });
    return [...swept, ...(await this.#unowned.end((id) => this.#sandboxes.has(id)))];
  }

  async budget(options: { readonly reservations?: boolean } = {}): Promise<BudgetReport> {
    return this.#host.governor.report(options);
  }

  /** Everything under way ends with us. */
  #withSignal<T>(signals: readonly (AbortSignal | undefined)[], work: (signal: AbortSignal) => Promise<T>): Promise<T> {
    return withLinkedSignal([...signals, this.#closing.signal], work);
  }

  async #track(creation: Promise<BubblewrapSandbox>): Promise<BubblewrapSandbox> {
    this.#creations.add(creation);
    try {
      const sandbox = await creation;
      this.#keep(sandbox);
      return sandbox;
    } finally {
      this.#creations.delete(creation);
    }
  }

  get(id: SandboxId): Sandbox | undefined {
    return this.#sandboxes.get(id);
  }

  list(): Sandbox[] {
    return [...this.#sandboxes.values()];
  }

  async adopt(): Promise<Sandbox[]> {
    const adopted: Sandbox[] = [];
    for (const id of this.#host.records.list()) {
      if (this.#sandboxes.has(id) || this.#host.records.hasLivingOwner(id)) continue;
      const sandbox = await adoptSandbox(this.#host, id);
      if (sandbox === undefined) continue;
      this.#keep(sandbox);
      adopted.push(sandbox);
    }
    return adopted;
  }

  async sweep(options: { which?: "all" | "abandoned" } = {}): Promise<SweepReport[]> {
    return sweepHost(this.#host, { which: options.which ?? "all", isOurs: (id) => this.#sandboxes.has(id) });
  }

  async close(options: { sandboxes: "kill" | "keep" }): Promise<void> {
    // What is being made has nobody yet who could want to keep it.
    this.#closing.abort();
    this.#host.governor.close();
    await this.warm.close();
    await Promise.allSettled(this.#creations);
    const sandboxes = [...this.#sandboxes.values()];
    if (options.sandboxes === "kill") await Promise.all(sandboxes.map((sandbox) => sandbox.kill("the engine's end")));
    else await Promise.all(sandboxes.map((sandbox) => sandbox.release()));
    this.#sandboxes.clear();
    await closeHost(this.#host);
  }

  #keep(sandbox: BubblewrapSandbox): void {
    this.#sandboxes.set(sandbox.id, sandbox);
    void sandbox.ended.then(() => this.#sandboxes.delete(sandbox.id));
  }
}
