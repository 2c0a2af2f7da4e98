/** What of this host is promised, and to whom: by all processes that make sandboxes here. */
import { HoldfastError } from "@holdfast/protocol";
import { detectCgroups } from "../cgroups/index.js";
import { type Amounts, RESOURCES } from "../governor/amounts.js";
import { readHostBudget } from "../governor/host-budget.js";
import { budgetDirectory } from "../governor/promise-files.js";
import { ReservationFiles } from "../governor/reservation-files.js";
import { RESOURCE_WORDS } from "../governor/resource-words.js";
import { ourIdentity } from "../host/processes.js";
import type { PoolKind } from "../storage/pool.js";
import { readPoolDisk } from "./pool-disk.js";
import type { DoctorRow } from "./row.js";

/** So many are named; the rest is a number. */
const MOST_NAMED = 3;

export function inspectPromises(options: { readonly stateDirectory: string; readonly pool: PoolKind }): DoctorRow[] {
  try {
    const cgroups = detectCgroups();
    const disk = readPoolDisk(options);
    const { capacity, reserve, used } = readHostBudget({ cgroups, pool: { capacity: () => disk } }, {}, 0);
    // Each sandbox's own would have to be measured; what lies on the pool in all is known.
    const inUse: Amounts = { ...used, diskBytes: disk.usedBytes };
    const files = new ReservationFiles(budgetDirectory(cgroups.baseName), ourIdentity());
    const reserved = files.sum();
    const rows = RESOURCES.map((resource): DoctorRow => {
      const { word, show } = RESOURCE_WORDS[resource];
      const of = resource === "diskBytes" ? `; of ${disk.of}` : "";
      const by = `${show(capacity[resource])} to give, ${show(reserve[resource])} kept for the host, ${show(reserved[resource])} promised, ${show(inUse[resource])} in use${of}`;
      return { name: `budget: ${word}`, state: "ok", by, required: false };
    });
    cgroups.removeIfEmptyParents();
    const holders = files.list().map(({ id, kind, amounts }) => {
      return `${kind ?? "sandbox"} ${id} (${RESOURCE_WORDS.memoryBytes.show(amounts.memoryBytes)})`;
    });
    const more = holders.length > MOST_NAMED ? ` and ${holders.length - MOST_NAMED} more` : "";
    const to = holders.length === 0 ? "nobody" : `${holders.slice(0, MOST_NAMED).join(", ")}${more}`;
    return [...rows, { name: "budget: promised to", state: "ok", by: to, required: false }];
  } catch (error) {
    // What is missing for it is a row of its own.
    return [{ name: "budget", state: "weak", by: HoldfastError.from(error).message, required: false }];
  }
}
