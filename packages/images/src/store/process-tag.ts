/**
 * A process in the name of a file: `pid.ticks.boot`. Whoever finds the file knows whether its maker still lives, without
 * having to read it; so such a file is whole as soon as it exists.
 */
import { bootId, isAlive, ourIdentity } from "@holdfast/engine";

const TAG = /^(\d+)\.(\d+)\.([0-9a-f]{12})$/;

const bootTag = (): string => bootId().replaceAll("-", "").slice(0, 12);

let ourTag: string | undefined;

export function processTag(): string {
  if (ourTag === undefined) {
    const { pid, startTicks } = ourIdentity();
    ourTag = `${pid}.${startTicks}.${bootTag()}`;
  }
  return ourTag;
}

/** False for what is no tag: nobody answers for that. */
export function isTagOfLiving(tag: string): boolean {
  const match = TAG.exec(tag);
  if (match?.[1] === undefined || match[2] === undefined) return false;
  return match[3] === bootTag() && isAlive({ pid: Number(match[1]), startTicks: match[2] });
}

let made = 0;

/** A name that no other process and no other call uses. */
export function uniqueName(): string {
  made += 1;
  return `${processTag()}.${made}`;
}

/** The tag in a name made by `uniqueName`, or undefined if it was made by nobody we know. */
export function tagOfUniqueName(name: string): string | undefined {
  return /^(\d+\.\d+\.[0-9a-f]{12})\.\d+$/.exec(name)?.[1];
}
