/** What the engine knows of cgroups: limits, counters, the end of all processes. Which version does it, it need not know. */
import type { SandboxId } from "@holdfast/protocol";
import type { WatchTarget } from "./cgroup-watch.js";
import type { SlowWrite } from "./kernel-files.js";

export const HIERARCHY_NAMES = ["memory", "pids", "cpu", "cpuacct", "freezer", "unified"] as const;
export type HierarchyName = (typeof HIERARCHY_NAMES)[number];

/** The absolute directory of one sandbox in each hierarchy it uses. Stored, so that another process can adopt it. */
export type CgroupPaths = { readonly [K in HierarchyName]?: string };

export const CGROUP_ABILITIES = ["memory", "pids", "cpu", "kill", "freeze", "pressure"] as const;
export type CgroupAbility = (typeof CGROUP_ABILITIES)[number];

export interface CgroupLimits {
  readonly memoryBytes: number;
  readonly pids: number;
  /** Undefined is no quota, and has to be said: a host that cannot limit CPU refuses a number. */
  readonly cpuMillis: number | undefined;
}

export interface CreateCgroupOptions {
  readonly limits: CgroupLimits;
  /** The host uid and gid of the sandbox: they may make one cgroup for each command, and nothing else. */
  readonly uid: number;
  readonly gid: number;
}

/** What the cgroups around all our sandboxes leave them; undefined where none of them limits it. */
export interface EnclosingLimits {
  readonly memoryBytes: number | undefined;
  /** Of that, what is free or page cache. */
  readonly memoryAvailableBytes: number | undefined;
  readonly pids: number | undefined;
  readonly pidsAvailable: number | undefined;
  /** In CPUs; may be a fraction. */
  readonly cpus: number | undefined;
}

export interface CgroupHost {
  readonly layout: "v2" | "hybrid" | "v1";
  /** Who enforces what, in words, for `holdfast doctor`. */
  readonly controllers: Readonly<Record<CgroupAbility, { readonly by: string } | undefined>>;
  /** All or nothing: a failure leaves no directory behind. */
  create(id: SandboxId, options: CreateCgroupOptions): SandboxCgroup;
  /** The sandbox's cgroup below our present parent, whole or in part; undefined when there is none of it. */
  open(id: SandboxId): SandboxCgroup | undefined;
  /** The same by recorded paths, for a sandbox that was started below another parent. */
  openAt(paths: Readonly<Record<string, string>>): SandboxCgroup | undefined;
  /** Every sandbox that has a directory in any hierarchy below our present parent. */
  list(): SandboxId[];
  enclosingLimits(): EnclosingLimits;
  /** What all sandboxes below our present parent hold together, page cache apart. */
  usage(): { readonly memoryBytes: number; readonly pids: number };
  /** Where the kernel tells how long those wait for memory; undefined where it does not. */
  readonly pressureFile: string | undefined;
  /** Names the place that all those share, and no other. */
  readonly baseName: string;
  /** Removes the directories above the sandboxes that this process or its like made, when nothing is in them. */
  removeIfEmptyParents(): void;
}

export interface CommandCounters {
  readonly memoryBytes: number;
  /** Undefined where the kernel keeps no peak (v2 before 5.19). */
  readonly memoryPeakBytes: number | undefined;
  /** The command's own limit; undefined when only the sandbox's bounds it. */
  readonly memoryLimitBytes: number | undefined;
  /** Processes of this command that the kernel killed for memory. */
  readonly oomKills: number;
  /**
   * How often the command's own limit was in the way. v2: it led to an OOM. v1 counts refused allocations, most of which
   * reclaim resolves, so it only tells whose limit an OOM kill is to be put down to, never that there was one.
   */
  readonly ownLimitHits: number;
  readonly pids: number;
  readonly pidsPeak: number | undefined;
  /**
   * Forks refused. On v2 since Linux 6.11 those of the command's own limit only: the kernel counts where the limit is,
   * so the sandbox's are in SandboxCounters (the mount option pids_localevents brings the old way back).
   */
  readonly pidsRefused: number;
  /** Undefined where nothing keeps it by command: v1 without a unified hierarchy. */
  readonly cpuUsec: number | undefined;
}

export interface SandboxCounters {
  /** Of all commands together; what memoryLimitBytes bounds. */
  readonly memoryBytes: number;
  readonly memoryPeakBytes: number | undefined;
  readonly memoryLimitBytes: number | undefined;
  /** Page cache among it; not what is in tmpfs, which only its removal frees. */
  readonly memoryCacheBytes: number;
  /** In commands, those whose cgroup was removed included (on v1: if removed through this object). */
  readonly oomKills: number;
  /** Of the guest itself, outside the commands' limit. */
  readonly guestMemoryBytes: number;
  readonly guestOomKills: number;
  /** Alive now, the guest's own included. */
  readonly pids: number;
  readonly pidsLimit: number | undefined;
  readonly pidsRefused: number;
  readonly cpuUsec: number | undefined;
  /** Time the CPU quota kept runnable threads waiting. */
  readonly throttledUsec: number | undefined;
}

export interface KillResult {
  /** Host pids that outlived the deadline; empty is what one wants. */
  readonly survivors: number[];
}

export interface ReclaimPlan {
  readonly file: string;
  readonly value: string;
  /** Where swap is forbidden to the sandbox: lifted for a frozen one, whose idle memory may go there. */
  readonly swapLimitFiles: readonly string[];
}

export interface SandboxCgroup {
  readonly id: SandboxId;
  readonly paths: CgroupPaths;
  /** How the kernel's log names the sandbox's memory cgroup: the prefix for OomLog.victimsOf. */
  readonly oomLogPath: string;
  /** The launcher writes its pid to each of these before anything else. */
  readonly guestProcsFiles: readonly string[];
  /** The launcher opens these and hands them to the guest as descriptors. On v2 "unified" is all there is. */
  readonly commandDirs: readonly { readonly name: "memory" | "pids" | "unified"; readonly path: string }[];
  /** Live, all or nothing. Memory below what is in use and cannot be reclaimed is refused, never bought by a kill. */
  setLimits(limits: Partial<CgroupLimits>): void;
  /**
   * Takes back what a lower memory limit needs, without this process standing still; setLimits is quick afterwards. That limit
   * may be in force already, whether this resolves or not: if it is not to be, the old one must be set again.
   */
  makeRoom(memoryBytes: number, slowly: SlowWrite): Promise<void>;
  /**
   * Whether its commands are held at their memory limit instead of killed there. Held, they wait for a higher limit, for as
   * long as it takes; nobody else waits for them.
   */
  setHolding(holding: boolean, slowly: SlowWrite): Promise<void>;
  /** Whether it has almost used up its memory limit, and whether something is held there. */
  memoryShortage(): "none" | "near" | "held";
  /** What changes when that changes, with this limit in force. */
  holdTarget(limitBytes: number): WatchTarget;
  /** What its commands hold and cannot do without: all but page cache that was not used lately. */
  readWorkingSetBytes(): number;
  /** Undefined when command `n` has no cgroup. */
  readCommand(n: number): CommandCounters | undefined;
  readSandbox(): SandboxCounters;
  /**
   * Forks that the sandbox's limit refused and the kernel put down to no command: v2 since Linux 6.11. Elsewhere 0, because
   * every command's own counter has them.
   */
  readUnattributedForksRefused(): number;
  /** True when it is gone (or never was), false while processes are in it. */
  removeCommand(n: number): boolean;
  /** Host pids anywhere in the sandbox, in any hierarchy. */
  processes(): number[];
  commandProcesses(n: number): number[];
  /** The host pid of a command that has just been started and has had no time to fork. */
  firstProcessOf(n: number): number | undefined;
  /** Those outside every command: the guest and what started it. */
  guestProcesses(): number[];
  /** Host pids with the command each belongs to, null for the guest's own, which come first; of very many not all. */
  processesByCommand(): Generator<{ readonly hostPid: number; readonly commandId: number | null }>;
  /**
   * How to have the kernel take back what memory it can from the whole sandbox: the value to write to the file, and what to
   * write elsewhere before and after.
   */
  reclaimPlan(): ReclaimPlan;
  /** What the whole sandbox holds, the guest included. */
  readHeldBytes(): number;
  /** Resolves when every process stands still; thaws and throws when that takes longer than the deadline. */
  freeze(options?: { readonly deadlineMs?: number }): Promise<void>;
  thaw(): Promise<void>;
  /** Whether it was asked to be; after freeze() resolved, it is. */
  isFrozen(): boolean;
  /** Ends every process, frozen ones too, and waits until every hierarchy is empty. */
  kill(options?: { readonly deadlineMs?: number }): Promise<KillResult>;
  /** The same for one command: everything it started and that did not end with it. Frozen sandboxes are not waited for. */
  killCommand(n: number, options?: { readonly deadlineMs?: number }): Promise<KillResult>;
  isEmpty(): boolean;
  /** Removes the sandbox's directories in all hierarchies. Throws when processes are left. */
  remove(): void;
}
