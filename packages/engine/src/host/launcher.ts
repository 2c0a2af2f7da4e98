/** Our native helper on the host, `holdfast-launch`, and where it and the guest are. */
import { existsSync } from "node:fs";
import { fileURLToPath } from "node:url";
import { HoldfastError } from "@holdfast/protocol";
import { type ProgramOptions, runProgram } from "./run-program.js";

/** What a layer is to the file system. */
export type LayerKind = "subvolume" | "directory";

export class Launcher {
  readonly path: string;
  readonly guestPath: string;
  /** Need not be there. */
  readonly tarPath: string;

  constructor(directory = fileURLToPath(new URL("../../../../guest/build/", import.meta.url))) {
    this.path = `${directory}holdfast-launch`;
    this.guestPath = `${directory}holdfast-guest`;
    this.tarPath = `${directory}holdfast-tar`;
    for (const program of [this.path, this.guestPath]) {
      if (existsSync(program)) continue;
      throw new HoldfastError("host_unsupported", `${program} is not built`, {
        hint: "Run `npm run setup` (or `make -C guest`) once.",
      });
    }
  }

  async removeDisk(path: string): Promise<void> {
    await runProgram(this.path, ["disk-remove", path]);
  }

  async diskUsage(path: string): Promise<number> {
    return Number((await runProgram(this.path, ["disk-usage", path])).trim());
  }

  async limitDisk(path: string, limitBytes: number): Promise<void> {
    await runProgram(this.path, ["disk-limit", path, String(limitBytes)]);
  }

  async settleDisk(path: string): Promise<void> {
    await runProgram(this.path, ["disk-settle", path]);
  }

  /** What the disk held at this moment, synced, with its blocks shared. Resolves to how long the sync took. */
  async cloneDisk(from: string, to: string): Promise<{ readonly syncMs: number }> {
    return { syncMs: Number((await this.#fill(["disk-clone", from, to])).trim()) / 1000 };
  }

  async copyDisk(from: string, to: string, options: ProgramOptions = {}): Promise<void> {
    await this.#fill(["disk-copy", from, to], options);
  }

  /** `seed`: what its inode numbers begin after. */
  async makeLayer(path: string, kind: LayerKind, seed?: string): Promise<void> {
    await this.#fill(["layer-make", path, kind, ...(seed === undefined ? [] : [seed])]);
  }

  /**
   * Resolves to the number of its subvolume, if it is one. `synced`: what it holds is on the disk already. `numbering`: its
   * inode numbers become those of no other layer; a copy may be made at `fresh` on the way.
   */
  async finishLayer(
    path: string,
    kind: LayerKind,
    options: {
      readonly state: "synced" | "written";
      readonly numbering?: { readonly seed: string; readonly fresh: string } | undefined;
    },
  ): Promise<number> {
    const { state, numbering } = options;
    const more = numbering === undefined ? [] : [numbering.seed, numbering.fresh];
    return Number((await this.#fill(["layer-finish", path, kind, state, ...more])).trim());
  }

  /** Makes a pool's seed if it has none. */
  async makeSeed(pool: string): Promise<void> {
    await this.#fill(["seed-make", pool]);
  }

  async subvolumeId(path: string): Promise<number> {
    return Number((await runProgram(this.path, ["layer-id", path])).trim());
  }

  /** Resolves when the kernel has found no more to take back, or the time is over. */
  async reclaim(file: string, value: string, limitMs: number, options: ProgramOptions = {}): Promise<void> {
    const args = ["reclaim", file, value, String(limitMs), String(process.pid)];
    await runProgram(this.path, args, "engine_fault", options);
  }

  /** For what takes room in the pool, which may be used up. */
  async #fill(args: readonly string[], options: ProgramOptions = {}): Promise<string> {
    try {
      return await runProgram(this.path, args, "engine_fault", options);
    } catch (error) {
      if (!(error instanceof HoldfastError) || !error.message.includes("No space left on device")) throw error;
      throw new HoldfastError("no_space", "there is no room left in the pool of disks", {
        cause: error,
        hint: "Remove images or sandboxes that nobody needs (`holdfast image prune`), or free space on the host.",
      });
    }
  }

  async enableQuotas(directory: string): Promise<void> {
    await runProgram(this.path, ["quota-enable", directory]);
  }
}
