/** One sandbox's cgroups in all hierarchies, as one thing. */
import { HoldfastError, type SandboxId } from "@holdfast/protocol";
import type { WatchTarget } from "./cgroup-watch.js";
import {
  type RemovedCounts,
  readCommandCounters,
  readForksRefused,
  readHeldBytes,
  readOomKills,
  readSandboxCounters,
} from "./counters.js";
import { type Hierarchy, kernelPath } from "./hierarchies.js";
import { MemoryHold, nearMark } from "./hold.js";
import {
  errnoOf,
  hasFile,
  listChildren,
  readFirstPids,
  readKernelFile,
  readKeyed,
  readNumber,
  readPidsOfTree,
  removeTree,
  type SlowWrite,
} from "./kernel-files.js";
import {
  applyLimits,
  cpuWrites,
  type LimitWrite,
  makeRoom,
  memoryInUse,
  memoryWrites,
  pidsWrites,
  requireRoom,
} from "./limits.js";
import { createUnifiedFreezer, createV1Freezer, type Freezer, killAll, livingPids, waitUntil } from "./stop.js";
import type {
  CgroupLimits,
  CgroupPaths,
  CommandCounters,
  KillResult,
  ReclaimPlan,
  SandboxCgroup,
  SandboxCounters,
} from "./types.js";

/** The hierarchies of this host by what they are for. On v2 most are one and the same. */
export interface CgroupSetup {
  /** Each once. */
  readonly hierarchies: readonly Hierarchy[];
  readonly memory: Hierarchy;
  readonly pids: Hierarchy;
  readonly cpu: Hierarchy | undefined;
  readonly unified: Hierarchy | undefined;
  /** v1, where the unified hierarchy cannot do it. */
  readonly cpuacct: Hierarchy | undefined;
  readonly freezer: Hierarchy | undefined;
  readonly hasKillFile: boolean;
  readonly hasFreezeFile: boolean;
}

/** Whether commands have cgroups of their own there; elsewhere the guest's leaf holds all processes. */
export function holdsCommands(setup: CgroupSetup, hierarchy: Hierarchy): boolean {
  return hierarchy === setup.memory || hierarchy === setup.pids || hierarchy === setup.unified;
}

const KILL_DEADLINE_MS = 5000;
const FREEZE_DEADLINE_MS = 5000;
/** Everything that runs stands still within a few milliseconds. */
const HELD_LOOK_MS = 100;
const FREEZE_SLACK_BYTES = 4 * 1024 * 1024;
const REMOVE_DEADLINE_MS = 100;

const sleepCell = new Int32Array(new SharedArrayBuffer(4));

export class KernelSandboxCgroup implements SandboxCgroup {
  readonly id: SandboxId;
  readonly paths: CgroupPaths;
  readonly #setup: CgroupSetup;
  readonly #hold: MemoryHold;
  #limitBeforeSlack: number | undefined;
  readonly #directories: readonly string[];
  readonly #freezer: Freezer | undefined;
  readonly #removed: RemovedCounts = { oomKills: 0, pidsRefused: 0 };

  constructor(setup: CgroupSetup, id: SandboxId, paths: CgroupPaths) {
    this.id = id;
    this.paths = paths;
    this.#setup = setup;
    this.#directories = setup.hierarchies.map((hierarchy) => this.#at(hierarchy));
    this.#freezer = this.#createFreezer();
    this.#hold = new MemoryHold(setup.memory, this.#memoryDir);
  }

  #at(hierarchy: Hierarchy): string {
    return this.paths[hierarchy.name] ?? `${hierarchy.base}/${this.id}`;
  }

  #atIf(hierarchy: Hierarchy | undefined): string | undefined {
    return hierarchy === undefined ? undefined : this.#at(hierarchy);
  }

  #createFreezer(): Freezer | undefined {
    const { freezer, unified, hasFreezeFile } = this.#setup;
    if (unified !== undefined && hasFreezeFile) return createUnifiedFreezer(this.#at(unified));
    return freezer === undefined ? undefined : createV1Freezer(this.#at(freezer));
  }

  get oomLogPath(): string {
    return kernelPath(this.#setup.memory, this.#at(this.#setup.memory));
  }

  get guestProcsFiles(): string[] {
    return this.#directories.map((directory) => `${directory}/guest/cgroup.procs`);
  }

  get commandDirs(): { name: "memory" | "pids" | "unified"; path: string }[] {
    return this.#setup.hierarchies.flatMap((hierarchy) => {
      const { name } = hierarchy;
      const path = `${this.#at(hierarchy)}/cmd`;
      return name === "memory" || name === "pids" || name === "unified" ? [{ name, path }] : [];
    });
  }

  setLimits(limits: Partial<CgroupLimits>): void {
    const { memory, pids, cpu } = this.#setup;
    const commands = `${this.#at(memory)}/cmd`;
    const writes: LimitWrite[] = [];
    if (limits.memoryBytes !== undefined) {
      this.#limitBeforeSlack = undefined;
      requireRoom(memory, commands, limits.memoryBytes);
      writes.push(...memoryWrites(memory, commands, limits.memoryBytes));
    }
    if (limits.pids !== undefined) writes.push(...pidsWrites(this.#at(pids), limits.pids));
    if ("cpuMillis" in limits) {
      if (cpu !== undefined) writes.push(...cpuWrites(cpu, this.#at(cpu), limits.cpuMillis));
      else requireNoCpuLimit(limits.cpuMillis);
    }
    try {
      applyLimits(writes);
    } catch (reason) {
      if (errnoOf(reason) === "EBUSY" && limits.memoryBytes !== undefined) {
        const usageBytes = readNumber(`${commands}/memory.usage_in_bytes`);
        throw memoryInUse(limits.memoryBytes, usageBytes, reason);
      }
      if (errnoOf(reason) === "ENOENT") {
        throw new HoldfastError("sandbox_ended", `the cgroup of sandbox ${this.id} is gone`, { cause: reason });
      }
      throw HoldfastError.from(reason);
    }
  }

  get #memoryDir(): string {
    return `${this.#at(this.#setup.memory)}/cmd`;
  }

  makeRoom(bytes: number, slowly: SlowWrite): Promise<void> {
    return makeRoom(this.#setup.memory, this.#memoryDir, { bytes, slowly });
  }

  async setHolding(holding: boolean, slowly: SlowWrite): Promise<void> {
    try {
      await this.#hold.set(holding, slowly);
    } catch (reason) {
      // It has ended: there is nothing left to hold.
      if (errnoOf(reason) !== "ENOENT" && errnoOf(reason) !== "ENODEV") throw HoldfastError.from(reason);
    }
  }

  memoryShortage(): "none" | "near" | "held" {
    return this.#hold.shortage();
  }

  holdTarget(limitBytes: number): WatchTarget {
    return this.#setup.memory.version === 1
      ? { kind: "oom", path: this.#memoryDir, nearBytes: nearMark(limitBytes) }
      : { kind: "file", path: `${this.#memoryDir}/memory.events` };
  }

  readWorkingSetBytes(): number {
    return this.#hold.readWorkingSetBytes();
  }

  #commandDir(hierarchy: Hierarchy, n: number): string {
    // The number names a directory on the host.
    if (!Number.isSafeInteger(n) || n < 0) throw new HoldfastError("engine_fault", `no command has the number ${n}`);
    return `${this.#at(hierarchy)}/cmd/${n}`;
  }

  readCommand(n: number): CommandCounters | undefined {
    const { memory, pids, unified } = this.#setup;
    return readCommandCounters(this.#setup, {
      memory: this.#commandDir(memory, n),
      pids: this.#commandDir(pids, n),
      unified: unified === undefined ? undefined : this.#commandDir(unified, n),
    });
  }

  readSandbox(): SandboxCounters {
    const { memory, pids, unified, cpu, cpuacct } = this.#setup;
    const directories = {
      memory: this.#at(memory),
      pids: this.#at(pids),
      unified: this.#atIf(unified),
      cpu: this.#atIf(cpu),
      cpuacct: this.#atIf(cpuacct),
    };
    return readSandboxCounters(this.#setup, directories, this.#removed);
  }

  readUnattributedForksRefused(): number {
    const { pids } = this.#setup;
    return pids.countsForksLocally ? 0 : readForksRefused(`${this.#at(pids)}/cmd`);
  }

  removeCommand(n: number): boolean {
    const { memory, pids, hierarchies } = this.#setup;
    const oomKills = readOomKills(memory, this.#commandDir(memory, n));
    const pidsRefused = readForksRefused(this.#commandDir(pids, n));
    // Each hierarchy's own removal decides which counts are lost: a second call must not add them again.
    let gone = true;
    for (const hierarchy of hierarchies) {
      if (!holdsCommands(this.#setup, hierarchy)) continue;
      const removed = removeTree(this.#commandDir(hierarchy, n));
      gone = removed && gone;
      if (removed && hierarchy === memory) this.#removed.oomKills += oomKills;
      if (removed && hierarchy === pids) this.#removed.pidsRefused += pidsRefused;
    }
    return gone;
  }

  processes(): number[] {
    return livingPids(this.#directories);
  }

  commandProcesses(n: number): number[] {
    const { hierarchies } = this.#setup;
    const holding = hierarchies.filter((hierarchy) => holdsCommands(this.#setup, hierarchy));
    return livingPids(holding.map((hierarchy) => this.#commandDir(hierarchy, n)));
  }

  firstProcessOf(n: number): number | undefined {
    const text = readKernelFile(`${this.#commandDir(this.#setup.memory, n)}/cgroup.procs`);
    const pid = Number.parseInt(text ?? "", 10);
    return Number.isNaN(pid) || pid === 0 ? undefined : pid;
  }

  guestProcesses(): number[] {
    return livingPids(this.#directories.map((directory) => `${directory}/guest`));
  }

  *processesByCommand(): Generator<{ hostPid: number; commandId: number | null }> {
    const directory = this.#at(this.#setup.unified ?? this.#setup.memory);
    for (const hostPid of readFirstPids(`${directory}/guest`)) yield { hostPid, commandId: null };
    for (const name of listChildren(`${directory}/cmd`)) {
      const commandId = /^[1-9]\d{0,14}$/.test(name) ? Number(name) : null;
      for (const hostPid of readFirstPids(`${directory}/cmd/${name}`)) yield { hostPid, commandId };
    }
  }

  reclaimPlan(): ReclaimPlan {
    const { memory } = this.#setup;
    const directory = this.#at(memory);
    if (memory.version === 1) return { file: `${directory}/memory.force_empty`, value: "0", swapLimitFiles: [] };
    const parts = [`${directory}/guest`, `${directory}/cmd`].filter((part) => hasFile(part, "memory.swap.max"));
    return {
      file: `${directory}/memory.reclaim`,
      value: String(this.readHeldBytes()),
      swapLimitFiles: parts.map((part) => `${part}/memory.swap.max`),
    };
  }

  readHeldBytes(): number {
    return readHeldBytes(this.#setup.memory, this.#at(this.#setup.memory));
  }

  async freeze(options: { readonly deadlineMs?: number } = {}): Promise<void> {
    const freezer = this.#freezer;
    if (freezer === undefined) {
      throw new HoldfastError("host_unsupported", "this host cannot freeze processes", {
        hint: "Mount the cgroup v2 hierarchy (Linux 5.2 and later) or the v1 freezer controller.",
      });
    }
    try {
      freezer.request(true);
      if (await waitUntil(() => freezer.isDone(), HELD_LOOK_MS)) return;
      this.#slacken();
      if (await waitUntil(() => freezer.isDone(), options.deadlineMs ?? FREEZE_DEADLINE_MS)) return;
      freezer.request(false);
      this.#tighten();
    } catch (reason) {
      throw HoldfastError.from(reason, errnoOf(reason) === "ENOENT" ? "sandbox_ended" : "engine_fault");
    }
    throw new HoldfastError("engine_fault", `the processes of sandbox ${this.id} did not stand still in time`, {
      hint: "Some are in an uninterruptible wait, on a disk or a network file system for example. They go on running.",
    });
  }

  /** Whoever is held at a limit of v1 cannot be frozen there: a page more lets it come as far as it can be. */
  #slacken(): void {
    const { memory } = this.#setup;
    if (memory.version !== 1 || this.memoryShortage() !== "held") return;
    const limitBytes = readNumber(`${this.#memoryDir}/memory.limit_in_bytes`);
    if (limitBytes === undefined) return;
    applyLimits(memoryWrites(memory, this.#memoryDir, limitBytes + FREEZE_SLACK_BYTES));
    this.#limitBeforeSlack = limitBytes;
  }

  #tighten(): void {
    const limitBytes = this.#limitBeforeSlack;
    this.#limitBeforeSlack = undefined;
    if (limitBytes === undefined) return;
    try {
      applyLimits(memoryWrites(this.#setup.memory, this.#memoryDir, limitBytes));
    } catch {
      // What it took cannot be taken back; the next change of its limit counts it.
    }
  }

  async thaw(): Promise<void> {
    try {
      this.#tighten();
      this.#freezer?.request(false);
    } catch (reason) {
      throw HoldfastError.from(reason, errnoOf(reason) === "ENOENT" ? "sandbox_ended" : "engine_fault");
    }
  }

  isFrozen(): boolean {
    return this.#freezer?.isRequested() ?? false;
  }

  async kill(options: { readonly deadlineMs?: number } = {}): Promise<KillResult> {
    const { unified, hasKillFile } = this.#setup;
    const target = {
      killFile: hasKillFile && unified !== undefined ? `${this.#at(unified)}/cgroup.kill` : undefined,
      freezer: this.#freezer,
      directories: this.#directories,
      isEmpty: () => this.isEmpty(),
    };
    return { survivors: await killAll(target, options.deadlineMs ?? KILL_DEADLINE_MS) };
  }

  async killCommand(n: number, options: { readonly deadlineMs?: number } = {}): Promise<KillResult> {
    const { unified, hierarchies, hasKillFile } = this.#setup;
    const holding = hierarchies.filter((hierarchy) => holdsCommands(this.#setup, hierarchy));
    const directories = holding.map((hierarchy) => this.#commandDir(hierarchy, n));
    const target = {
      killFile: hasKillFile && unified !== undefined ? `${this.#commandDir(unified, n)}/cgroup.kill` : undefined,
      freezer: undefined,
      directories,
      isEmpty: () => directories.every((directory) => readPidsOfTree(directory).length === 0),
    };
    return { survivors: await killAll(target, options.deadlineMs ?? KILL_DEADLINE_MS) };
  }

  isEmpty(): boolean {
    const { unified, hierarchies } = this.#setup;
    // One read that settles the usual case, and counts those on their way out that are no longer listed.
    if (unified !== undefined && readKeyed(`${this.#at(unified)}/cgroup.events`)?.get("populated") === 1) return false;
    return hierarchies.every((hierarchy) => hierarchy === unified || readPidsOfTree(this.#at(hierarchy)).length === 0);
  }

  remove(): void {
    const deadline = performance.now() + REMOVE_DEADLINE_MS;
    let left = this.#directories.filter((directory) => !removeTree(directory));
    // The kernel lets go of a cgroup a moment after its last process has ended.
    while (left.length > 0 && performance.now() < deadline) {
      Atomics.wait(sleepCell, 0, 0, 1);
      left = left.filter((directory) => !removeTree(directory));
    }
    if (left.length === 0) return;
    throw new HoldfastError("engine_fault", `the cgroup of sandbox ${this.id} is still in use`, {
      hint: "Kill its processes first.",
      details: { directories: left, pids: this.processes() },
    });
  }
}

export function requireNoCpuLimit(cpuMillis: number | undefined): void {
  if (cpuMillis === undefined) return;
  throw new HoldfastError("host_unsupported", "limits.cpuMillis: this host cannot limit CPU time", {
    hint: "Enable the cpu cgroup controller with CFS bandwidth control, or start the sandbox without a CPU limit.",
  });
}
