/**
 * From what is known of a build to what happens one after the other. Its steps and its log come by two ways: a step's end is
 * told after the last of its lines, which may be a little late.
 */
import type { BuildLogLine, BuildStepInfo } from "@holdfast/protocol";

export interface TrackedStep {
  /** From 0. */
  readonly index: number;
  /** `[2/5] RUN make -j4`. */
  readonly label: string;
  readonly status: BuildStepInfo;
}

export interface StepListener {
  begin(step: TrackedStep): void;
  line(step: TrackedStep, line: BuildLogLine): void;
  end(step: TrackedStep): void;
}

const ENDED: readonly BuildStepInfo["state"][] = ["cached", "done", "failed"];

export class StepTracker {
  readonly #listener: StepListener;
  #steps: readonly BuildStepInfo[] = [];
  readonly #begun = new Set<string>();
  readonly #ended = new Set<string>();

  constructor(listener: StepListener) {
    this.#listener = listener;
  }

  /** Those that have neither ended nor begun. */
  get waiting(): number {
    return this.#steps.filter(({ step }) => !this.#begun.has(step)).length;
  }

  get steps(): readonly BuildStepInfo[] {
    return this.#steps;
  }

  update(steps: readonly BuildStepInfo[]): void {
    this.#steps = steps;
  }

  log(line: BuildLogLine): void {
    const at = this.#steps.findIndex(({ step }) => step === line.step);
    // Steps that end without a word, before one that says something.
    for (let index = 0; index < at; index += 1) this.#settle(index);
    const step = this.#at(Math.max(0, at));
    if (step === undefined) return;
    this.#begin(step);
    // The log says what a step is when it begins; whoever looks on has just been told.
    if (line.stream === "info" && step.status.title.endsWith(line.text)) return;
    this.#listener.line(step, line);
  }

  /** Nothing has been said for a while, or will be said any more: what is known holds. */
  settle(): void {
    for (let index = 0; index < this.#steps.length; index += 1) this.#settle(index);
  }

  #settle(index: number): void {
    const step = this.#at(index);
    if (step === undefined || step.status.state === "waiting") return;
    this.#begin(step);
    if (!ENDED.includes(step.status.state) || this.#ended.has(step.status.step)) return;
    this.#ended.add(step.status.step);
    this.#listener.end(step);
  }

  #begin(step: TrackedStep): void {
    if (this.#begun.has(step.status.step)) return;
    this.#begun.add(step.status.step);
    this.#listener.begin(step);
  }

  #at(index: number): TrackedStep | undefined {
    const status = this.#steps[index];
    if (status === undefined) return undefined;
    const isNumbered = ({ step }: BuildStepInfo): boolean => /^\d+$/.test(step);
    const place = isNumbered(status) ? `[${status.step}/${this.#steps.filter(isNumbered).length}] ` : "";
    return { index, label: `${place}${status.title}`, status };
  }
}
