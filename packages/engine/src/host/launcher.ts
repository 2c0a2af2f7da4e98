/** Our native helper on the host, `holdfast-launch`, and where it and the guest are. */
import { existsSync } from "node:fs";
import { fileURLToPath } from "node:url";
import { HoldfastError } from "@holdfast/protocol";
import { runProgram } from "./run-program.js";

export class Launcher {
  readonly path: string;
  readonly guestPath: string;

  constructor(directory = fileURLToPath(new URL("../../../../guest/build/", import.meta.url))) {
    this.path = `${directory}holdfast-launch`;
    this.guestPath = `${directory}holdfast-guest`;
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

  /** Resolves when the kernel has found no more to take back, or the time is over. */
  async reclaim(file: string, value: string, limitMs: number): Promise<void> {
    await runProgram(this.path, ["reclaim", file, value, String(limitMs)]);
  }

  async enableQuotas(directory: string): Promise<void> {
    await runProgram(this.path, ["quota-enable", directory]);
  }
}
