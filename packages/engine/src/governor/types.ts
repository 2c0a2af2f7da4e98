/** What others see of the host's budget. */
import type { MemoryLimitChange } from "@holdfast/protocol";
import type { Amounts, Resource } from "./amounts.js";

export const RESERVATION_KINDS = ["sandbox", "build", "warm"] as const;
export type ReservationKind = (typeof RESERVATION_KINDS)[number];

/** What the process may really use: the smaller of what the host has and what the cgroups around it allow. */
export interface HostCapacity {
  readonly memoryBytes: number;
  readonly memoryAvailableBytes: number;
  readonly cpus: number;
  readonly pids: number;
  readonly pidsAvailable: number;
  readonly diskBytes: number;
  readonly diskUsedBytes: number;
}

export interface HostBudget {
  /** As the kernel tells it. */
  readonly host: HostCapacity;
  /** Kept for the host and for ourselves. */
  readonly reserve: Amounts;
  /** What could be promised if nobody else used anything: more than this can never be had. */
  readonly capacity: Amounts;
  /** What can be promised now, all promises together: the same, less what others hold. */
  readonly room: Amounts;
  /** What our sandboxes hold of it. */
  readonly used: Amounts;
}

export interface Reservation {
  readonly id: string;
  readonly amounts: Amounts;
  /** Unknown for a moment while it is released. */
  readonly kind: ReservationKind | undefined;
  readonly lane: string | undefined;
}

export interface BudgetReport extends HostBudget {
  /** What is promised, to all of them. */
  readonly reserved: Amounts;
  readonly reservations: readonly Reservation[];
  /** How many wait for room in this process. */
  readonly waiting: number;
}

/** Someone waits: for what, and which place in the line is theirs. */
export interface Waiting {
  readonly position: number;
  readonly resource: Resource;
  readonly needed: number;
  readonly free: number;
}

export const WAIT_OUTCOMES = ["admitted", "refused", "canceled"] as const;

/** Someone has waited, and what came of it. */
export interface Waited {
  readonly kind: ReservationKind;
  readonly waitedMs: number;
  readonly outcome: (typeof WAIT_OUTCOMES)[number];
}

/** How to be let in. */
export interface Admission {
  /** What it is for; `sandbox` if absent. */
  readonly kind?: ReservationKind | undefined;
  /** Those of one lane wait behind each other, and the lanes take turns: a key, usually. */
  readonly lane?: string | undefined;
  /** How long to wait for room on the host; 0, the default, fails at once. */
  readonly waitMs?: number | undefined;
  /** Before all others, whoever they are: for what runs already and cannot go on without it. */
  readonly urgent?: boolean | undefined;
  /** Ends the waiting, and nothing that came after it. */
  readonly signal?: AbortSignal | undefined;
  /** Called when the waiting begins, and when the position changes. */
  readonly onWaiting?: ((waiting: Waiting) => void) | undefined;
  /** Called when the waiting is over; never if there was room at once. */
  readonly onWaited?: ((waited: Waited) => void) | undefined;
}

/** What becomes of a sandbox whose memory limit has a ceiling. */
export type MemoryEvent =
  | { readonly kind: "held"; readonly limitBytes: number }
  | { readonly kind: "waiting"; readonly waiting: Waiting }
  /** The waiting is over, whatever came of it. */
  | { readonly kind: "waited"; readonly waited: Waited }
  | ({ readonly kind: "grown" } & MemoryLimitChange)
  | ({ readonly kind: "shrunk" } & MemoryLimitChange)
  /** No more is to be had: whoever takes too much is killed. */
  | { readonly kind: "let_go"; readonly limitBytes: number; readonly heldMs: number; readonly why: string };
