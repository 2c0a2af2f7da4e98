/** Work that is not begun now, because it would harm what runs. */
import { HoldfastError } from "@holdfast/protocol";

export const REFUSAL_SCOPES = ["host", "sandbox"] as const;
type Scope = (typeof REFUSAL_SCOPES)[number];
export const REFUSAL_CODES = ["host_pressure", "pid_pressure"] as const;
/** What was to be begun. Forks are creations; what a request wakes is resumed. */
export const REFUSED_WORK = ["create", "resume", "command", "build"] as const;
export type RefusedWork = (typeof REFUSED_WORK)[number];

export interface Refusal {
  readonly code: (typeof REFUSAL_CODES)[number];
  /** Who is short of something. */
  readonly scope: Scope;
  readonly work: RefusedWork;
}

const WHO: Readonly<Record<Scope, string>> = { host: "the host", sandbox: "the sandbox" };

const rounded = (percent: number): number => Math.round(percent * 10) / 10;

export function hostPressure(
  scope: Scope,
  facts: { readonly stage: string; readonly percent: number; readonly retryAfterSeconds: number },
): HoldfastError {
  const what =
    facts.stage === "refuse" ? "nothing new is begun" : "commands wait their turn, and this one's did not come";
  return new HoldfastError("host_pressure", `${WHO[scope]} is short of memory (stage ${facts.stage}): ${what}`, {
    hint: `What runs goes on. Try again in ${facts.retryAfterSeconds} s${scope === "sandbox" ? ", end something in it, or give it more memory" : ""}.`,
    details: { scope, ...facts, percent: rounded(facts.percent) },
  });
}

export function pidPressure(
  scope: Scope,
  facts: { readonly used: number; readonly limit: number; readonly retryAfterSeconds: number },
): HoldfastError {
  return new HoldfastError(
    "pid_pressure",
    `${WHO[scope]} has ${facts.used} of ${facts.limit} processes in use: nothing new is begun`,
    {
      hint: `What runs goes on. Try again in ${facts.retryAfterSeconds} s${scope === "sandbox" ? ", end something in it, or give it more processes" : ""}.`,
      details: { scope, ...facts },
    },
  );
}
