/** Why a build failed: the step, the cause, the numbers, the last lines and what to do. */
import { type BuildStepInfo, formatBytes, HoldfastError, printable, sizeFlag } from "@holdfast/protocol";
import type { Colours } from "../text/colours.js";
import { plainText } from "../text/plain-text.js";
import { seconds, stepMs } from "./step-time.js";

const MIB = 1024 * 1024;
const MOST_LINES = 20;

/** The details of `build_failed`, as they come from this machine or over the API. */
interface FailureDetails {
  readonly step?: unknown;
  readonly cause?: { readonly kind?: unknown; readonly limitBytes?: unknown; readonly limitMs?: unknown } | null;
  readonly limitBytes?: unknown;
  readonly peakBytes?: unknown;
  readonly suggestedMemoryMb?: unknown;
  readonly tail?: unknown;
}

const numberOf = (value: unknown): number | undefined => (typeof value === "number" ? value : undefined);

export function failureText(
  error: HoldfastError,
  options: { readonly steps: readonly BuildStepInfo[]; readonly colours: Colours },
): string {
  const { red, bold, dim } = options.colours;
  const details = error.details as FailureDetails;
  const step = options.steps.find(({ step: name }) => name === details.step);
  const tail = tailOf(details.tail);
  const lines: string[] = [];
  if (tail.length > 0) {
    lines.push(bold(`The last lines${step === undefined ? "" : ` of ${stepName(step)}`}:`));
    lines.push(...tail.map((text) => `  ${dim("│")} ${text}`), "");
  }
  lines.push(`${red("holdfast:")} ${printable(error.message)} [${error.code}]`);
  const facts = factsOf(details, step);
  if (facts.length > 0) lines.push(`  ${facts.join(", ")}`);
  const advice = adviceOf(details, error.hint);
  if (advice !== undefined) lines.push(...advice.split("\n").map((line) => `  ${printable(line)}`));
  return `${lines.join("\n")}\n`;
}

function stepName({ step }: BuildStepInfo): string {
  return /^\d+$/.test(step) ? `step ${step}` : step;
}

function factsOf(details: FailureDetails, step: BuildStepInfo | undefined): string[] {
  const limit = numberOf(details.limitBytes);
  const peak = numberOf(details.peakBytes);
  const next = numberOf(details.suggestedMemoryMb);
  return [
    ...(step?.startedAt == null ? [] : [`after ${seconds(stepMs(step, Date.now()))}`]),
    ...(typeof details.cause?.kind === "string" ? [`cause ${details.cause.kind}`] : []),
    ...(limit === undefined ? [] : [`limit ${formatBytes(limit)}`]),
    ...(peak === undefined ? [] : [`peak ${formatBytes(peak)}`]),
    ...(next === undefined ? [] : [`next size to try ${sizeFlag(next * MIB)}`]),
  ];
}

/** In the flags of this command line, where the hint speaks of a program's options. */
function adviceOf({ cause, step }: FailureDetails, hint: string | undefined): string | undefined {
  const limitMs = numberOf(cause?.limitMs);
  if (cause?.kind === "timed_out" && limitMs !== undefined && step !== "finalize") {
    return `Give the build more time: --timeout ${Math.ceil(limitMs / 500)}s.`;
  }
  if (cause?.kind === "out_of_disk") {
    const diskMb = /diskMb: (\d+)/.exec(hint ?? "")?.[1];
    if (diskMb !== undefined) return `Give the build more disk: --disk ${sizeFlag(Number(diskMb) * MIB)}.`;
  }
  return hint;
}

function tailOf(tail: unknown): string[] {
  if (!Array.isArray(tail)) return [];
  const lines = tail.map((entry: unknown) => {
    if (typeof entry === "string") return entry;
    const { text, stream } = (entry ?? {}) as { readonly text?: unknown; readonly stream?: unknown };
    return typeof text === "string" && stream !== "info" ? text : undefined;
  });
  return lines
    .filter((line) => line !== undefined)
    .slice(-MOST_LINES)
    .map(plainText);
}

export function isBuildFailure(reason: unknown): reason is HoldfastError {
  return reason instanceof HoldfastError && reason.code === "build_failed";
}
