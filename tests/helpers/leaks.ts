/**
 * After every test nothing of ours may be left. Everything is compared with what stood there before the test, so that
 * whatever else runs on this machine is not taken for a leak.
 */
import { randomBytes } from "node:crypto";
import { readdirSync, readFileSync, readlinkSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { setTimeout as sleep } from "node:timers/promises";
import { expect } from "vitest";

const SETTLE_MS = 3000;
/** Set by isolated.sh: other runs on this machine have other parents. */
const CGROUP_PARENT = process.env.HOLDFAST_CGROUP_PARENT === undefined ? "" : `/${process.env.HOLDFAST_CGROUP_PARENT}`;

/** Directories below every cgroup hierarchy that belong to sandboxes. */
function sandboxCgroups(): string[] {
  const found: string[] = [];
  const walk = (directory: string, depth: number): void => {
    let names: string[];
    try {
      names = readdirSync(directory, { withFileTypes: true }).flatMap((entry) =>
        entry.isDirectory() ? [entry.name] : [],
      );
    } catch {
      // It went while we looked.
      return;
    }
    for (const name of names) {
      const path = `${directory}/${name}`;
      if (directory.endsWith(`${CGROUP_PARENT}/holdfast`)) found.push(path);
      if (depth < 5) walk(path, depth + 1);
    }
  };
  walk("/sys/fs/cgroup", 0);
  return found;
}

/** Processes that run as one of our uids, or are our programs. Zombies too. */
function ourProcesses(): string[] {
  const found: string[] = [];
  for (const name of readdirSync("/proc")) {
    if (!/^\d+$/.test(name)) continue;
    try {
      const status = readFileSync(`/proc/${name}/status`, "utf8");
      const uid = Number(/^Uid:\s+(\d+)/m.exec(status)?.[1]);
      const program = /^Name:\s+(.*)$/m.exec(status)?.[1] ?? "";
      if (uid >= 0x70000000 || program === "bwrap" || program.startsWith("holdfast-"))
        found.push(`${name} ${program} uid ${uid}`);
    } catch {
      // It ended while we looked.
    }
  }
  return found;
}

/** How the directories of this process begin, and of no other, in whatever PID namespace; see use-engine.ts. */
export const OUR_DIRECTORIES = join(tmpdir(), `hf${randomBytes(4).toString("hex")}-`);

function mounts(): string[] {
  return readFileSync("/proc/self/mountinfo", "utf8")
    .split("\n")
    .filter((line) => line !== "")
    .map((line) => `${line.split(" ")[4]} ${line.split(" - ")[1]}`);
}

function loopDevices(): string[] {
  return readdirSync("/sys/block").flatMap((name) => {
    if (!name.startsWith("loop")) return [];
    try {
      const file = readFileSync(`/sys/block/${name}/loop/backing_file`, "utf8").trim();
      // Test runs keep their pools in directories of their own; others' are none of our business.
      return file.startsWith(OUR_DIRECTORIES) ? [`${name} ${file}`] : [];
    } catch {
      // Not in use.
      return [];
    }
  });
}

function uidClaims(): string[] {
  try {
    return readdirSync("/run/holdfast/uid-ranges");
  } catch {
    return [];
  }
}

function reservations(): string[] {
  try {
    return readdirSync("/run/holdfast/budget", { encoding: "utf8", recursive: true });
  } catch {
    return [];
  }
}

function ourDescriptors(): string[] {
  return readdirSync("/proc/self/fd").flatMap((fd) => {
    try {
      const target = readlinkSync(`/proc/self/fd/${fd}`);
      return /^(\/sys\/fs\/cgroup|.*guest\.sock|.*holdfast)/.test(target) ? [target] : [];
    } catch {
      // The descriptor that read the directory.
      return [];
    }
  });
}

const warnings: string[] = [];
process.on("warning", ({ name, stack }) => {
  const isOurs = stack?.includes("/packages/") === true;
  if (isOurs && name === "MaxListenersExceededWarning") warnings.push(`${warnings.length}: ${stack}`);
});

const inventories = {
  /** Node's own: of listeners that somebody forgot to take away. */
  warnings: () => [...warnings],
  sandboxCgroups,
  ourProcesses,
  mounts,
  loopDevices,
  uidClaims,
  reservations,
  ourDescriptors,
};
export type Inventory = Record<keyof typeof inventories, string[]>;

export function takeInventory(): Inventory {
  return Object.fromEntries(Object.entries(inventories).map(([name, list]) => [name, list()])) as Inventory;
}

function leaksSince(before: Inventory): Record<string, string[]> {
  const now = takeInventory();
  const leaks: Record<string, string[]> = {};
  for (const name of Object.keys(inventories) as (keyof Inventory)[]) {
    const known = new Set(before[name]);
    const fresh = now[name].filter((item) => !known.has(item));
    if (fresh.length > 0) leaks[name] = fresh;
  }
  return leaks;
}

/** The kernel finishes some things a moment later (mount namespaces, loop devices); nothing may stay longer than that. */
export async function assertNoLeaks(before: Inventory): Promise<void> {
  const deadline = Date.now() + SETTLE_MS;
  while (Object.keys(leaksSince(before)).length > 0 && Date.now() < deadline) await sleep(20);
  expect(leaksSince(before)).toEqual({});
}
