/** Puts the hierarchies together: who limits memory, processes and CPU, who freezes, who counts. */
import { readFileSync } from "node:fs";
import { HoldfastError } from "@holdfast/protocol";
import {
  availableControllers,
  chooseParent,
  describeHierarchy,
  findMount,
  type Hierarchy,
  type LimitController,
  withForkCounting,
} from "./hierarchies.js";
import { hasFile, removeOne } from "./kernel-files.js";
import { type CgroupMount, type ProcCgroupLine, parseCgroupMounts, parseProcCgroup } from "./parse.js";
import { prepareHierarchy } from "./prepare.js";
import type { CgroupSetup } from "./sandbox-cgroup.js";
import type { HierarchyName } from "./types.js";

export interface FindSetupOptions {
  readonly configured: readonly string[] | undefined;
  readonly mountinfo: string | undefined;
  readonly procCgroup: string | undefined;
}

interface Found {
  readonly setup: CgroupSetup;
  /** Directories that were not there before, parents first. */
  readonly made: readonly string[];
}

const LIMIT_CONTROLLERS: readonly LimitController[] = ["memory", "pids", "cpu"];

export function findSetup(options: FindSetupOptions): Found {
  const made: string[] = [];
  try {
    return { setup: new SetupSearch(options, made).find(), made };
  } catch (reason) {
    for (const directory of made.reverse()) removeOne(directory);
    throw reason;
  }
}

class SetupSearch {
  readonly #mounts: readonly CgroupMount[];
  readonly #own: readonly ProcCgroupLine[];
  readonly #configured: readonly string[] | undefined;
  readonly #made: string[];
  /** By mount point: co-mounted v1 controllers are one hierarchy. */
  readonly #prepared = new Map<string, Hierarchy>();

  constructor(options: FindSetupOptions, made: string[]) {
    this.#mounts = parseCgroupMounts(options.mountinfo ?? readFileSync("/proc/self/mountinfo", "utf8"));
    this.#own = parseProcCgroup(options.procCgroup ?? readFileSync("/proc/self/cgroup", "utf8"));
    this.#configured = options.configured;
    this.#made = made;
  }

  find(): CgroupSetup {
    const unified = this.#findUnified();
    const memory = this.#findLimiter("memory", unified);
    const pids = this.#findLimiter("pids", unified);
    if (memory === undefined) throw missingController("memory");
    if (pids === undefined) throw missingController("pids");
    const cpu = this.#findLimiter("cpu", unified);
    const cpuacct = unified === undefined ? this.#findV1("cpuacct", "cpuacct") : undefined;
    const hasFreezeFile = unified !== undefined && hasFile(unified.base, "cgroup.freeze");
    const freezer = hasFreezeFile ? undefined : this.#findV1("freezer", "freezer");
    const hasKillFile = unified !== undefined && hasFile(unified.base, "cgroup.kill");
    const all = [memory, pids, cpu, cpuacct, freezer, unified].filter((hierarchy) => hierarchy !== undefined);
    return { hierarchies: [...new Set(all)], memory, pids, cpu, unified, cpuacct, freezer, hasKillFile, hasFreezeFile };
  }

  #findUnified(): Hierarchy | undefined {
    const mount = findMount(this.#mounts, this.#own, undefined);
    if (mount === undefined) return undefined;
    const place = chooseParent(mount, this.#own, this.#configured);
    const available = availableControllers(place.firstOurs);
    const controllers = LIMIT_CONTROLLERS.filter(
      (name) => available.includes(name) && findMount(this.#mounts, this.#own, name) === undefined,
    );
    try {
      return this.#prepare(describeHierarchy("unified", mount, place, controllers));
    } catch (reason) {
      // Beside v1 it limits nothing, it only kills and freezes better: the v1 freezer can stand in.
      if (controllers.length === 0) return undefined;
      throw reason;
    }
  }

  #findLimiter(controller: LimitController, unified: Hierarchy | undefined): Hierarchy | undefined {
    if (unified?.controllers.includes(controller) === true) return unified;
    const hierarchy = this.#findV1(controller, controller);
    // A kernel without CFS bandwidth control has the cpu controller, and no quota in it.
    return hierarchy !== undefined && controller === "cpu" && !hasFile(hierarchy.base, "cpu.cfs_quota_us")
      ? undefined
      : hierarchy;
  }

  #findV1(controller: string, name: HierarchyName): Hierarchy | undefined {
    const mount = findMount(this.#mounts, this.#own, controller);
    if (mount === undefined) return undefined;
    const before = this.#prepared.get(mount.mountPoint);
    if (before !== undefined) return before;
    const controllers = LIMIT_CONTROLLERS.filter((limited) => mount.superOptions.includes(limited));
    return this.#prepare(describeHierarchy(name, mount, chooseParent(mount, this.#own, this.#configured), controllers));
  }

  #prepare(hierarchy: Hierarchy): Hierarchy {
    const { hierarchy: prepared, made } = prepareHierarchy(hierarchy);
    this.#made.push(...made);
    const complete = withForkCounting(prepared);
    this.#prepared.set(hierarchy.mountPoint, complete);
    return complete;
  }
}

function missingController(name: LimitController): HoldfastError {
  const kernelOption = name === "memory" ? "cgroup_enable=memory" : "CONFIG_CGROUP_PIDS";
  return new HoldfastError("host_unsupported", `no cgroup hierarchy of this host can limit ${name}`, {
    hint: `Mount cgroup2 on /sys/fs/cgroup with the ${name} controller (kernel: ${kernelOption}).`,
    details: { controller: name },
  });
}
