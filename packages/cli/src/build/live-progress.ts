/**
 * A build on a terminal. Steps that are done stay where they were printed; below them the running ones, with the last lines
 * of their output, are drawn over and over.
 */
import type { BaseProgress } from "@holdfast/images";
import { type BuildLogLine, printable } from "@holdfast/protocol";
import type { Colours } from "../text/colours.js";
import { displayWidth, fit, justify } from "../text/fit.js";
import { plainText } from "../text/plain-text.js";
import { bar } from "../text/progress-line.js";
import type { BuildView } from "./build-view.js";
import { seconds, stepMs } from "./step-time.js";
import type { TrackedStep } from "./step-tracker.js";

const SPINNER = ["⠋", "⠙", "⠹", "⠸", "⠼", "⠴", "⠦", "⠧", "⠇", "⠏"];
const FRAME_MS = 100;
const MOST_LINES = 6;
const HIDE_CURSOR = "\u001b[?25l";
const SHOW_CURSOR = "\u001b[?25h";

export interface LiveTerminal {
  readonly columns?: number | undefined;
  readonly rows?: number | undefined;
  write(text: string): unknown;
  on(event: "resize", listener: () => void): unknown;
  off(event: "resize", listener: () => void): unknown;
}

interface RunningStep {
  step: TrackedStep;
  readonly lines: string[];
}

export class LiveProgress implements BuildView {
  readonly #terminal: LiveTerminal;
  readonly #colours: Colours;
  /** How many steps have not begun. */
  readonly #waiting: () => number;
  readonly #beganAt = Date.now();
  readonly #running = new Map<string, RunningStep>();
  readonly #timer: NodeJS.Timeout;
  readonly #onResize = (): void => this.#draw();
  readonly #onExit = (): void => this.close();
  /** What stands on the terminal below the steps that are done, without colours. */
  #drawn: readonly string[] = [];
  #frame = 0;
  #status: string | undefined;
  #bar: BaseProgress | undefined;
  #isClosed = false;

  constructor(options: {
    readonly terminal: LiveTerminal;
    readonly colours: Colours;
    readonly waiting: () => number;
  }) {
    this.#terminal = options.terminal;
    this.#colours = options.colours;
    this.#waiting = options.waiting;
    this.#terminal.write(HIDE_CURSOR);
    this.#terminal.on("resize", this.#onResize);
    // Whatever ends this process, save SIGKILL, passes through here.
    process.on("exit", this.#onExit);
    this.#timer = setInterval(() => {
      this.#frame += 1;
      this.#draw();
    }, FRAME_MS);
  }

  begin(step: TrackedStep): void {
    this.#status = undefined;
    this.#running.set(step.status.step, { step, lines: [] });
  }

  line(step: TrackedStep, { text }: BuildLogLine): void {
    const running = this.#running.get(step.status.step);
    if (running === undefined) return;
    running.step = step;
    running.lines.push(plainText(text));
    if (running.lines.length > MOST_LINES) running.lines.shift();
  }

  end(step: TrackedStep): void {
    this.#running.delete(step.status.step);
    if (step.index === 0) this.#bar = undefined;
    this.#draw(this.#ended(step));
  }

  status(text: string | undefined): void {
    this.#status = text;
  }

  bar(progress: BaseProgress): void {
    this.#bar = progress;
  }

  close(): void {
    if (this.#isClosed) return;
    this.#isClosed = true;
    clearInterval(this.#timer);
    process.off("exit", this.#onExit);
    this.#terminal.off("resize", this.#onResize);
    this.#terminal.write(this.#erase() + SHOW_CURSOR);
  }

  /** The last column stays free: a line that fills the terminal wraps on some. */
  get #width(): number {
    return Math.max(20, (this.#terminal.columns ?? 80) - 1);
  }

  #ended({ label, status }: TrackedStep): string {
    const { green, red, dim } = this.#colours;
    const isFailed = status.state === "failed";
    const took = status.state === "cached" ? "cached" : seconds(stepMs(status, Date.now()));
    const text = justify(`   ${label}`, took, this.#width).slice(3);
    const mark = isFailed ? red("✗") : green("✓");
    return ` ${mark} ${status.state === "cached" ? dim(text) : text}`;
  }

  /** In one write, so that nothing flickers: what was drawn goes, `above` stays for good, the rest is drawn anew. */
  #draw(above?: string): void {
    if (this.#isClosed) return;
    const erase = this.#erase();
    const lines = this.#lines();
    this.#drawn = lines.map(({ text }) => text);
    const painted = lines.map(({ text, paint }) => `${paint(text)}\n`).join("");
    this.#terminal.write(`${erase}${above === undefined ? "" : `${above}\n`}${painted}`);
  }

  /** After a resize what was drawn may have been wrapped into more lines than it had. */
  #erase(): string {
    const columns = Math.max(1, this.#terminal.columns ?? 80);
    const rows = this.#drawn.reduce((sum, text) => sum + Math.max(1, Math.ceil(displayWidth(text) / columns)), 0);
    this.#drawn = [];
    return rows === 0 ? "" : `\r\u001b[${rows}A\u001b[0J`;
  }

  #lines(): { readonly text: string; readonly paint: (text: string) => string }[] {
    const { dim, yellow } = this.#colours;
    const plain = (text: string): string => text;
    const spinner = SPINNER[this.#frame % SPINNER.length] ?? "";
    const now = Date.now();
    const lines: { text: string; paint: (text: string) => string }[] = [];
    const add = (text: string, paint: (text: string) => string): void => void lines.push({ text, paint });
    if (this.#status !== undefined)
      add(justify(` ${spinner} ${this.#status}`, seconds(now - this.#beganAt), this.#width), plain);
    const room = Math.max(0, Math.min(MOST_LINES, (this.#terminal.rows ?? 24) - 4 - this.#running.size));
    for (const { step, lines: output } of this.#running.values()) {
      add(justify(` ${spinner} ${step.label}`, seconds(stepMs(step.status, now)), this.#width), yellow);
      if (step.index === 0 && this.#bar !== undefined) {
        add(fit(`   ${bar(this.#bar.share)} ${printable(this.#bar.phase)}`, this.#width), plain);
      }
      const shown = room === 0 ? [] : output.slice(-room);
      for (const line of shown) add(fit(`   │ ${line}`, this.#width), dim);
    }
    const waiting = this.#waiting();
    if (waiting > 0 && this.#running.size > 0) {
      const more = waiting === 1 ? "1 more step" : `${waiting} more steps`;
      add(justify(`   ${more}`, seconds(now - this.#beganAt), this.#width), dim);
    }
    return lines;
  }
}
