/**
 * A host of a given size: a cgroup with limits, below which the sandboxes of a test are. What the rest of the machine does
 * meanwhile changes nothing about what there is to give.
 */
import { randomBytes } from "node:crypto";
import { existsSync, mkdirSync, readdirSync, readFileSync, rmdirSync, writeFileSync } from "node:fs";
import { join } from "node:path";

const ROOT = "/sys/fs/cgroup";

export interface SmallHost {
  /** For HOLDFAST_CGROUP_PARENT. */
  readonly parent: string;
  /** Processes that the kernel killed for memory in it, but in no sandbox: those have limits of their own. */
  oomKills(): number;
  /** Processes and threads in it now. */
  pids(): number;
  /** Lets a process live in it, with all that it starts: beside the sandboxes, as a server in a container does. */
  take(pid: number): void;
  /** Everything in it must be gone. */
  remove(): void;
}

const isV2 = (): boolean => existsSync(join(ROOT, "cgroup.controllers"));

function readCount(path: string, name: string): number {
  return Number(new RegExp(`^${name} (\\d+)$`, "m").exec(readFileSync(path, "utf8"))?.[1] ?? 0);
}

/** The kernel counts in the cgroup of the victim, not in the one that ran out: those below count too. */
function countKills(directory: string): number {
  const below = readdirSync(directory, { withFileTypes: true }).filter(
    (entry) => entry.isDirectory() && entry.name !== "holdfast",
  );
  return below.reduce(
    (total, { name }) => total + countKills(join(directory, name)),
    readCount(join(directory, isV2() ? "memory.events.local" : "memory.oom_control"), "oom_kill"),
  );
}

/** From the root down, as far as it is ours: isolated.sh has a cgroup of its own for each run. */
function makeV2(parent: string, limits: { readonly memoryBytes: number; readonly pids?: number }): string[] {
  const made: string[] = [];
  let at = ROOT;
  for (const segment of parent.split("/")) {
    writeFileSync(join(at, "cgroup.subtree_control"), "+memory +pids +cpu");
    at = join(at, segment);
    if (existsSync(at)) continue;
    mkdirSync(at);
    made.push(at);
  }
  writeFileSync(join(at, "memory.max"), String(limits.memoryBytes));
  if (limits.pids !== undefined) writeFileSync(join(at, "pids.max"), String(limits.pids));
  return made;
}

function makeV1(parent: string, limits: { readonly memoryBytes: number; readonly pids?: number }): string[] {
  const memory = join(ROOT, "memory", parent);
  mkdirSync(memory, { recursive: true });
  writeFileSync(join(memory, "memory.limit_in_bytes"), String(limits.memoryBytes));
  const pids = join(ROOT, "pids", parent);
  mkdirSync(pids, { recursive: true });
  if (limits.pids !== undefined) writeFileSync(join(pids, "pids.max"), String(limits.pids));
  return [memory, pids];
}

export function makeSmallHost(limits: { readonly memoryBytes: number; readonly pids?: number }): SmallHost {
  const above = process.env.HOLDFAST_CGROUP_PARENT;
  const name = `small-${randomBytes(4).toString("hex")}`;
  const parent = above === undefined || above === "" ? name : `${above}/${name}`;
  const made = isV2() ? makeV2(parent, limits) : makeV1(parent, limits);
  return {
    parent,
    oomKills: () => (isV2() ? countKills(join(ROOT, parent)) : countKills(join(ROOT, "memory", parent))),
    pids: () => Number(readFileSync(join(ROOT, isV2() ? "" : "pids", parent, "pids.current"), "utf8")),
    take: (pid) => {
      for (const directory of isV2() ? [join(ROOT, parent)] : made.slice(0, 2)) {
        const beside = join(directory, "beside");
        if (!existsSync(beside)) {
          mkdirSync(beside);
          made.push(beside);
        }
        writeFileSync(join(beside, "cgroup.procs"), String(pid));
      }
    },
    remove: () => {
      for (const directory of made.reverse()) if (existsSync(directory)) rmdirSync(directory);
    },
  };
}
