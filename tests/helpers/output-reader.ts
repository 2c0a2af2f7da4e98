/** Reads a command's output bit by bit: programs say when they are ready, so that no test sleeps and hopes. */
import type { Command, OutputEvent } from "@holdfast/engine";

export class OutputReader {
  readonly command: Command;
  readonly #events: AsyncIterator<OutputEvent>;
  text = "";
  gapBytes = 0;

  constructor(command: Command) {
    this.command = command;
    this.#events = command.output()[Symbol.asyncIterator]();
  }

  /** False at the end of the output. */
  async step(): Promise<boolean> {
    const { done, value } = await this.#events.next();
    if (done === true) return false;
    if (value.kind === "data") this.text += value.bytes.toString("latin1");
    else this.gapBytes += value.length;
    return true;
  }

  /** Everything so far, once `expected` is in it. */
  async until(expected: string | RegExp): Promise<string> {
    const isThere = () => (typeof expected === "string" ? this.text.includes(expected) : expected.test(this.text));
    while (!isThere()) {
      if (!(await this.step()))
        throw new Error(`the output ended before ${expected}: ${JSON.stringify(this.text.slice(-500))}`);
    }
    return this.text;
  }

  async rest(): Promise<string> {
    while (await this.step());
    return this.text;
  }
}

/** Starts reading and returns when the program has said so. */
export async function ready(command: Command, expected: string | RegExp = "ready"): Promise<OutputReader> {
  const reader = new OutputReader(command);
  await reader.until(expected);
  return reader;
}
