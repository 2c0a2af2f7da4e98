/** Finds the host's cgroup hierarchies and makes sandboxes' cgroups in them. */
import { chownSync, existsSync } from "node:fs";
import { HoldfastError, invalidArgument, parseSandboxId, type SandboxId } from "@holdfast/protocol";
import { readEnclosingLimits, readUsage } from "./enclosing.js";
import { BASE_NAME, type Hierarchy, parseParent } from "./hierarchies.js";
import { errnoOf, hasFile, listChildren, removeOne, removeTree } from "./kernel-files.js";
import { applyLimits, commandTreeWrites, cpuWrites, guestWrites, memoryWrites, pidsWrites } from "./limits.js";
import { enableControllers, makeDirectory, prepareHierarchy } from "./prepare.js";
import { type CgroupSetup, holdsCommands, KernelSandboxCgroup, requireNoCpuLimit } from "./sandbox-cgroup.js";
import { findSetup } from "./setup.js";
import type { CgroupHost, CgroupPaths, CreateCgroupOptions, EnclosingLimits, SandboxCgroup } from "./types.js";

export interface DetectCgroupsOptions {
  /** A path relative to each hierarchy's root; HOLDFAST_CGROUP_PARENT when not given. */
  readonly parent?: string | undefined;
  /** The text of /proc/self/mountinfo, for tests: they hide hierarchies from us. */
  readonly mountinfo?: string | undefined;
  /** The text of /proc/self/cgroup, for tests. */
  readonly procCgroup?: string | undefined;
}

/** Throws host_unsupported, with the remedy, when memory or processes cannot be limited here. */
export function detectCgroups(options: DetectCgroupsOptions = {}): CgroupHost {
  const parent = options.parent ?? (process.env.HOLDFAST_CGROUP_PARENT || undefined);
  const configured = parent === undefined ? undefined : parseParent(parent);
  const { setup, made } = findSetup({ configured, mountinfo: options.mountinfo, procCgroup: options.procCgroup });
  return new KernelCgroupHost(setup, made);
}

class KernelCgroupHost implements CgroupHost {
  readonly layout: CgroupHost["layout"];
  readonly controllers: CgroupHost["controllers"];
  readonly #setup: CgroupSetup;
  /** Directories that were not there before us, parents first. */
  readonly #made: Set<string>;

  constructor(setup: CgroupSetup, made: readonly string[]) {
    this.#setup = setup;
    this.#made = new Set(made);
    this.layout = layoutOf(setup);
    this.controllers = describeControllers(setup);
  }

  create(id: SandboxId, options: CreateCgroupOptions): SandboxCgroup {
    parseSandboxId(id);
    if (this.#setup.cpu === undefined) requireNoCpuLimit(options.limits.cpuMillis);
    const made: string[] = [];
    try {
      for (const hierarchy of this.#setup.hierarchies) this.#makeTree(hierarchy, id, made);
      this.#setLimits(id, options);
      this.#delegate(id, options);
    } catch (reason) {
      for (const directory of made.reverse()) removeTree(directory);
      throw createFailure(id, reason);
    }
    return new KernelSandboxCgroup(this.#setup, id, this.#pathsOf(id));
  }

  #makeTree(hierarchy: Hierarchy, id: SandboxId, made: string[]): void {
    const directory = `${hierarchy.base}/${id}`;
    if (!this.#makeSandboxDirectory(hierarchy, directory)) {
      throw new HoldfastError("sandbox_exists", `the cgroup ${directory} exists already`);
    }
    made.push(directory);
    const below = hierarchy.controllers.filter((name) => name !== "cpu");
    if (hierarchy.version === 2) enableControllers(directory, below);
    makeDirectory(`${directory}/guest`);
    if (!holdsCommands(this.#setup, hierarchy)) return;
    makeDirectory(`${directory}/cmd`);
    if (hierarchy.version === 2) enableControllers(`${directory}/cmd`, below);
  }

  #makeSandboxDirectory(hierarchy: Hierarchy, directory: string): boolean {
    try {
      return makeDirectory(directory);
    } catch (reason) {
      if (errnoOf(reason) !== "ENOENT") throw reason;
      // Another server on this host found our directory empty and removed it.
      for (const path of prepareHierarchy(hierarchy).made) this.#made.add(path);
      return makeDirectory(directory);
    }
  }

  #setLimits(id: SandboxId, { limits }: CreateCgroupOptions): void {
    const { memory, pids, cpu, unified } = this.#setup;
    const memoryDir = `${memory.base}/${id}`;
    const pidsDir = `${pids.base}/${id}`;
    applyLimits([
      ...memoryWrites(memory, `${memoryDir}/cmd`, limits.memoryBytes),
      ...pidsWrites(pidsDir, limits.pids),
      ...guestWrites(memory, memoryDir, pidsDir),
      ...(cpu === undefined ? [] : cpuWrites(cpu, `${cpu.base}/${id}`, limits.cpuMillis)),
      ...(unified === undefined ? [] : commandTreeWrites(`${unified.base}/${id}`)),
    ]);
  }

  /** Only the right to make cgroups for commands goes to the sandbox's user; every limit file above stays root's. */
  #delegate(id: SandboxId, { uid, gid }: CreateCgroupOptions): void {
    for (const hierarchy of this.#setup.hierarchies) {
      if (!holdsCommands(this.#setup, hierarchy)) continue;
      const directory = `${hierarchy.base}/${id}`;
      chownSync(`${directory}/cmd`, uid, gid);
      if (hierarchy.version === 1) continue;
      // To move from one cgroup to another, v2 asks for write permission on cgroup.procs of their common ancestor.
      chownSync(`${directory}/cgroup.procs`, uid, gid);
      chownSync(`${directory}/cmd/cgroup.procs`, uid, gid);
    }
  }

  #pathsOf(id: SandboxId): CgroupPaths {
    return Object.fromEntries(this.#setup.hierarchies.map(({ name, base }) => [name, `${base}/${id}`]));
  }

  open(id: SandboxId): SandboxCgroup | undefined {
    parseSandboxId(id);
    return this.#openIfThere(id, this.#pathsOf(id));
  }

  openAt(paths: Readonly<Record<string, string>>): SandboxCgroup | undefined {
    let id: SandboxId | undefined;
    const checked: Record<string, string> = {};
    for (const [name, path] of Object.entries(paths)) {
      const hierarchy = this.#setup.hierarchies.find((candidate) => candidate.name === name);
      if (hierarchy === undefined) continue;
      const last = sandboxIdOf(hierarchy, path);
      if (id !== undefined && id !== last) throw invalidArgument(`cgroup.paths.${name}`, path, `a cgroup of ${id}`);
      id = last;
      checked[name] = path;
    }
    return id === undefined ? undefined : this.#openIfThere(id, { ...this.#pathsOf(id), ...checked });
  }

  #openIfThere(id: SandboxId, paths: CgroupPaths): SandboxCgroup | undefined {
    const isThere = Object.values(paths).some((path) => existsSync(path));
    return isThere ? new KernelSandboxCgroup(this.#setup, id, paths) : undefined;
  }

  list(): SandboxId[] {
    const names = this.#setup.hierarchies.flatMap(({ base }) => listChildren(base));
    return [...new Set(names)].filter(isSandboxId).sort();
  }

  enclosingLimits(): EnclosingLimits {
    return readEnclosingLimits(this.#setup);
  }

  usage(): { memoryBytes: number; pids: number } {
    return readUsage(this.#setup);
  }

  get pressureFile(): string | undefined {
    const { unified } = this.#setup;
    return unified === undefined ? undefined : `${unified.base}/memory.pressure`;
  }

  get baseName(): string {
    return this.#setup.memory.base;
  }

  removeIfEmptyParents(): void {
    for (const { base } of this.#setup.hierarchies) removeOne(base);
    for (const directory of [...this.#made].reverse()) removeOne(directory);
  }
}

function isSandboxId(text: string): text is SandboxId {
  return /^[a-z0-9]{1,32}$/.test(text);
}

/** Recorded paths lead to removals and kills: they must be what we would have written. */
function sandboxIdOf(hierarchy: Hierarchy, path: string): SandboxId {
  const segments = path.split("/");
  const isOurs = path.startsWith(`${hierarchy.mountPoint}/`) && segments.at(-2) === BASE_NAME;
  if (!isOurs || segments.includes("..") || segments.includes(".")) {
    throw invalidArgument(`cgroup.paths.${hierarchy.name}`, path, `${hierarchy.mountPoint}/…/${BASE_NAME}/<id>`);
  }
  return parseSandboxId(segments.at(-1), `cgroup.paths.${hierarchy.name}`);
}

function createFailure(id: SandboxId, reason: unknown): HoldfastError {
  const code = errnoOf(reason);
  // The kernel's and the administrator's bounds on the number of cgroups.
  if (code === "ENOSPC" || code === "EAGAIN" || code === "ENOMEM") {
    return new HoldfastError("host_capacity", `no room for the cgroup of sandbox ${id}: ${code}`, { cause: reason });
  }
  if (code === "EROFS" || code === "EACCES" || code === "EPERM") {
    return new HoldfastError("host_unsupported", `cannot make the cgroup of sandbox ${id}: ${code}`, {
      cause: reason,
      hint: "The cgroup file systems must be mounted writable (in a container: --privileged, or a delegated cgroup).",
    });
  }
  return HoldfastError.from(reason);
}

function layoutOf({ memory, pids, cpu, unified }: CgroupSetup): CgroupHost["layout"] {
  if (unified === undefined) return "v1";
  return [memory, pids, cpu].every((hierarchy) => hierarchy === undefined || hierarchy === unified) ? "v2" : "hybrid";
}

function describeControllers(setup: CgroupSetup): CgroupHost["controllers"] {
  const by = (hierarchy: Hierarchy | undefined, what: string) =>
    hierarchy === undefined ? undefined : { by: `cgroup v${hierarchy.version} ${what} at ${hierarchy.base}` };
  const { unified, freezer } = setup;
  const freeze = setup.hasFreezeFile ? by(unified, "cgroup.freeze") : by(freezer, "freezer");
  const oneByOne = {
    by: freeze === undefined ? "SIGKILL to each process" : `SIGKILL to each process, held by ${freeze.by}`,
  };
  const hasPressure = unified !== undefined && hasFile(unified.base, "memory.pressure");
  return {
    memory: by(setup.memory, "memory"),
    pids: by(setup.pids, "pids"),
    cpu: by(setup.cpu, "cpu"),
    kill: setup.hasKillFile ? by(unified, "cgroup.kill") : oneByOne,
    freeze,
    pressure: hasPressure ? by(unified, "pressure") : undefined,
  };
}
