/** The bubblewrap engine: keeps the list of sandboxes that this process answers for. */
import { chmodSync, existsSync, mkdirSync, realpathSync, rmdirSync } from "node:fs";
import { isAbsolute, join, posix } from "node:path";
import {
  createSandboxId,
  HoldfastError,
  invalidArgument,
  parseSandboxId,
  resolveSandboxLimits,
  type SandboxId,
} from "@holdfast/protocol";
import { createOomLog, detectCgroups } from "../cgroups/index.js";
import type { Engine, MountSpec, Sandbox, SandboxSpec, SweepReport } from "../engine.js";
import { GuestConnection } from "../guest/connection.js";
import { findProgram } from "../host/find-program.js";
import { Launcher } from "../host/launcher.js";
import { bootId, ourIdentity } from "../host/processes.js";
import { listUidClaims, releaseUidRange } from "../host/uid-ranges.js";
import { prepareSkeleton } from "../images/host-image.js";
import { openBtrfsPool } from "../storage/btrfs-pool.js";
import { openDirPool } from "../storage/dir-pool.js";
import { POOL_KINDS, type PoolKind } from "../storage/pool.js";
import { createSandbox } from "./create.js";
import { dismantle } from "./dismantle.js";
import { Endings } from "./endings.js";
import type { HostParts, Log } from "./host-parts.js";
import { SandboxRecords } from "./records.js";
import { BubblewrapSandbox, freeCommandId, listCommands } from "./sandbox.js";

export const DEFAULT_STATE_DIRECTORY = "/var/lib/holdfast";
const ADOPT_TIMEOUT_MS = 5000;

export interface BubblewrapEngineOptions {
  readonly stateDirectory?: string;
  readonly pool?: PoolKind;
  readonly log?: Log;
}

/** How long a skeleton counts as up to date: looking takes half a millisecond, and hosts are not upgraded that often. */
const SKELETON_FRESH_MS = 5000;

function skeletonSource(imagesDirectory: string, guestPath: string): () => string {
  let path: string | undefined;
  let lookedAt = 0;
  return () => {
    if (path === undefined || Date.now() - lookedAt > SKELETON_FRESH_MS) {
      path = prepareSkeleton({ imagesDirectory, guestPath });
      lookedAt = Date.now();
    }
    return path;
  };
}

const silentLog: Log = { info: () => {}, warn: () => {} };

function validateMount(mount: MountSpec, index: number): void {
  const field = `mounts[${index}]`;
  if (!isAbsolute(mount.source)) throw invalidArgument(`${field}.source`, mount.source, "an absolute path");
  if (!isAbsolute(mount.target) || mount.target !== posix.normalize(mount.target)) {
    throw invalidArgument(`${field}.target`, mount.target, "an absolute path without //, . and ..");
  }
  // Below these a mount would hide what the sandbox itself stands on.
  if (/^\/+(proc|dev|sys)?(\/|$)/.test(mount.target) && /^\/+(proc|dev|sys)(\/|$)|^\/+$/.test(mount.target)) {
    throw invalidArgument(`${field}.target`, mount.target, "a place other than /, /proc, /dev and /sys");
  }
  if (!existsSync(mount.source)) throw invalidArgument(`${field}.source`, mount.source, "something that exists");
  const real = realpathSync(mount.source);
  // Whoever may write beside it could make it lead anywhere. The launcher looks again when it opens it.
  if (real !== posix.normalize(mount.source).replace(/(.)\/$/, "$1")) {
    throw invalidArgument(`${field}.source`, mount.source, `a path without symbolic links (it leads to ${real})`);
  }
}

export function resolveSandboxSpec(given: Partial<SandboxSpec>): SandboxSpec {
  const hostname = given.hostname ?? "sandbox";
  if (!/^[a-zA-Z0-9][a-zA-Z0-9.-]{0,63}$/.test(hostname)) {
    throw invalidArgument("hostname", hostname, "1 to 64 letters, digits, dots and dashes");
  }
  (given.mounts ?? []).forEach(validateMount);
  return {
    id: given.id === undefined ? undefined : parseSandboxId(given.id, "id"),
    image: given.image ?? { kind: "host" },
    limits: resolveSandboxLimits(given.limits),
    env: given.env ?? {},
    mounts: given.mounts ?? [],
    hostname,
    defaultUser: given.defaultUser ?? "user",
    whenOwnerDies: given.whenOwnerDies ?? "keep",
    labels: given.labels ?? {},
  };
}

export class BubblewrapEngine implements Engine {
  readonly kind = "bubblewrap";
  readonly #host: HostParts;
  readonly #sandboxes = new Map<SandboxId, BubblewrapSandbox>();
  readonly #creations = new Set<Promise<BubblewrapSandbox>>();
  readonly #closing = new AbortController();

  private constructor(host: HostParts) {
    this.#host = host;
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
        : await openBtrfsPool({ stateDirectory, launcher });
    return new BubblewrapEngine({
      cgroups,
      oomLog: createOomLog(),
      launcher,
      bwrapPath,
      pool,
      records,
      skeleton: skeletonSource(imagesDirectory, launcher.guestPath),
      us: ourIdentity(),
      log: options.log ?? silentLog,
    });
  }

  async create(given: Partial<SandboxSpec>, options: { signal?: AbortSignal } = {}): Promise<Sandbox> {
    const spec = resolveSandboxSpec(given);
    const id = spec.id ?? createSandboxId();
    const signal =
      options.signal === undefined ? this.#closing.signal : AbortSignal.any([options.signal, this.#closing.signal]);
    const creation = createSandbox(this.#host, id, { ...spec, id }, { signal });
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
    const { records, cgroups, log } = this.#host;
    const reports: SweepReport[] = [];
    records.removeScraps();
    const ids = new Set([...records.list(), ...cgroups.list().filter((id) => records.exists(id))]);
    for (const id of ids) {
      if (this.#sandboxes.has(id) || records.hasLivingOwner(id)) continue;
      const record = records.read(id);
      // It may have ended by itself since the list was made.
      if (!records.exists(id)) continue;
      if (options.which === "abandoned" && record?.spec.whenOwnerDies === "keep" && record.bootId === bootId())
        continue;
      const why =
        record === undefined
          ? "its creation was cut off"
          : record.bootId !== bootId()
            ? "the host has been restarted since"
            : "the process that answered for it is gone";
      try {
        await dismantle(this.#host, id);
        reports.push({ id, why });
        log.info({ sandbox: id, why }, "swept a sandbox away");
      } catch (error) {
        log.warn({ sandbox: id, error: HoldfastError.from(error).message }, "a sandbox could not be swept away");
      }
    }
    for (const claim of listUidClaims()) {
      if (claim.owner !== "" && !existsSync(claim.owner)) releaseUidRange(claim.slot);
    }
    return reports;
  }

  async close(options: { sandboxes: "kill" | "keep" }): Promise<void> {
    // What is being made has nobody yet who could want to keep it.
    this.#closing.abort();
    await Promise.allSettled(this.#creations);
    const sandboxes = [...this.#sandboxes.values()];
    if (options.sandboxes === "kill") await Promise.all(sandboxes.map((sandbox) => sandbox.kill("the engine's end")));
    else for (const sandbox of sandboxes) sandbox.release();
    this.#sandboxes.clear();
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

  /** Undefined if it cannot be taken over; then it is for the sweep. */
  async #adoptOne(id: SandboxId): Promise<BubblewrapSandbox | undefined> {
    const { records, cgroups, log, us } = this.#host;
    const record = records.read(id);
    if (record === undefined || record.bootId !== bootId()) return undefined;
    if (record.spec.whenOwnerDies === "end") return undefined;
    const cgroup = cgroups.openAt(record.cgroupPaths as Record<string, string>);
    if (cgroup === undefined || cgroup.isEmpty()) return undefined;
    if (!records.takeOver(id, us)) return undefined;
    const uid = listUidClaims().find((claim) => claim.slot === record.uidSlot);
    try {
      // A frozen guest cannot say hello; it is thawed for as long as that takes.
      const wasFrozen = cgroup.isFrozen();
      if (wasFrozen) await cgroup.thaw();
      const connection = await GuestConnection.open(records.socketPath(id), { timeoutMs: ADOPT_TIMEOUT_MS });
      const nextCommandId = freeCommandId(await listCommands(connection), new Endings(records.pathOf(id, "endings")));
      if (wasFrozen) await cgroup.freeze();
      log.info({ sandbox: id }, "adopted a sandbox");
      return new BubblewrapSandbox(this.#host, { record, cgroup, connection, uidBase: uid?.base ?? 0, nextCommandId });
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
