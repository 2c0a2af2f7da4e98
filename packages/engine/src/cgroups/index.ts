export { CgroupWatch, type WatchTarget } from "./cgroup-watch.js";
export { CgroupFigures, readStallFile } from "./figures.js";
export { type DetectCgroupsOptions, detectCgroups } from "./host.js";
export type { SlowWrite } from "./kernel-files.js";
export { GUEST_MEMORY_BYTES, GUEST_PIDS } from "./limits.js";
export { createOomLog, type OomLog, type OomVictim } from "./oom-log.js";
export type {
  CgroupAbility,
  CgroupHost,
  CgroupLimits,
  CgroupPaths,
  CommandCounters,
  CreateCgroupOptions,
  EnclosingLimits,
  HierarchyName,
  KillResult,
  ReclaimPlan,
  SandboxCgroup,
  SandboxCounters,
} from "./types.js";
