/** Counts what happens, and tells whoever wants to count it otherwise: metrics. */
import type { CleanUpReport, Crossing } from "@holdfast/engine";
import type { PressureTotals } from "@holdfast/protocol";
import type { Refusal } from "./refusals.js";

export type PressureHappening =
  | {
      readonly kind: "crossing";
      readonly scope: "host" | "sandbox";
      readonly what: "memory" | "processes";
      readonly from: string;
      readonly to: string;
      readonly direction: "up" | "down";
    }
  | { readonly kind: Exclude<keyof PressureTotals, "crossings" | "refused">; readonly count: number }
  | ({ readonly kind: "refused" } & Refusal);

export class Tally {
  readonly #observe: (happening: PressureHappening) => void;
  readonly #totals: { -readonly [K in keyof PressureTotals]: number } = {
    crossings: 0,
    zombiesReaped: 0,
    orphansEnded: 0,
    unownedEnded: 0,
    cleanUpFailures: 0,
    frozen: 0,
    thawed: 0,
    refused: 0,
  };

  constructor(observe: ((happening: PressureHappening) => void) | undefined) {
    this.#observe = observe ?? (() => {});
  }

  get totals(): PressureTotals {
    return { ...this.#totals };
  }

  crossed(scope: "host" | "sandbox", what: "memory" | "processes", crossing: Crossing<string>): void {
    const { from, to, direction } = crossing;
    this.#totals.crossings += 1;
    this.#observe({ kind: "crossing", scope, what, from, to, direction });
  }

  refused(refusal: Refusal): void {
    this.#totals.refused += 1;
    this.#observe({ kind: "refused", ...refusal });
  }

  cleanedUp({ zombiesReaped, orphansEnded, failed }: CleanUpReport): void {
    this.add("zombiesReaped", zombiesReaped);
    this.add("orphansEnded", orphansEnded);
    this.add("cleanUpFailures", failed);
  }

  add(kind: Exclude<keyof PressureTotals, "crossings" | "refused">, count = 1): void {
    if (count === 0) return;
    this.#totals[kind] += count;
    this.#observe({ kind, count });
  }
}
