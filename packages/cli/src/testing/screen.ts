/** A terminal for tests: what somebody who sits before it would see. Knows what our own output uses, and no more. */
import type { LiveTerminal } from "../build/live-progress.js";

// biome-ignore lint/suspicious/noControlCharactersInRegex: these are what a terminal is told with.
const PIECE = /\u001b\[([?0-9;]*)([A-Za-z])|[\s\S]/gu;

export class Screen implements LiveTerminal {
  columns: number;
  rows = 24;
  cursorIsHidden = false;
  #lines: string[] = [""];
  #row = 0;
  #column = 0;
  readonly #listeners = new Set<() => void>();

  constructor(columns: number) {
    this.columns = columns;
  }

  write(text: string): boolean {
    for (const [piece, parameter, command] of text.matchAll(PIECE)) {
      if (command !== undefined) this.#command(command, parameter ?? "");
      else if (piece === "\n") this.#moveTo(this.#row + 1, 0);
      else if (piece === "\r") this.#column = 0;
      else this.#put(piece);
    }
    return true;
  }

  on(_event: "resize", listener: () => void): this {
    this.#listeners.add(listener);
    return this;
  }

  off(_event: "resize", listener: () => void): this {
    this.#listeners.delete(listener);
    return this;
  }

  /** As terminals do: lines that have no room any more are wrapped. */
  resize(columns: number): void {
    this.columns = columns;
    const before = this.#lines.slice(0, this.#row);
    const wrap = (line: string): string[] =>
      line.length <= columns
        ? [line]
        : Array.from({ length: Math.ceil(line.length / columns) }, (_, index) =>
            line.slice(index * columns, (index + 1) * columns),
          );
    this.#lines = this.#lines.flatMap(wrap);
    this.#row = before.flatMap(wrap).length;
    for (const listener of this.#listeners) listener();
  }

  /** Without what is blank at the right and below. */
  get text(): string {
    return this.#lines
      .map((line) => line.trimEnd())
      .join("\n")
      .trimEnd();
  }

  #command(command: string, parameter: string): void {
    if (command === "A") this.#moveTo(Math.max(0, this.#row - Number(parameter || 1)), this.#column);
    else if (command === "J") {
      this.#lines = this.#lines.slice(0, this.#row + 1);
      this.#lines[this.#row] = (this.#lines[this.#row] ?? "").slice(0, this.#column);
    } else if (parameter === "?25") this.cursorIsHidden = command === "l";
    else if (command !== "m") throw new Error(`the screen does not know ${parameter}${command}`);
  }

  #moveTo(row: number, column: number): void {
    this.#row = row;
    this.#column = column;
    while (this.#lines.length <= row) this.#lines.push("");
  }

  #put(character: string): void {
    if (this.#column >= this.columns) this.#moveTo(this.#row + 1, 0);
    const line = (this.#lines[this.#row] ?? "").padEnd(this.#column);
    this.#lines[this.#row] = line.slice(0, this.#column) + character + line.slice(this.#column + 1);
    this.#column += 1;
  }
}
