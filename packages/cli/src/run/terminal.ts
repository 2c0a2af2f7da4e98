/** The user's terminal while a command with a pty has it: raw, in the command's size, and as before afterwards. */
import type { ReadStream, WriteStream } from "node:tty";

export interface TerminalSize {
  readonly columns: number;
  readonly rows: number;
}

/** Undefined if it is no terminal, or one that does not know its size. */
export function sizeOf(output: Partial<WriteStream>): TerminalSize | undefined {
  const { isTTY, columns, rows } = output;
  return isTTY === true && columns !== undefined && rows !== undefined && columns > 0 && rows > 0
    ? { columns, rows }
    : undefined;
}

export class Terminal {
  readonly #input: ReadStream;
  readonly #output: WriteStream;
  readonly #onExit = (): void => this.restore();
  #onResize: (() => void) | undefined;
  #isRaw = false;

  constructor(input: ReadStream, output: WriteStream) {
    this.#input = input;
    this.#output = output;
  }

  /** Keys go to the command as they are, Ctrl-C included: the pty inside turns it into a signal. */
  setRaw(): void {
    if (this.#input.isTTY !== true || this.#isRaw) return;
    this.#input.setRawMode(true);
    this.#isRaw = true;
    // Whatever ends this process, save SIGKILL, passes through here.
    process.on("exit", this.#onExit);
  }

  followSize(resize: (size: TerminalSize) => Promise<void>): void {
    this.#onResize = () => {
      const size = sizeOf(this.#output);
      // The command may have ended just now; then its size is nobody's concern.
      if (size !== undefined) resize(size).catch(() => {});
    };
    this.#output.on("resize", this.#onResize);
    // It may have changed while the sandbox was being made.
    this.#onResize();
  }

  restore(): void {
    process.off("exit", this.#onExit);
    if (this.#onResize !== undefined) this.#output.off("resize", this.#onResize);
    this.#onResize = undefined;
    if (!this.#isRaw) return;
    this.#isRaw = false;
    this.#input.setRawMode(false);
  }
}
