/**
 * The host's image is made anew whenever the host changes; what it was made of before is removed here, once nobody can be
 * using it. Whoever uses a skeleton says so twice: its record names it, and until there is a record, the skeleton's own time
 * is that of its last use.
 */
import { readdirSync, renameSync, rmSync, statSync, utimesSync } from "node:fs";
import { basename, join } from "node:path";

/** A sandbox is made in less than a second; this leaves room for a machine that stood still. */
const UNUSED_MS = 3600_000;

/** Marks it as used now; false if it is not there. */
export function touchSkeleton(directory: string): boolean {
  try {
    const now = new Date();
    utimesSync(directory, now, now);
    return true;
  } catch {
    return false;
  }
}

export function removeOldSkeletons(
  imagesDirectory: string,
  options: {
    readonly current: () => string;
    /** All sandboxes of the state directory that are known by a record. */
    readonly inUse: readonly { readonly skeleton?: string | undefined; readonly stopped?: object | undefined }[];
  },
): void {
  const running = options.inUse.filter(({ stopped }) => stopped === undefined);
  // One that does not say may stand on any.
  if (running.some(({ skeleton }) => skeleton === undefined)) return;
  const names = readdirSync(imagesDirectory).filter((name) => /^(host|\.gone)-/.test(name));
  if (names.length < 2) return;
  const used = new Set([options.current(), ...running.map(({ skeleton }) => skeleton)]);
  for (const name of names) {
    const directory = join(imagesDirectory, name);
    if (!used.has(directory)) removeUnused(directory);
  }
}

function removeUnused(directory: string): void {
  const going = join(directory, "..", `.gone-${basename(directory)}-${process.pid}-${process.hrtime.bigint()}`);
  try {
    if (!isUnused(directory)) return;
    renameSync(directory, going);
    // Somebody may have begun to use it between the look and the renaming.
    if (isUnused(going)) rmSync(going, { recursive: true, force: true });
    else renameSync(going, directory);
  } catch {
    // Another process removes it too, or has made it anew.
  }
}

const isUnused = (directory: string): boolean => Date.now() - statSync(directory).mtimeMs > UNUSED_MS;
