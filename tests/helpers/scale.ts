/** How much and how long, here and in the virtual machine, whose emulated CPU is about ten times slower. */

export const IN_VM = process.env.HOLDFAST_VM !== undefined;

/** A number of repetitions. */
export function scaled(count: number, least = 1): number {
  return IN_VM ? Math.max(least, Math.ceil(count / 10)) : count;
}

/** A bound that a promise names, with the slack of a machine that others use too. It can still fail. */
export function patienceMs(milliseconds: number): number {
  return milliseconds * (IN_VM ? 10 : 3);
}
