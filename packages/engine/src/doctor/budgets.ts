/** Who enforces which budget: the cgroup controllers, as the engine would use them. */
import { HoldfastError } from "@holdfast/protocol";
import { type CgroupAbility, type CgroupHost, detectCgroups } from "../cgroups/index.js";
import type { DoctorRow } from "./row.js";

interface AbilityText {
  readonly name: string;
  readonly required: boolean;
  readonly remedy: string;
}

const ABILITIES: Readonly<Record<CgroupAbility, AbilityText>> = {
  memory: { name: "memory limit", required: true, remedy: "Boot with cgroup_enable=memory." },
  pids: { name: "process limit", required: true, remedy: "The kernel must be built with CONFIG_CGROUP_PIDS." },
  cpu: { name: "CPU limit", required: true, remedy: "The kernel must be built with CONFIG_CFS_BANDWIDTH." },
  kill: { name: "kill all at once", required: true, remedy: "Linux 5.14 or later with cgroup2 mounted." },
  freeze: { name: "freeze", required: false, remedy: "Mount cgroup2, or the v1 freezer controller." },
  pressure: { name: "pressure", required: false, remedy: "Boot with psi=1, and mount cgroup2." },
};

const LAYOUTS: Readonly<Record<CgroupHost["layout"], string>> = {
  v2: "cgroup v2 alone",
  v1: "cgroup v1 alone",
  hybrid: "cgroup v1 for limits, v2 beside it",
};

export function inspectBudgets(detect: () => CgroupHost = detectCgroups): DoctorRow[] {
  let host: CgroupHost;
  try {
    host = detect();
  } catch (error) {
    const { message, hint } = HoldfastError.from(error);
    const remedy = hint ?? "Mount the cgroup file systems writable, as root.";
    return [{ name: "cgroups", state: "missing", by: message, remedy, required: true }];
  }
  // Looking made the directories that a sandbox would need; nobody needs them now.
  host.removeIfEmptyParents();
  const abilities = Object.entries(ABILITIES).map(([ability, text]) =>
    abilityRow(host, ability as CgroupAbility, text),
  );
  return [{ name: "cgroups", state: "ok", by: LAYOUTS[host.layout], required: true }, ...abilities];
}

function abilityRow(host: CgroupHost, ability: CgroupAbility, { name, required, remedy }: AbilityText): DoctorRow {
  const by = host.controllers[ability]?.by;
  if (by !== undefined) return { name, state: "ok", by, required };
  return { name, state: required ? "missing" : "weak", by: "no controller offers it", remedy, required };
}
