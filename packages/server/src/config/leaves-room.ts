/** Reserves that leave nothing for sandboxes are a mistake, and better told at the start than by every create. */
import { type BudgetReport, describeAmount, RESOURCES } from "@holdfast/engine";
import { HoldfastError } from "@holdfast/protocol";

const SETTINGS = { memoryBytes: "reserveMemoryMb", pids: "reservePids", diskBytes: "reserveDiskMb" } as const;

export function requireRoom({ capacity, reserve }: Pick<BudgetReport, "capacity" | "reserve">): void {
  const resource = RESOURCES.find((each) => capacity[each] <= 0);
  if (resource === undefined) return;
  const field = SETTINGS[resource];
  throw new HoldfastError(
    "invalid_argument",
    `${field}: ${describeAmount(resource, reserve[resource])} kept for the host leave nothing for sandboxes`,
    { hint: "Keep less, or leave it out: then a share of the host is kept.", details: { field } },
  );
}
