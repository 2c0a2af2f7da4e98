/**
 * Stages that something goes through as it gets worse, and leaves again as it gets better. Up at once; down only when it
 * has stayed below for a while, and lower than where it came in. So whatever flutters around a threshold crosses it once.
 */

export interface StageRule<Name extends string> {
  readonly name: Name;
  /** From this value on it is in the stage. */
  readonly enter: number;
  /** Below this value it may leave; lower than `enter`. */
  readonly leave: number;
}

export interface Crossing<Name extends string> {
  readonly from: Name;
  readonly to: Name;
  readonly direction: "up" | "down";
  /** The stages that were entered, or left, in the order in which that happened; usually one. */
  readonly passed: readonly Name[];
  readonly value: number;
}

interface Fall {
  readonly sinceMs: number;
  /** The highest value since: it is not let down further than this allows. */
  readonly highest: number;
}

export class Stages<Name extends string> {
  readonly #calm: Name;
  readonly #rules: readonly StageRule<Name>[];
  readonly #holdMs: number;
  /** How many of the rules hold. */
  #level = 0;
  #fall: Fall | undefined;

  /** `rules` from the mildest to the worst; `holdMs` is how long it must stay below before a stage is left. */
  constructor(options: { readonly calm: Name; readonly rules: readonly StageRule<Name>[]; readonly holdMs: number }) {
    const { rules } = options;
    rules.forEach(({ name, enter, leave }, index) => {
      const before = rules[index - 1];
      if (leave >= enter) throw new RangeError(`stage ${name} is left at ${leave}, which is not below ${enter}`);
      if (before !== undefined && (enter <= before.enter || leave < before.leave)) {
        throw new RangeError(`stage ${name} does not come after ${before.name}`);
      }
    });
    this.#calm = options.calm;
    this.#rules = rules;
    this.#holdMs = options.holdMs;
  }

  get stage(): Name {
    return this.#nameAt(this.#level);
  }

  /** Whether it is in that stage, or in a worse one. */
  isAtLeast(name: Name): boolean {
    const index = this.#rules.findIndex((rule) => rule.name === name);
    return name === this.#calm || (index !== -1 && this.#level > index);
  }

  /** What the value changes, if anything. `nowMs` is of a clock that never goes back. */
  observe(value: number, nowMs: number): Crossing<Name> | undefined {
    if (!Number.isFinite(value)) return undefined;
    const entered = this.#rules.findLastIndex((rule) => value >= rule.enter) + 1;
    if (entered > this.#level) {
      this.#fall = undefined;
      return this.#move(entered, value);
    }
    const current = this.#rules[this.#level - 1];
    if (current === undefined || value >= current.leave) {
      this.#fall = undefined;
      return undefined;
    }
    const fall = { sinceMs: this.#fall?.sinceMs ?? nowMs, highest: Math.max(this.#fall?.highest ?? value, value) };
    this.#fall = fall;
    if (nowMs - fall.sinceMs < this.#holdMs) return undefined;
    this.#fall = undefined;
    const stays = this.#rules.findLastIndex((rule, index) => index < this.#level - 1 && fall.highest >= rule.leave) + 1;
    return this.#move(stays, value);
  }

  #move(level: number, value: number): Crossing<Name> {
    const before = this.#level;
    this.#level = level;
    const passed = this.#rules.slice(Math.min(before, level), Math.max(before, level)).map(({ name }) => name);
    const up = level > before;
    return {
      from: this.#nameAt(before),
      to: this.#nameAt(level),
      direction: up ? "up" : "down",
      passed: up ? passed : passed.reverse(),
      value,
    };
  }

  #nameAt(level: number): Name {
    return this.#rules[level - 1]?.name ?? this.#calm;
  }
}
