/** Volumes as directories of a pool, below `volumes/`, each of the shape of a disk: its files are in `upper`. See scraps.ts. */
import { chmodSync, existsSync, mkdirSync, renameSync } from "node:fs";
import { basename, dirname, join } from "node:path";
import { HoldfastError, invalidArgument, type SandboxId } from "@holdfast/protocol";
import type { MountSpec } from "../engine.js";
import type { Launcher } from "../host/launcher.js";
import type { ProcessIdentity } from "../host/processes.js";
import type { Volumes } from "../volumes.js";
import type { Pool } from "./pool.js";
import { Scraps } from "./scraps.js";

const VOLUME_ID = /^v[a-z0-9]{20}$/;
const FILES = "upper";
/** Whoever is in the sandbox may write: whose files they are is for those who share the volume to agree on. */
const ROOT_MODE = 0o777;

export class VolumeStore implements Volumes {
  readonly directory: string;
  readonly #pool: Pool;
  readonly #launcher: Launcher;
  readonly #scraps: Scraps;
  readonly #usersOf: (path: string) => SandboxId[];
  readonly #underWay = new Set<Promise<unknown>>();

  constructor(options: {
    readonly pool: Pool;
    readonly launcher: Launcher;
    readonly us: ProcessIdentity;
    /** Sandboxes that have this directory among their mounts, or are about to. */
    readonly usersOf: (path: string) => SandboxId[];
  }) {
    this.#pool = options.pool;
    this.#launcher = options.launcher;
    this.#usersOf = options.usersOf;
    this.directory = join(options.pool.directory, "volumes");
    this.#scraps = new Scraps(this.directory, options.us);
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
    const fresh = this.#scraps.path("new", id);
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
    return this.#scraps.names().filter((name) => VOLUME_ID.test(name));
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
    await this.#scraps.decided(this.#among(mounts));
    this.requireThere(mounts);
  }

  remove(id: string): Promise<void> {
    return this.#track(() => this.#remove(id));
  }

  async #remove(id: string): Promise<void> {
    if (!this.has(id)) return;
    this.#requireUnused(id);
    const rest = this.#scraps.takeAway(id, () => this.#requireUnused(id));
    if (rest !== undefined) await this.#pool.remove(rest);
  }

  async sweep(onFailure: (path: string, error: unknown) => void): Promise<void> {
    await this.#scraps.sweep({ remove: (path) => this.#pool.remove(path), onFailure });
  }

  /** Everything under way is waited for before the pool is let go. */
  async idle(): Promise<void> {
    await Promise.allSettled(this.#underWay);
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

  #diskOf(id: string): string {
    if (!VOLUME_ID.test(id)) throw invalidArgument("volume id", id, "`v` and 20 lower-case letters and digits");
    return join(this.directory, id);
  }
}
