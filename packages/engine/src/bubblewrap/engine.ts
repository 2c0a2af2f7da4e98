/** The bubblewrap engine: keeps the list of sandboxes that this process answers for. */
import { chmodSync, existsSync, mkdirSync, rmdirSync } from "node:fs";
import { dirname, isAbsolute, join } from "node:path";
import {
  createSandboxId,
  HoldfastError,
  invalidArgument,
  type SandboxId,
  type SandboxLimits,
} from "@holdfast/protocol";
import { CgroupWatch, createOomLog, detectCgroups } from "../cgroups/index.js";
import type { Engine, Sandbox, SandboxSpec, SweepReport } from "../engine.js";
import { Governor } from "../governor/governor.js";
import { type BudgetSettings, readHostBudget, readHostCapacity } from "../governor/host-budget.js";
import { readHostPressure } from "../governor/host-pressure.js";
import type { PressureReading, UnownedReport } from "../governor/pressure.js";
import { budgetDirectory, ReservationFiles } from "../governor/reservation-files.js";
import type { Admission, BudgetReport, HostCapacity, Waited } from "../governor/types.js";
import { GuestConnection } from "../guest/connection.js";
import { findProgram } from "../host/find-program.js";
import { Launcher } from "../host/launcher.js";
import { linkSignals } from "../host/linked-signal.js";
import type { Log } from "../host/log.js";
import { bootId, ourIdentity } from "../host/processes.js";
import { listUidClaims, removeStaleUidClaims } from "../host/uid-ranges.js";
import type { OurPrograms } from "../images/above.js";
import { prepareSkeleton } from "../images/host-image.js";
import { removeOldSkeletons } from "../images/old-skeletons.js";
import type { Layers } from "../layers.js";
import { openBtrfsPool } from "../storage/btrfs-pool.js";
import { openDirPool } from "../storage/dir-pool.js";
import { LayerStore } from "../storage/layer-store.js";
import { POOL_KINDS, type PoolKind } from "../storage/pool.js";
import { VolumeStore } from "../storage/volume-store.js";
import type { Volumes } from "../volumes.js";
import type { WarmClaim, WarmSettings } from "../warm.js";
import { freeCommandId, listCommands } from "./command-list.js";
import { createSandbox } from "./create.js";
import { dismantle } from "./dismantle.js";
import { Endings } from "./endings.js";
import { EngineLayers } from "./engine-layers.js";
import { EngineWarm } from "./engine-warm.js";
import type { HostParts } from "./host-parts.js";
import { LayerClaims } from "./layer-claims.js";
import { usersOfMount } from "./mount-claims.js";
import { type SandboxRecord, SandboxRecords } from "./records.js";
import { BubblewrapSandbox } from "./sandbox.js";
import { admissionRequest } from "./sandbox-budget.js";
import { resolveSandboxSpec } from "./spec.js";
import { endForeignStandstill } from "./standstill.js";
import { bootStopped, discardStopped, finishStop, hasRunning, isStopped, listStopped, salvage } from "./stopped.js";
import { UnownedCgroups } from "./unowned-cgroups.js";

export const DEFAULT_STATE_DIRECTORY = "/var/lib/holdfast";
/** A guest on a host that is out of breath takes its time; one that never answers is taken apart, files and all. */
const ADOPT_TIMEOUT_MS = 20_000;
const DEFAULT_HOLD_WAIT_MS = 30_000;

export interface BubblewrapEngineOptions {
  readonly stateDirectory?: string;
  readonly pool?: PoolKind;
  readonly log?: Log;
  /** What of the host is kept back, and how many times over it is promised. */
  readonly budget?: BudgetSettings;
  /** How long a sandbox that is held at its memory limit waits for room on the host before the kernel kills in it. */
  readonly holdWaitMs?: number;
  /** Told of everybody who has waited for room on the host. */
  readonly onWaited?: (waited: Waited) => void;
  /** How many sandboxes are kept ready; none if absent. */
  readonly warm?: WarmSettings;
}

interface StartOptions {
  readonly signal?: AbortSignal | undefined;
  readonly admission?: Admission | undefined;
}

/** How long a skeleton counts as up to date: looking takes half a millisecond, and hosts are not upgraded that often. */
const SKELETON_FRESH_MS = 5000;

function skeletonSource(imagesDirectory: string, programs: OurPrograms): () => string {
  let path: string | undefined;
  let lookedAt = 0;
  return () => {
    if (path === undefined || Date.now() - lookedAt > SKELETON_FRESH_MS) {
      path = prepareSkeleton({ imagesDirectory, programs });
      lookedAt = Date.now();
    }
    return path;
  };
}

const silentLog: Log = { info: () => {}, warn: () => {} };

function whySwept(record: SandboxRecord | undefined): string {
  if (record === undefined) return "its creation was cut off";
  if (record.discarded === true) return "its removal was cut off";
  if (record.warm === true) return "it was kept ready by a process that is gone";
  return record.bootId === bootId() ? "the process that answered for it is gone" : "the host has been restarted since";
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
    if (process.platform !== "linux") throw new HoldfastError("host_unsupported", "Holdfast runs on Linux only");
    if (process.getuid?.() !== 0) {
      throw new HoldfastError(
        "host_unsupported",
        "Holdfast needs root on the host: it makes cgroups, mounts and user namespaces",
        {
          hint: "Run it with sudo. Nothing inside a sandbox is root outside.",
        },
      );
    }
    const stateDirectory = options.stateDirectory ?? process.env.HOLDFAST_STATE_DIR ?? DEFAULT_STATE_DIRECTORY;
    if (!isAbsolute(stateDirectory)) throw invalidArgument("stateDirectory", stateDirectory, "an absolute path");
    const poolKind = options.pool ?? process.env.HOLDFAST_POOL ?? "btrfs";
    if (!(POOL_KINDS as readonly string[]).includes(poolKind))
      throw invalidArgument("pool", poolKind, `one of ${POOL_KINDS.join(", ")}`);
    const bwrapPath = findProgram("bwrap");
    if (bwrapPath === undefined) {
      throw new HoldfastError("host_unsupported", "bubblewrap (bwrap) is not installed, and nothing runs without it", {
        hint: "apt-get install bubblewrap",
      });
    }
    const launcher = new Launcher();
    const cgroups = detectCgroups();
    mkdirSync(stateDirectory, { recursive: true, mode: 0o700 });
    const imagesDirectory = join(stateDirectory, "images");
    // Disks and images hold files with ids that mean something on the host: set-id programs among them. Nobody else
    // may so much as look in.
    for (const name of ["images", "sandboxes", "disks", "pool"]) {
      mkdirSync(join(stateDirectory, name), { recursive: true, mode: 0o700 });
      if (name !== "pool") chmodSync(join(stateDirectory, name), 0o700);
    }
    const records = new SandboxRecords(stateDirectory);
    const pool =
      poolKind === "dir"
        ? openDirPool({ directory: join(stateDirectory, "disks"), launcher })
        : await openBtrfsPool({ stateDirectory, launcher, isInUse: () => hasRunning(records) });
    const us = ourIdentity();
    const sandboxes = new Map<SandboxId, BubblewrapSandbox>();
    const usedDiskBytes = () => [...sandboxes.values()].reduce((sum, sandbox) => sum + sandbox.lastDiskBytes, 0);
    const claims = new LayerClaims(records);
    const log = options.log ?? silentLog;
    const host: HostParts = {
      cgroups,
      oomLog: createOomLog(),
      governor: new Governor({
        files: new ReservationFiles(budgetDirectory(cgroups.baseName), us),
        readBudget: () => readHostBudget({ cgroups, pool }, options.budget ?? {}, usedDiskBytes()),
        onWaited: options.onWaited,
      }),
      watch: new CgroupWatch(launcher.path, log),
      holdWaitMs: options.holdWaitMs ?? DEFAULT_HOLD_WAIT_MS,
      launcher,
      bwrapPath,
      pool,
      layers: new LayerStore({ pool, us, usersOf: (layer) => claims.usersOf(layer) }),
      volumes: new VolumeStore({ pool, launcher, us, usersOf: (path) => usersOfMount(records, path) }),
      records,
      imagesDirectory,
      skeleton: skeletonSource(imagesDirectory, { sudo: launcher.guestPath, tar: launcher.tarPath }),
      us,
      log,
    };
    const engine = new BubblewrapEngine(sandboxes, host, { warm: options.warm });
    engine.#removeStaleReservations();
    return engine;
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

  /** Of processes that were killed: what they had begun is gone, or has come to rest. */
  #removeStaleReservations(): void {
    const { governor, records } = this.#host;
    governor.removeStale((record, id) => {
      if (!existsSync(record)) return false;
      // Another state directory's are not ours to judge.
      if (record !== records.pathOf(id as SandboxId)) return true;
      return !(isStopped(records.read(id as SandboxId)) && records.isAtRest(id as SandboxId));
    });
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
  async #withSignal<T>(
    signals: readonly (AbortSignal | undefined)[],
    work: (signal: AbortSignal) => Promise<T>,
  ): Promise<T> {
    const { signal, unlink } = linkSignals([...signals, this.#closing.signal]);
    try {
      return await work(signal);
    } finally {
      unlink();
    }
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
      const sandbox = await this.#adoptOne(id);
      if (sandbox === undefined) continue;
      this.#keep(sandbox);
      adopted.push(sandbox);
    }
    return adopted;
  }

  async sweep(options: { which?: "all" | "abandoned" } = {}): Promise<SweepReport[]> {
    const { records, cgroups } = this.#host;
    const reports: SweepReport[] = [];
    records.removeScraps();
    this.#removeStaleReservations();
    const ids = new Set([...records.list(), ...cgroups.list().filter((id) => records.exists(id))]);
    for (const id of ids) {
      if (this.#sandboxes.has(id) || records.hasLivingOwner(id)) continue;
      const processes = cgroups.open(id)?.processes().length ?? 0;
      const why = await this.#sweepOne(id, options.which ?? "all");
      if (why !== undefined) reports.push({ id, processes, why });
    }
    removeStaleUidClaims();
    await this.#host.layers.sweep((name, error) => {
      this.#host.log.warn(
        { left: "layer", layer: name, error: HoldfastError.from(error).message },
        "what is left of a layer could not be removed",
      );
    });
    await this.#host.volumes.sweep((name, error) => {
      this.#host.log.warn(
        { left: "volume", volume: name, error: HoldfastError.from(error).message },
        "what is left of a volume could not be removed",
      );
    });
    removeOldSkeletons(this.#host.imagesDirectory, {
      current: () => this.#host.skeleton(),
      inUse: records.list().flatMap((id) => records.read(id) ?? []),
    });
    return reports;
  }

  /** Why it was swept away; undefined if it was not. */
  async #sweepOne(id: SandboxId, which: "all" | "abandoned"): Promise<string | undefined> {
    const { records, log, us } = this.#host;
    const isKept = () => {
      const record = records.read(id);
      if (isStopped(record)) return true;
      return (
        which === "abandoned" &&
        record?.spec.whenOwnerDies === "keep" &&
        record.bootId === bootId() &&
        record.discarded !== true &&
        record.warm !== true
      );
    };
    try {
      if (isStopped(records.read(id))) await finishStop(this.#host, id);
      // It may have ended by itself since the list was made.
      if (isKept() || !records.exists(id)) return undefined;
      // Whoever adopts or boots it meanwhile is quicker, or we are.
      const taken = records.takeOver(id, us);
      if (taken === undefined && records.hasOwner(id)) return undefined;
      if (isKept()) {
        records.disown(id, us, { remains: taken?.remains ?? true });
        return undefined;
      }
      const why = whySwept(records.read(id));
      await dismantle(this.#host, id);
      log.info({ sandbox: id, why }, "swept a sandbox away");
      return why;
    } catch (error) {
      records.disown(id, us, { remains: true });
      log.warn(
        { left: "sandbox", sandbox: id, error: HoldfastError.from(error).message },
        "a sandbox could not be swept away",
      );
      return undefined;
    }
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
    await Promise.all([this.#host.layers.idle(), this.#host.volumes.idle()]);
    await this.#host.pool.close();
    this.#host.cgroups.removeIfEmptyParents();
    this.#host.oomLog.close();
    this.#host.watch.close();
    // Gone with the last sandbox of the host; busy if there are others.
    const budget = budgetDirectory(this.#host.cgroups.baseName);
    for (const directory of [budget, dirname(budget), "/run/holdfast/uid-ranges", "/run/holdfast"]) {
      try {
        rmdirSync(directory);
      } catch {
        // Somebody else's claims are in it, or it was never made.
      }
    }
  }

  #keep(sandbox: BubblewrapSandbox): void {
    this.#sandboxes.set(sandbox.id, sandbox);
    void sandbox.ended.then(() => this.#sandboxes.delete(sandbox.id));
  }

  async #finishStop(id: SandboxId): Promise<void> {
    try {
      await finishStop(this.#host, id);
    } catch (error) {
      this.#host.log.warn(
        { left: "sandbox", sandbox: id, error: HoldfastError.from(error).message },
        "something is left of a stopped sandbox's processes",
      );
    }
  }

  /** Undefined if it cannot be taken over; then it is for the sweep. */
  async #adoptOne(id: SandboxId): Promise<BubblewrapSandbox | undefined> {
    const { records, cgroups, log, us } = this.#host;
    const record = records.read(id);
    if (isStopped(record)) {
      await this.#finishStop(id);
      return undefined;
    }
    if (record === undefined || record.bootId !== bootId() || record.discarded === true) return undefined;
    if (record.spec.whenOwnerDies === "end" || record.warm === true) return undefined;
    const cgroup = cgroups.openAt(record.cgroupPaths as Record<string, string>);
    if (cgroup === undefined || cgroup.isEmpty()) return undefined;
    const taken = records.takeOver(id, us);
    if (taken === undefined) return undefined;
    if (JSON.stringify(records.read(id)) !== JSON.stringify(record)) {
      // It was adopted, stopped, perhaps booted since we looked: whoever did so knows better what to do with it.
      records.disown(id, us, taken);
      return undefined;
    }
    const uid = listUidClaims().find((claim) => claim.slot === record.uidSlot);
    try {
      // A frozen guest cannot say hello; it is thawed for as long as that takes.
      const wasFrozen = await endForeignStandstill(records, id, cgroup);
      if (wasFrozen) await cgroup.thaw();
      const connection = await GuestConnection.open(records.socketPath(id), { timeoutMs: ADOPT_TIMEOUT_MS });
      const endings = new Endings(records.pathOf(id, "endings"));
      const nextCommandId = Math.max(
        record.commandIdsFrom ?? 1,
        freeCommandId(await listCommands(connection), endings),
      );
      if (wasFrozen) await cgroup.freeze();
      log.info({ sandbox: id }, "adopted a sandbox");
      const sandbox = new BubblewrapSandbox(this.#host, {
        record,
        cgroup,
        connection,
        uids: { base: uid?.base ?? 0 },
        nextCommandId,
      });
      sandbox.takeOverShare();
      return sandbox;
    } catch (error) {
      log.warn(
        { sandbox: id, error: HoldfastError.from(error).message },
        "a sandbox could not be adopted; sweeping it away",
      );
      await dismantle(this.#host, id, { cgroup });
      return undefined;
    }
  }
}
