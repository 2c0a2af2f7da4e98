/**
 * Layers as directories of a pool, below `layers/`:
 *
 *   <id>                 a layer, whole; its files are in `upper`
 *   .new-<id>.<maker>    one that is being made
 *   .gone-<id>.<remover> one that is being removed, unless it turns out that a sandbox stands on it
 *   .rest-<id>.<remover> one that is being removed for good, part of it may be gone already
 *
 * Makers and removers are named by process; what a dead one left is swept. Everything appears and goes by being renamed.
 * Between a sandbox that is being made and a removal nobody waits for a lock: whoever makes one first says on which layers,
 * then looks whether they are there; whoever removes one first takes it away, then looks whether anybody has said so.
 */
import { existsSync, mkdirSync, readdirSync, renameSync } from "node:fs";
import { open } from "node:fs/promises";
import { join } from "node:path";
import { setTimeout as sleep } from "node:timers/promises";
import { HoldfastError, invalidArgument, type SandboxId } from "@holdfast/protocol";
import { bootTag, isAlive, type ProcessIdentity } from "../host/processes.js";
import { type LayerDraft, type LayerId, parseLayerId } from "../layers.js";
import type { FinishedLayer, Pool } from "./pool.js";

/** A removal that is called off has the layer back within a moment. */
const MISSING_FOR_MS = 200;
const LOOK_MS = 20;

const SCRAP = /^\.(new|gone|rest)-(l[a-z0-9]{20})\.(\d+)\.(\d+)\.([0-9a-f]+)\.\d+$/;

export class LayerStore {
  readonly directory: string;
  readonly #pool: Pool;
  readonly #us: ProcessIdentity;
  /** Sandboxes of whatever process that stand on it, or are about to. */
  readonly usersOf: (id: LayerId) => SandboxId[];
  /** Layers never change, nor do their sizes. */
  readonly #sizes = new Map<LayerId, number>();
  readonly #underWay = new Set<Promise<unknown>>();
  #serial = 0;

  constructor(options: {
    readonly pool: Pool;
    readonly us: ProcessIdentity;
    readonly usersOf: (id: LayerId) => SandboxId[];
  }) {
    this.#pool = options.pool;
    this.#us = options.us;
    this.usersOf = options.usersOf;
    this.directory = join(options.pool.directory, "layers");
  }

  has(id: LayerId): boolean {
    return existsSync(this.diskOf(id));
  }

  list(): LayerId[] {
    return this.#names().flatMap((name) => {
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
    return this.#scrapPath("new", id);
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
    const fresh = this.#scrapPath("new", id);
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
    const deadline = Date.now() + MISSING_FOR_MS;
    while (!ids.every((id) => this.has(id)) && Date.now() < deadline) await sleep(LOOK_MS);
    for (const id of ids) this.#require(id);
  }

  async remove(id: LayerId): Promise<void> {
    if (!this.has(id)) return;
    this.#requireUnused(id);
    await this.track(() => this.#takeAway(id));
  }

  async #takeAway(id: LayerId): Promise<void> {
    const going = this.#scrapPath("gone", id);
    if (!renameIfThere(this.diskOf(id), going)) return;
    try {
      this.#requireUnused(id);
    } catch (error) {
      renameSync(going, this.diskOf(id));
      throw error;
    }
    this.#sizes.delete(id);
    await this.#removeForGood(id, going);
  }

  async #removeForGood(id: LayerId, path: string): Promise<void> {
    const rest = this.#scrapPath("rest", id);
    if (renameIfThere(path, rest)) await this.#pool.remove(rest);
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

  /** Removes what dead processes left; a removal that was cut off is called off if a sandbox stands on the layer after all. */
  async sweep(onFailure: (name: string, error: unknown) => void): Promise<void> {
    for (const name of this.#names()) {
      const [, kind, id, pid, startTicks, boot] = SCRAP.exec(name) ?? [];
      if (id === undefined || startTicks === undefined) continue;
      if (boot === bootTag() && isAlive({ pid: Number(pid), startTicks })) continue;
      try {
        await this.#sweepOne(kind, id as LayerId, join(this.directory, name));
      } catch (error) {
        onFailure(name, error);
      }
    }
  }

  async #sweepOne(kind: string | undefined, id: LayerId, path: string): Promise<void> {
    if (kind === "gone" && this.usersOf(id).length > 0) renameIfThere(path, this.diskOf(id));
    else await this.#removeForGood(id, path);
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

  #names(): string[] {
    try {
      return readdirSync(this.directory);
    } catch {
      // There never was a layer.
      return [];
    }
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

  #scrapPath(kind: "new" | "gone" | "rest", id: LayerId): string {
    const { pid, startTicks } = this.#us;
    return join(
      this.directory,
      `.${kind}-${parseLayerId(id)}.${pid}.${startTicks}.${bootTag()}.${process.hrtime.bigint()}${this.#serial++}`,
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
