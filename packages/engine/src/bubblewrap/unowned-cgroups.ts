/**
 * Cgroups of sandboxes that nobody knows any more: their record is gone (somebody removed the state directory, say), and
 * whatever was in them runs on. Other processes of ours, with other state directories, have their sandboxes in the same place;
 * a sandbox of theirs has a promise of the host's budget and a range of uids to its name for as long as anybody answers for it.
 */
import { existsSync } from "node:fs";
import { basename } from "node:path";
import { HoldfastError, type SandboxId } from "@holdfast/protocol";
import type { UnownedReport } from "../governor/pressure.js";
import { listUidClaims } from "../host/uid-ranges.js";
import { killSandboxProcesses } from "./dismantle.js";
import type { HostParts } from "./host-parts.js";

/** Handing a sandbox from one process to another takes moments; nothing of it is ours to judge meanwhile. */
const DOUBT_MS = 5000;

export class UnownedCgroups {
  readonly #host: HostParts;
  readonly #doubtMs: number;
  /** Since when they have belonged to nobody. */
  readonly #since = new Map<SandboxId, number>();

  constructor(host: HostParts, options: { readonly doubtMs?: number } = {}) {
    this.#host = host;
    this.#doubtMs = options.doubtMs ?? DOUBT_MS;
  }

  /** `isOurs`: this process has it, whatever else is known of it. */
  async end(isOurs: (id: SandboxId) => boolean): Promise<UnownedReport[]> {
    const { cgroups, log } = this.#host;
    const now = performance.now();
    const unowned = this.#find(isOurs);
    for (const id of this.#since.keys()) if (!unowned.has(id)) this.#since.delete(id);
    const ended: UnownedReport[] = [];
    for (const id of unowned) {
      const since = this.#since.get(id) ?? now;
      this.#since.set(id, since);
      const cgroup = now - since < this.#doubtMs ? undefined : cgroups.open(id);
      if (cgroup === undefined) continue;
      const processes = cgroup.processes().length;
      try {
        await killSandboxProcesses(cgroup);
        cgroup.remove();
        this.#since.delete(id);
        ended.push({ id, processes, why: "nobody on this host knew of it any more" });
        log.warn({ sandbox: id, processes }, "processes of a sandbox that nobody knows were ended");
      } catch (error) {
        log.warn({ sandbox: id, error: HoldfastError.from(error).message }, "what is left of a sandbox stays");
      }
    }
    return ended;
  }

  #find(isOurs: (id: SandboxId) => boolean): ReadonlySet<SandboxId> {
    const { cgroups, governor, records } = this.#host;
    const ids = cgroups.list().filter((id) => !isOurs(id) && !records.exists(id));
    if (ids.length === 0) return new Set();
    const known = new Set<string>(governor.report().reservations.map(({ id }) => id));
    for (const { owner } of listUidClaims()) if (existsSync(owner)) known.add(basename(owner));
    // Once more: one whose record was made after the first look is known by now.
    return new Set(ids.filter((id) => !known.has(id) && !isOurs(id) && !records.exists(id)));
  }
}
