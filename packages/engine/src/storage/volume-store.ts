/** Volumes as directories of a pool, below `volumes/`, each of the shape of a disk: its files are in `upper`. */
import { chmodSync, existsSync, mkdirSync, readdirSync, renameSync } from "node:fs";
import { join } from "node:path";
import { HoldfastError, invalidArgument, type SandboxId } from "@holdfast/protocol";
import type { Launcher } from "../host/launcher.js";
import type { Volumes } from "../volumes.js";
import type { Pool } from "./pool.js";

const VOLUME_ID = /^v[a-z0-9]{20}$/;
/** Whoever is in the sandbox may write: whose files they are is for those who share the volume to agree on. */
const ROOT_MODE = 0o777;

export class VolumeStore implements Volumes {
  readonly directory: string;
  readonly #pool: Pool;
  readonly #launcher: Launcher;
  readonly #usersOf: (path: string) => SandboxId[];

  constructor(options: {
    readonly pool: Pool;
    readonly launcher: Launcher;
    /** Sandboxes that have this directory among their mounts. */
    readonly usersOf: (path: string) => SandboxId[];
  }) {
    this.#pool = options.pool;
    this.#launcher = options.launcher;
    this.#usersOf = options.usersOf;
    this.directory = join(options.pool.directory, "volumes");
  }

  async create(id: string, options: { readonly limitBytes: number }): Promise<void> {
    const disk = this.#diskOf(id);
    mkdirSync(this.directory, { recursive: true, mode: 0o700 });
    await this.#pool.makeLayer(disk);
    try {
      chmodSync(this.path(id), ROOT_MODE);
      if (this.#pool.enforcesLimits) await this.#launcher.limitDisk(disk, options.limitBytes);
    } catch (error) {
      await this.#pool.remove(disk);
      throw error;
    }
  }

  has(id: string): boolean {
    return existsSync(this.#diskOf(id));
  }

  list(): string[] {
    if (!existsSync(this.directory)) return [];
    return readdirSync(this.directory).filter((name) => VOLUME_ID.test(name));
  }

  path(id: string): string {
    return join(this.#diskOf(id), "upper");
  }

  async usedBytes(id: string): Promise<number | null> {
    return this.has(id) ? this.#pool.layerBytes(this.#diskOf(id)).catch(() => null) : null;
  }

  users(id: string): SandboxId[] {
    return this.#usersOf(this.path(id));
  }

  async remove(id: string): Promise<void> {
    const users = this.users(id);
    if (users.length > 0) {
      throw new HoldfastError("volume_in_use", `volume ${id} is in use by ${users.join(", ")}`, {
        hint: "End those sandboxes first, the paused ones among them too.",
        details: { sandboxes: users },
      });
    }
    const going = join(this.directory, `.gone-${id}`);
    // Under another name first: no sandbox that is made from now on finds it.
    if (existsSync(this.#diskOf(id))) renameSync(this.#diskOf(id), going);
    if (existsSync(going)) await this.#pool.remove(going);
  }

  #diskOf(id: string): string {
    if (!VOLUME_ID.test(id)) throw invalidArgument("volume id", id, "`v` and 20 lower-case letters and digits");
    return join(this.directory, id);
  }
}
