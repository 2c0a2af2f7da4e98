/** What is told of each change in a sandbox's life. */
import { describeWaiting, type MemoryEvent, type Resource, type Waiting } from "@holdfast/engine";
import {
  type EventKind,
  formatBytes,
  formatDuration,
  type SandboxCause,
  type SandboxEnding,
  type SandboxLimits,
} from "@holdfast/protocol";
import type { NetworkSettings, NewEvent, SandboxRow } from "../store/store.js";

const WAITING_KINDS: Readonly<Record<Resource, EventKind>> = {
  memoryBytes: "waiting_for_memory",
  pids: "waiting_for_pids",
  diskBytes: "waiting_for_disk",
};

/** What is told of as it is; who waits is told of in another way. */
type MemoryNews = Exclude<MemoryEvent, { kind: "waiting" | "waited" }>;

const MEMORY_KINDS = {
  held: "memory_held",
  grown: "memory_grown",
  shrunk: "memory_shrunk",
  let_go: "memory_let_go",
} as const satisfies Record<MemoryNews["kind"], EventKind>;

function describeMemoryEvent(event: MemoryNews): string {
  switch (event.kind) {
    case "held":
      return `It has used up its ${formatBytes(event.limitBytes)} of memory, and is held until it is given more.`;
    case "grown":
      return `Its memory limit was raised from ${formatBytes(event.fromBytes)} to ${formatBytes(event.toBytes)}; it goes on.`;
    case "shrunk":
      return `Its memory limit was lowered from ${formatBytes(event.fromBytes)} to ${formatBytes(event.toBytes)}: it uses less.`;
    case "let_go":
      return `It needs more than ${formatBytes(event.limitBytes)} of memory, and ${event.why}: the kernel may kill in it now.`;
  }
}

export const lifeEvents = {
  waiting: (waiting: Waiting): NewEvent => ({
    kind: WAITING_KINDS[waiting.resource],
    message: `It ${describeWaiting(waiting)}.`,
    data: { position: waiting.position, needed: waiting.needed, free: waiting.free },
  }),

  created: ({ template, imageId, memory, limits, timeoutMs }: SandboxRow): NewEvent => ({
    kind: "created",
    message: `Created from ${template}, to live for ${formatDuration(timeoutMs)}.`,
    data: { template, imageId, memory, limits, timeoutMs },
  }),

  adopted: (): NewEvent => ({
    kind: "adopted",
    message: "Taken over by a restarted server; nothing in it was interrupted.",
    data: {},
  }),

  frozen: (why: string, data: { readonly releasedBytes: number; readonly heldBytes: number }): NewEvent => ({
    kind: "paused",
    message: `Paused with its processes (${why}).`,
    data: { memoryKept: true, why, ...data },
  }),

  stopped: (why: string): NewEvent => ({
    kind: "paused",
    message: `Paused with its files only (${why}).`,
    data: { memoryKept: false, why },
  }),

  foundAsFiles: (why: string): NewEvent => ({
    kind: "paused",
    message: `Paused with its files only: ${why}.`,
    data: { memoryKept: false, why },
  }),

  resumed: (how: string, data: { readonly boots: number; readonly timeoutMs: number }): NewEvent => ({
    kind: "resumed",
    message: `Resumed ${how}.`,
    data,
  }),

  resized: (before: SandboxLimits, after: SandboxLimits): NewEvent => ({
    kind: "resized",
    message: "Its limits were changed.",
    data: { before, after },
  }),

  /** What becomes of a memory limit that moves by itself. */
  memory: (event: MemoryNews): NewEvent => {
    const { kind, ...data } = event;
    return { kind: MEMORY_KINDS[kind], message: describeMemoryEvent(event), data };
  },

  timeoutChanged: (timeoutMs: number, expiresAt: Date): NewEvent => ({
    kind: "timeout_changed",
    message: `Its time is up ${formatDuration(timeoutMs)} from now.`,
    data: { timeoutMs, expiresAt: expiresAt.toISOString() },
  }),

  /** Not the settings: they may hold a proxy's password and headers that are secrets. */
  networkChanged: ({ allowInternetAccess, allowPublicTraffic, settings }: NetworkSettings): NewEvent => ({
    kind: "network_changed",
    message: "Its network settings were changed.",
    data: { allowInternetAccess, allowPublicTraffic, settings: Object.keys(settings ?? {}) },
  }),

  snapshotted: (what: string, data: Readonly<Record<string, unknown>>): NewEvent => ({
    kind: "snapshotted",
    message: `${what} Its processes went on.`,
    data,
  }),

  ending: (message: string, cause: SandboxCause): NewEvent => ({ kind: "ending", message, data: { cause } }),

  ended: ({ message, cause, usage }: SandboxEnding): NewEvent => ({ kind: "ended", message, data: { cause, usage } }),
} as const;
