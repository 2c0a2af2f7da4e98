/** What of this host is promised, and to whom: by all processes that make sandboxes here. */
import { HoldfastError } from "@holdfast/protocol";
import { detectCgroups } from "../cgroups/index.js";
import { RESOURCES } from "../governor/amounts.js";
import { readHostBudget } from "../governor/host-budget.js";
import { budgetDirectory } from "../governor/promise-files.js";
import { ReservationFiles } from "../governor/reservation-files.js";
import { RESOURCE_WORDS } from "../governor/resource-words.js";
import { ourIdentity } from "../host/processes.js";
import { readCapacity } from "../storage/capacity.js";
import type { DoctorRow } from "./row.js";

/** So many are named; the rest is a number. */
const MOST_NAMED = 3;

export function inspectPromises(directory: string): DoctorRow[] {
  try {
    const cgroups = detectCgroups();
    const budget = readHostBudget({ cgroups, pool: { capacity: () => readCapacity(directory) } }, {}, 0);
    const files = new ReservationFiles(budgetDirectory(cgroups.baseName), ourIdentity());
    const reserved = files.sum();
    const rows = RESOURCES.map((resource): DoctorRow => {
      const { word, show } = RESOURCE_WORDS[resource];
      const by = `${show(budget.capacity[resource])} to give, ${show(budget.reserve[resource])} kept for the host, ${show(reserved[resource])} promised, ${show(budget.used[resource])} in use`;
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
