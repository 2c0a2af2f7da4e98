/**
 * Volumes as directories of a pool, below `volumes/`, each of the shape of a disk: its files are in `upper`.
 *
 *   <id>                 a volume
 *   .new-<id>.<maker>    one that is being made
 *   .gone-<id>.<remover> one that is being removed, unless it turns out that a sandbox has it
 *   .rest-<id>.<remover> one that is being removed for good, part of it may be gone already
 *
 * Everything appears and goes by being renamed. As with layers, whoever makes a sandbox first says which volumes it has, then
 * looks whether they are there; whoever removes one first takes it away, then looks whether anybody has said so.
 */
import { chmodSync, existsSync, mkdirSync, readdirSync, renameSync } from "node:fs";
import { basename, dirname, join } from "node:path";
import { setTimeout as sleep } from "node:timers/promises";
import { HoldfastError, invalidArgument, type SandboxId } from "@holdfast/protocol";
import type { MountSpec } from "../engine.js";
import type { Launcher } from "../host/launcher.js";
import { bootTag, isAlive, type ProcessIdentity } from "../host/processes.js";
import type { Volumes } from "../volumes.js";
import type { Pool } from "./pool.js";

const VOLUME_ID = /^v[a-z0-9]{20}$/;
const SCRAP = /^\.(new|gone|rest)-(v[a-z0-9]{20})\.(\d+)\.(\d+)\.([0-9a-f]+)\.\d+$/;
const FILES = "upper";
/** Whoever is in the sandbox may write: whose files they are is for those who share the volume to agree on. */
const ROOT_MODE = 0o777;
/** A removal that is called off has the volume back within a moment. */
const MISSING_FOR_MS = 200;
const LOOK_MS = 20;

export class VolumeStore implements Volumes {
  readonly directory: string;
  readonly #pool: Pool;
  readonly #launcher: Launcher;
  readonly #us: ProcessIdentity;
  readonly #usersOf: (path: string) => SandboxId[];
  readonly #underWay = new Set<Promise<unknown>>();
  #serial = 0;

  constructor(options: {
    readonly pool: Pool;
    readonly launcher: Launcher;
    readonly us: ProcessIdentity;
    /** Sandboxes that have this directory among their mounts, or are about to. */
    readonly usersOf: (path: string) => SandboxId[];
  }) {
    this.#pool = options.pool;
    this.#launcher = options.launcher;
    this.#us = options.us;
    this.#usersOf = options.usersOf;
    this.directory = join(options.pool.directory, "volumes");
  }

  get enforcesLimits(): boolean {
    return this.#pool.enforcesLimits;
  }

  create(id: string, options: { readonly limitBytes: number }): Promise<void> {
    return this.#track(() => this.#create(id, options.limitBytes));
  }

  async #create(id: string, limitBytes: number): Promise<void> {
    const disk = this.#diskOf(id);
    this.#requireFree(id);
    mkdirSync(this.directory, { recursive: true, mode: 0o700 });
    const fresh = this.#scrapPath("new", id);
    try {
      await this.#pool.makeLayer(fresh);
      chmodSync(join(fresh, FILES), ROOT_MODE);
      if (this.#pool.enforcesLimits) await this.#launcher.limitDisk(fresh, limitBytes);
      this.#requireFree(id);
      renameSync(fresh, disk);
    } catch (error) {
      await this.#pool.remove(fresh);
      throw error;
    }
  }

  has(id: string): boolean {
    return existsSync(this.#diskOf(id));
  }

  list(): string[] {
    return this.#names().filter((name) => VOLUME_ID.test(name));
  }

  path(id: string): string {
    return join(this.#diskOf(id), FILES);
  }

  async usedBytes(id: string): Promise<number | null> {
    if (!this.has(id)) throw this.#missing(id);
    return this.#pool.enforcesLimits ? this.#pool.layerBytes(this.#diskOf(id)) : null;
  }

  users(id: string): SandboxId[] {
    return this.#usersOf(this.path(id));
  }

  /** Refuses mounts of volumes that are not there. For an answer in words, not for protection: one may go right after. */
  requireThere(mounts: readonly MountSpec[]): void {
    for (const id of this.#among(mounts)) if (!this.has(id)) throw this.#missing(id);
  }

  /** Resolves when all of them are there. Whoever asks must have said before that it has them: from then on none goes. */
  async requireAll(mounts: readonly MountSpec[]): Promise<void> {
    const ids = this.#among(mounts);
    const deadline = Date.now() + MISSING_FOR_MS;
    while (!ids.every((id) => this.has(id)) && Date.now() < deadline) await sleep(LOOK_MS);
    this.requireThere(mounts);
  }

  remove(id: string): Promise<void> {
    return this.#track(() => this.#remove(id));
  }

  async #remove(id: string): Promise<void> {
    if (!this.has(id)) return;
    this.#requireUnused(id);
    const going = this.#scrapPath("gone", id);
    if (!renameIfThere(this.#diskOf(id), going)) return;
    try {
      this.#requireUnused(id);
    } catch (error) {
      renameSync(going, this.#diskOf(id));
      throw error;
    }
    await this.#removeForGood(id, going);
  }

  /** Removes what dead processes left; a removal that was cut off is called off if a sandbox has the volume after all. */
  async sweep(onFailure: (name: string, error: unknown) => void): Promise<void> {
    for (const name of this.#names()) {
      const [, kind, id, pid, startTicks, boot] = SCRAP.exec(name) ?? [];
      if (id === undefined || startTicks === undefined) continue;
      if (boot === bootTag() && isAlive({ pid: Number(pid), startTicks })) continue;
      const path = join(this.directory, name);
      try {
        if (kind === "gone" && this.users(id).length > 0) renameIfThere(path, this.#diskOf(id));
        else await this.#removeForGood(id, path);
      } catch (error) {
        onFailure(name, error);
      }
    }
  }

  /** Everything under way is waited for before the pool is let go. */
  async idle(): Promise<void> {
    await Promise.allSettled(this.#underWay);
  }

  async #removeForGood(id: string, path: string): Promise<void> {
    const rest = this.#scrapPath("rest", id);
    if (renameIfThere(path, rest)) await this.#pool.remove(rest);
  }

  #track<T>(work: () => Promise<T>): Promise<T> {
    const promise = work();
    this.#underWay.add(promise);
    const done = () => void this.#underWay.delete(promise);
    promise.then(done, done);
    return promise;
  }

  /** The ids of those mounts that show volumes. */
  #among(mounts: readonly MountSpec[]): string[] {
    return mounts.flatMap(({ source }) => {
      const disk = dirname(source);
      return basename(source) === FILES && dirname(disk) === this.directory && VOLUME_ID.test(basename(disk))
        ? [basename(disk)]
        : [];
    });
  }

  #requireFree(id: string): void {
    if (this.has(id)) throw invalidArgument("volume id", id, "an id that no volume has");
  }

  #requireUnused(id: string): void {
    const users = this.users(id);
    if (users.length === 0) return;
    throw new HoldfastError("volume_in_use", `volume ${id} is in use by ${users.join(", ")}`, {
      hint: "End those sandboxes first, the paused ones among them too.",
      details: { volume: id, sandboxes: users },
    });
  }

  #missing(id: string): HoldfastError {
    return new HoldfastError("volume_not_found", `there is no volume ${id} in the ${this.#pool.kind} pool`, {
      hint: "It has been removed, or was made in a pool of another kind (--pool).",
      details: { volume: id },
    });
  }

  #names(): string[] {
    try {
      return readdirSync(this.directory);
    } catch {
      // There never was a volume.
      return [];
    }
  }

  #diskOf(id: string): string {
    if (!VOLUME_ID.test(id)) throw invalidArgument("volume id", id, "`v` and 20 lower-case letters and digits");
    return join(this.directory, id);
  }

  #scrapPath(kind: "new" | "gone" | "rest", id: string): string {
    const { pid, startTicks } = this.#us;
    return join(
      this.directory,
      `.${kind}-${id}.${pid}.${startTicks}.${bootTag()}.${process.hrtime.bigint()}${this.#serial++}`,
    );
  }
}

/** False if somebody else was quicker. */
function renameIfThere(from: string, to: string): boolean {
  try {
    renameSync(from, to);
    return true;
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code === "ENOENT") return false;
    throw HoldfastError.from(error);
  }
}
