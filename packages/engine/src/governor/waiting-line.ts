/**
 * Who is next. Each lane (a key, usually) has its own line, and the lanes take turns, so that whoever asks for a hundred
 * at once delays nobody else by more than one.
 *
 * Someone who does not fit may be passed by others who do, but not for ever: after a while nobody passes any more, and
 * what frees up is kept for them.
 */

export interface Waiter {
  readonly lane: string;
  readonly since: number;
  /** Before all others, and passed by nobody. */
  readonly urgent?: boolean | undefined;
}

/** How long a waiter may be passed by smaller ones. */
export const PATIENCE_MS = 10_000;

function isUnpassable(waiter: Waiter, now: number): boolean {
  return waiter.urgent === true || now - waiter.since >= PATIENCE_MS;
}

export class WaitingLine<W extends Waiter> {
  /** In the order of their turns: the first lane is next. */
  readonly #lanes = new Map<string, W[]>();
  readonly #urgent: W[] = [];

  get length(): number {
    let length = this.#urgent.length;
    for (const waiters of this.#lanes.values()) length += waiters.length;
    return length;
  }

  add(waiter: W): void {
    if (waiter.urgent === true) {
      this.#urgent.push(waiter);
      return;
    }
    const waiters = this.#lanes.get(waiter.lane);
    if (waiters === undefined) this.#lanes.set(waiter.lane, [waiter]);
    else waiters.push(waiter);
  }

  remove(waiter: W): boolean {
    const urgent = this.#urgent.indexOf(waiter);
    if (urgent !== -1) {
      this.#urgent.splice(urgent, 1);
      return true;
    }
    const waiters = this.#lanes.get(waiter.lane);
    const index = waiters?.indexOf(waiter) ?? -1;
    if (waiters === undefined || index === -1) return false;
    waiters.splice(index, 1);
    if (waiters.length === 0) this.#lanes.delete(waiter.lane);
    return true;
  }

  /** All of them in the order in which their turns come: one of each lane, then the second of each. */
  inOrder(): W[] {
    const lanes = [...this.#lanes.values()];
    const longest = lanes.reduce((most, waiters) => Math.max(most, waiters.length), 0);
    const order = [...this.#urgent];
    for (let round = 0; round < longest; round++) {
      for (const waiters of lanes) {
        const waiter = waiters[round];
        if (waiter !== undefined) order.push(waiter);
      }
    }
    return order;
  }

  /**
   * Lets in whoever can be, in order: `admit` tries one and says whether it fitted. A lane that had its turn goes to the
   * end. Stops at the first whose patience is over and who still does not fit.
   */
  serve(admit: (waiter: W) => boolean, now: number): void {
    let progressed = true;
    while (progressed) {
      progressed = false;
      for (const waiter of this.#heads(now)) {
        if (admit(waiter)) {
          this.#served(waiter);
          progressed = true;
          break;
        }
        if (isUnpassable(waiter, now)) return;
      }
    }
  }

  /** The first whom nobody may pass any more, if there is one. */
  unpassable(now: number): W | undefined {
    const first = this.#heads(now)[0];
    return first !== undefined && isUnpassable(first, now) ? first : undefined;
  }

  /** The first of each lane; those whose patience is over before all others, the longest waiting first. */
  #heads(now: number): W[] {
    const heads = [...this.#lanes.values()].flatMap((waiters) => waiters[0] ?? []);
    const overdue = heads.filter((waiter) => now - waiter.since >= PATIENCE_MS).sort((a, b) => a.since - b.since);
    return [...this.#urgent, ...overdue, ...heads.filter((waiter) => now - waiter.since < PATIENCE_MS)];
  }

  #served(waiter: W): void {
    const { lane } = waiter;
    this.remove(waiter);
    if (waiter.urgent === true) return;
    const rest = this.#lanes.get(lane);
    if (rest === undefined) return;
    this.#lanes.delete(lane);
    this.#lanes.set(lane, rest);
  }
}
