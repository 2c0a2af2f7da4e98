/** Layers as directories of a pool, below `layers/`, each with its files in `upper`. Those that come and go: scraps.ts. */
import { existsSync, mkdirSync, renameSync } from "node:fs";
import { open } from "node:fs/promises";
import { join } from "node:path";
import { HoldfastError, invalidArgument, type SandboxId } from "@holdfast/protocol";
import type { ProcessIdentity } from "../host/processes.js";
import { type LayerDraft, type LayerId, parseLayerId } from "../layers.js";
import type { FinishedLayer, Pool } from "./pool.js";
import { Scraps } from "./scraps.js";

export class LayerStore {
  readonly directory: string;
  readonly #pool: Pool;
  readonly #scraps: Scraps;
  /** Sandboxes of whatever process that stand on it, or are about to. */
  readonly usersOf: (id: LayerId) => SandboxId[];
  /** Layers never change, nor do their sizes. */
  readonly #sizes = new Map<LayerId, number>();
  readonly #underWay = new Set<Promise<unknown>>();

  constructor(options: {
    readonly pool: Pool;
    readonly us: ProcessIdentity;
    readonly usersOf: (id: LayerId) => SandboxId[];
  }) {
    this.#pool = options.pool;
    this.usersOf = options.usersOf;
    this.directory = join(options.pool.directory, "layers");
    this.#scraps = new Scraps(this.directory, options.us);
  }

  has(id: LayerId): boolean {
    return existsSync(this.diskOf(id));
  }

  list(): LayerId[] {
    return this.#scraps.names().flatMap((name) => {
      try {
        return [parseLayerId(name)];
      } catch {
        // One that comes or goes.
        return [];
      }
    });
  }

  diskOf(id: LayerId): string {
    return join(this.directory, parseLayerId(id));
  }

  path(id: LayerId): string {
    return join(this.diskOf(id), "upper");
  }

  async sizeBytes(id: LayerId): Promise<number> {
    const known = this.#sizes.get(id);
    if (known !== undefined && this.has(id)) return known;
    this.#require(id);
    const bytes = await this.#pool.layerBytes(this.diskOf(id));
    this.#sizes.set(id, bytes);
    return bytes;
  }

  /** An empty layer to be filled. */
  draft(id: LayerId): Promise<LayerDraft> {
    return this.track(async () => {
      const path = this.reserve(id);
      try {
        await this.#pool.makeLayer(path);
      } catch (error) {
        // As far as it was made; if it cannot be removed either, the next sweep does it.
        await this.#pool.remove(path).catch(() => undefined);
        throw error;
      }
      return {
        id,
        directory: join(path, "upper"),
        commit: () => this.track(() => this.commit(id, path)).then(() => undefined),
        discard: () => this.track(() => this.#pool.remove(path)),
      };
    });
  }

  /** See `Layers.toStandOn`. */
  async toStandOn(snapshot: LayerId, id: LayerId): Promise<LayerId> {
    this.#require(snapshot);
    if (this.#pool.cloning === "copy") return snapshot;
    return this.track(async () => {
      const path = this.reserve(id);
      try {
        await this.#pool.cloneDisk(this.diskOf(snapshot), path);
        await this.commit(id, path);
      } catch (error) {
        await this.#pool.remove(path).catch(() => undefined);
        throw error;
      }
      return id;
    });
  }

  /** Where a new layer may be made, under a name that is swept if we do not live to finish it. */
  reserve(id: LayerId): string {
    this.requireFree(id);
    mkdirSync(this.directory, { recursive: true, mode: 0o700 });
    return this.#scraps.path("new", id);
  }

  requireFree(id: LayerId): void {
    if (this.has(id)) throw invalidArgument("layer id", id, "an id that no layer has");
  }

  /** Makes what lies at `path` the layer, and resolves to its size. `isClone`: the pool has just cloned it from a disk. */
  async commit(id: LayerId, path: string, options: { readonly isClone?: boolean } = {}): Promise<number> {
    const finished = await this.finish(id, path, options);
    await this.place(id, path);
    const bytes = await finished.sizeBytes(this.diskOf(id));
    this.#sizes.set(id, bytes);
    return bytes;
  }

  /** Makes what lies at `path` a layer in all but its name. */
  finish(id: LayerId, path: string, options: { readonly isClone?: boolean } = {}): Promise<FinishedLayer> {
    mkdirSync(this.directory, { recursive: true, mode: 0o700 });
    const fresh = this.#scraps.path("new", id);
    return this.#pool.finishLayer(path, { isClone: options.isClone ?? false, fresh });
  }

  /** For what is finished already. */
  async place(id: LayerId, path: string): Promise<void> {
    mkdirSync(this.directory, { recursive: true, mode: 0o700 });
    try {
      renameSync(path, this.diskOf(id));
    } catch (error) {
      this.requireFree(id);
      throw HoldfastError.from(error);
    }
    await this.#syncNames();
  }

  /**
   * Resolves when all are there. Whoever asks must have said before that it stands on them: from then on none of them goes,
   * and one that is being taken away comes back.
   */
  async requireAll(ids: readonly LayerId[]): Promise<void> {
    await this.#scraps.decided(ids);
    for (const id of ids) this.#require(id);
  }

  async remove(id: LayerId): Promise<void> {
    if (!this.has(id)) return;
    this.#requireUnused(id);
    await this.track(() => this.#takeAway(id));
  }

  async #takeAway(id: LayerId): Promise<void> {
    const rest = this.#scraps.takeAway(id, () => this.#requireUnused(id));
    if (rest === undefined) return;
    this.#sizes.delete(id);
    await this.#pool.remove(rest);
  }

  #requireUnused(id: LayerId): void {
    const users = this.usersOf(id);
    if (users.length === 0) return;
    throw new HoldfastError("image_in_use", `layer ${id} is in use by ${users.length} sandbox(es), ${users[0]} first`, {
      hint: "Kill or discard them first.",
      details: { layer: id, sandboxes: users },
    });
  }

  #require(id: LayerId): void {
    if (this.has(id)) return;
    throw new HoldfastError("image_not_found", `there is no layer ${id} in the ${this.#pool.kind} pool`, {
      hint: "The image has been removed, or was made in a pool of another kind (--pool).",
      details: { layer: id },
    });
  }

  async sweep(onFailure: (path: string, error: unknown) => void): Promise<void> {
    await this.#scraps.sweep({ remove: (path) => this.#pool.remove(path), onFailure });
  }

  /** Everything under way is waited for before the pool is let go. */
  track<T>(work: () => Promise<T>): Promise<T> {
    const promise = work();
    this.#underWay.add(promise);
    const done = () => void this.#underWay.delete(promise);
    promise.then(done, done);
    return promise;
  }

  async idle(): Promise<void> {
    await Promise.allSettled(this.#underWay);
  }

  /** A name is lasting when its directory is. */
  async #syncNames(): Promise<void> {
    const directory = await open(this.directory);
    try {
      await directory.sync();
    } finally {
      await directory.close();
    }
  }
}
