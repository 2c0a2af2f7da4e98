/** The bubblewrap engine: keeps the list of sandboxes that this process answers for. */
import { chmodSync, mkdirSync, rmdirSync } from "node:fs";
import { isAbsolute, join } from "node:path";
import { createSandboxId, HoldfastError, invalidArgument, type SandboxId } from "@holdfast/protocol";
import { createOomLog, detectCgroups } from "../cgroups/index.js";
import type { Engine, HostCapacity, Sandbox, SandboxSpec, SweepReport } from "../engine.js";
import { GuestConnection } from "../guest/connection.js";
import { findProgram } from "../host/find-program.js";
import { Launcher } from "../host/launcher.js";
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
import { readCapacity } from "./capacity.js";
import { freeCommandId, listCommands } from "./command-list.js";
import { createSandbox } from "./create.js";
import { dismantle } from "./dismantle.js";
import { Endings } from "./endings.js";
import { EngineLayers } from "./engine-layers.js";
import type { HostParts, Log } from "./host-parts.js";
import { LayerClaims } from "./layer-claims.js";
import { usersOfMount } from "./mount-claims.js";
import { type SandboxRecord, SandboxRecords } from "./records.js";
import { BubblewrapSandbox } from "./sandbox.js";
import { resolveSandboxSpec } from "./spec.js";
import { endForeignStandstill } from "./standstill.js";
import { bootStopped, discardStopped, finishStop, hasRunning, isStopped, listStopped, salvage } from "./stopped.js";

export const DEFAULT_STATE_DIRECTORY = "/var/lib/holdfast";
/** A guest on a host that is out of breath takes its time; one that never answers is taken apart, files and all. */
const ADOPT_TIMEOUT_MS = 20_000;

export interface BubblewrapEngineOptions {
  readonly stateDirectory?: string;
  readonly pool?: PoolKind;
  readonly log?: Log;
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
  return record.bootId === bootId() ? "the process that answered for it is gone" : "the host has been restarted since";
}

export class BubblewrapEngine implements Engine {
  readonly kind = "bubblewrap";
  readonly layers: Layers;
  readonly volumes: Volumes;
  readonly #host: HostParts;
  readonly #sandboxes = new Map<SandboxId, BubblewrapSandbox>();
  readonly #creations = new Set<Promise<BubblewrapSandbox>>();
  readonly #closing = new AbortController();

  private constructor(host: HostParts) {
    this.#host = host;
    this.layers = new EngineLayers(host);
    this.volumes = host.volumes;
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
    const claims = new LayerClaims(records);
    return new BubblewrapEngine({
      cgroups,
      oomLog: createOomLog(),
      launcher,
      bwrapPath,
      pool,
      layers: new LayerStore({ pool, us, usersOf: (layer) => claims.usersOf(layer) }),
      volumes: new VolumeStore({ pool, launcher, us, usersOf: (path) => usersOfMount(records, path) }),
      records,
      imagesDirectory,
      skeleton: skeletonSource(imagesDirectory, { sudo: launcher.guestPath, tar: launcher.tarPath }),
      us,
      log: options.log ?? silentLog,
    });
  }

  async create(given: Partial<SandboxSpec>, options: { signal?: AbortSignal } = {}): Promise<Sandbox> {
    this.#host.volumes.requireThere(given.mounts ?? []);
    const spec = resolveSandboxSpec(given);
    const id = spec.id ?? createSandboxId();
    return this.#track(createSandbox(this.#host, id, { ...spec, id }, { signal: this.#signalOr(options.signal) }));
  }

  async boot(id: SandboxId, options: { signal?: AbortSignal } = {}): Promise<Sandbox> {
    return this.#track(bootStopped(this.#host, id, { signal: this.#signalOr(options.signal) }));
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
    return readCapacity(this.#host);
  }

  /** Everything under way ends with us. */
  #signalOr(signal: AbortSignal | undefined): AbortSignal {
    return signal === undefined ? this.#closing.signal : AbortSignal.any([signal, this.#closing.signal]);
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
    const ids = new Set([...records.list(), ...cgroups.list().filter((id) => records.exists(id))]);
    for (const id of ids) {
      if (this.#sandboxes.has(id) || records.hasLivingOwner(id)) continue;
      const why = await this.#sweepOne(id, options.which ?? "all");
      if (why !== undefined) reports.push({ id, why });
    }
    removeStaleUidClaims();
    await this.#host.layers.sweep((name, error) => {
      this.#host.log.warn(
        { layer: name, error: HoldfastError.from(error).message },
        "what is left of a layer could not be removed",
      );
    });
    await this.#host.volumes.sweep((name, error) => {
      this.#host.log.warn(
        { volume: name, error: HoldfastError.from(error).message },
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
        record.discarded !== true
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
      log.warn({ sandbox: id, error: HoldfastError.from(error).message }, "a sandbox could not be swept away");
      return undefined;
    }
  }

  async close(options: { sandboxes: "kill" | "keep" }): Promise<void> {
    // What is being made has nobody yet who could want to keep it.
    this.#closing.abort();
    await Promise.allSettled(this.#creations);
    const sandboxes = [...this.#sandboxes.values()];
    if (options.sandboxes === "kill") await Promise.all(sandboxes.map((sandbox) => sandbox.kill("the engine's end")));
    else await Promise.all(sandboxes.map((sandbox) => sandbox.release()));
    this.#sandboxes.clear();
    await Promise.all([this.#host.layers.idle(), this.#host.volumes.idle()]);
    await this.#host.pool.close();
    this.#host.cgroups.removeIfEmptyParents();
    this.#host.oomLog.close();
    // Gone with the last sandbox of the host; busy if there are others.
    for (const directory of ["/run/holdfast/uid-ranges", "/run/holdfast"]) {
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
        { sandbox: id, error: HoldfastError.from(error).message },
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
    if (record.spec.whenOwnerDies === "end") return undefined;
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
      return new BubblewrapSandbox(this.#host, {
        record,
        cgroup,
        connection,
        uids: { base: uid?.base ?? 0 },
        nextCommandId,
      });
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
