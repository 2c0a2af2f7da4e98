/** A build as lines, one after the other: for logs, pipes and whoever reads along later. */
import type { BaseProgress } from "@holdfast/images";
import { type BuildLogLine, printable } from "@holdfast/protocol";
import { plainText } from "../text/plain-text.js";
import type { BuildView } from "./build-view.js";
import { seconds, stepMs } from "./step-time.js";
import type { TrackedStep } from "./step-tracker.js";

export class PlainProgress implements BuildView {
  readonly #write: (text: string) => void;
  #last: number | undefined;
  #lastBar = "";

  constructor(write: (text: string) => void) {
    this.#write = write;
  }

  begin(step: TrackedStep): void {
    this.#about(step);
    this.#line(step, step.label);
  }

  line(step: TrackedStep, { at, text }: BuildLogLine): void {
    this.#about(step);
    const { startedAt } = step.status;
    const ms = startedAt === null ? 0 : Math.max(0, Date.parse(at) - Date.parse(startedAt));
    this.#line(step, `${(ms / 1000).toFixed(3)} ${plainText(text)}`);
  }

  end(step: TrackedStep): void {
    this.#about(step);
    const { state } = step.status;
    const took = seconds(stepMs(step.status, Date.now()));
    this.#line(step, state === "cached" ? "CACHED" : state === "done" ? `DONE ${took}` : `FAILED ${took}`);
  }

  status(): void {}

  /** Each of its phases once. */
  bar({ phase, share }: BaseProgress): void {
    const text = `base: ${Math.round(share * 100)} % ${printable(phase)}`;
    if (text !== this.#lastBar) this.#write(`#1 ${text}\n`);
    this.#lastBar = text;
  }

  /** What comes below is about something else. */
  close(): void {
    if (this.#last !== undefined) this.#write("\n");
    this.#last = undefined;
  }

  #about({ index }: TrackedStep): void {
    if (this.#last !== undefined && this.#last !== index) this.#write("\n");
    this.#last = index;
  }

  #line({ index }: TrackedStep, text: string): void {
    this.#write(`#${index + 1} ${text}\n`);
  }
}
