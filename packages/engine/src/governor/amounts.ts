/** What of the host one thing takes, or has: the three that run out. CPU is shared by weight and never runs out. */
import type { SandboxLimits } from "@holdfast/protocol";

export const RESOURCES = ["memoryBytes", "pids", "diskBytes"] as const;
export type Resource = (typeof RESOURCES)[number];
export type Amounts = Readonly<Record<Resource, number>>;

export const NOTHING: Amounts = { memoryBytes: 0, pids: 0, diskBytes: 0 };

/**
 * What the guest and its bubblewrap are counted with, beside the commands. They hold a few MiB and two processes; their
 * cgroup's own limit is higher, for moments, and the host's reserve carries those.
 */
export const GUEST_SHARE: Amounts = { memoryBytes: 8 * 1024 * 1024, pids: 8, diskBytes: 0 };

export function mapAmounts(of: (resource: Resource) => number): Amounts {
  return { memoryBytes: of("memoryBytes"), pids: of("pids"), diskBytes: of("diskBytes") };
}

export const plus = (a: Amounts, b: Amounts): Amounts => mapAmounts((resource) => a[resource] + b[resource]);

export const isSame = (a: Amounts, b: Amounts): boolean => RESOURCES.every((resource) => a[resource] === b[resource]);

/** What a running sandbox with these limits can come to take. */
export function amountsOf(limits: Pick<SandboxLimits, Resource>): Amounts {
  return plus(
    mapAmounts((resource) => limits[resource]),
    GUEST_SHARE,
  );
}

/** The first resource of which there is less than asked for. */
export function shortOf(asked: Amounts, free: Amounts): Resource | undefined {
  // What is not asked for cannot be short, however deep in debt the host is.
  return RESOURCES.find((resource) => asked[resource] > 0 && asked[resource] > free[resource]);
}
