/**
 * Each sandbox has 65,536 host uids of its own, so that no two share anything the kernel keeps by uid (RLIMIT_NPROC,
 * keyrings, inotify watches, signals). A range is claimed by creating a file, whose name is the range and whose text says
 * for whom; the directory is one for the whole host, whatever state directory is in use.
 */
import { existsSync, linkSync, mkdirSync, readdirSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { HoldfastError } from "@holdfast/protocol";
import { isAlive, ourIdentity } from "./processes.js";

const CLAIMS_DIRECTORY = "/run/holdfast/uid-ranges";
/** Above everything that distributions, systemd (which stops at 0x6fffffff) and /etc/subuid give away. */
const FIRST_UID = 0x70000000;
const RANGE_SIZE = 65_536;
const RANGE_COUNT = 4096;

export interface UidRange {
  readonly slot: number;
  readonly base: number;
}

const rangeOf = (slot: number): UidRange => ({ slot, base: FIRST_UID + slot * RANGE_SIZE });
const claimPath = (slot: number): string => join(CLAIMS_DIRECTORY, String(slot));

/**
 * False if somebody has it. The name appears with its text, so that whoever is killed here leaves nothing that says for
 * nobody; a draft of a dead process says so by its name. Whoever ends the host's last sandbox removes the directory meanwhile.
 */
function claim(slot: number, owner: string): boolean {
  const { pid, startTicks } = ourIdentity();
  const draft = join(CLAIMS_DIRECTORY, `.${pid}.${startTicks}`);
  for (let attempt = 0; ; attempt++) {
    try {
      writeFileSync(draft, owner, { mode: 0o600 });
      linkSync(draft, claimPath(slot));
      return true;
    } catch (error) {
      const { code } = error as NodeJS.ErrnoException;
      if (code === "EEXIST") return false;
      if (code !== "ENOENT" || attempt > 10) throw HoldfastError.from(error);
      mkdirSync(CLAIMS_DIRECTORY, { recursive: true, mode: 0o755 });
    } finally {
      rmSync(draft, { force: true });
    }
  }
}

/** `owner` is the sandbox's directory: when that is gone, so is the right to the range. */
export function claimUidRange(owner: string): UidRange {
  const start = Math.floor(Math.random() * RANGE_COUNT);
  for (let i = 0; i < RANGE_COUNT; i++) {
    const slot = (start + i) % RANGE_COUNT;
    if (claim(slot, owner)) return rangeOf(slot);
  }
  throw new HoldfastError("host_capacity", `all ${RANGE_COUNT} uid ranges are in use`, {
    hint: "End some sandboxes first, or run `holdfast sweep`.",
  });
}

export function releaseUidRange(slot: number): void {
  rmSync(claimPath(slot), { force: true });
}

export interface UidClaim extends UidRange {
  readonly owner: string;
}

function namesOfClaims(): string[] {
  try {
    return readdirSync(CLAIMS_DIRECTORY);
  } catch {
    // Nobody has claimed anything since boot.
    return [];
  }
}

export function listUidClaims(): UidClaim[] {
  const claims: UidClaim[] = [];
  for (const name of namesOfClaims()) {
    if (!/^\d+$/.test(name)) continue;
    try {
      claims.push({ ...rangeOf(Number(name)), owner: readFileSync(claimPath(Number(name)), "utf8") });
    } catch {
      // Released while we looked.
    }
  }
  return claims;
}

/** Takes back what belongs to nobody: ranges of sandboxes that are gone, drafts of processes that are. */
export function removeStaleUidClaims(): void {
  for (const { slot, owner } of listUidClaims()) if (!existsSync(owner)) releaseUidRange(slot);
  for (const name of namesOfClaims()) {
    const [, pid, startTicks] = /^\.(\d+)\.(\d+)$/.exec(name) ?? [];
    if (startTicks === undefined || isAlive({ pid: Number(pid), startTicks })) continue;
    rmSync(join(CLAIMS_DIRECTORY, name), { force: true });
  }
}
