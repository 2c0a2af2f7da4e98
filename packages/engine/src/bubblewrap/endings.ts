/**
 * How commands ended, kept beside the sandbox's record: whoever adopts the sandbox later tells the same story, counters
 * included, which nobody could read again. One file that only grows, and a second when it has grown enough: a command
 * costs one short write, and the last thousands of endings are there.
 */
import { appendFileSync, readFileSync, renameSync, statSync } from "node:fs";
import type { CommandEnding } from "@holdfast/protocol";

const ROTATE_BYTES = 1024 * 1024;

export class Endings {
  readonly #path: string;
  #bytes: number | undefined;
  /** Whether the file may end in the middle of a line: then a new one begins with a line's end. */
  #torn = true;

  constructor(path: string) {
    this.#path = path;
  }

  write(id: number, ending: CommandEnding): void {
    const line = `${this.#torn ? "\n" : ""}${JSON.stringify({ id, ending })}\n`;
    try {
      this.#bytes ??= sizeOf(this.#path);
      if (this.#bytes > ROTATE_BYTES) {
        renameSync(this.#path, `${this.#path}.old`);
        this.#bytes = 0;
      }
      this.#torn = true;
      appendFileSync(this.#path, line, { mode: 0o600 });
      this.#torn = false;
      this.#bytes += line.length;
    } catch {
      // The sandbox is being removed and nobody will ask again, or the disk is full and part of a line was written.
    }
  }

  read(id: number): CommandEnding | undefined {
    return this.#entries().find((entry) => entry.id === id)?.ending;
  }

  highestId(): number {
    return this.#entries().reduce((highest, entry) => Math.max(highest, entry.id), 0);
  }

  #entries(): { readonly id: number; readonly ending: CommandEnding }[] {
    return [this.#path, `${this.#path}.old`].flatMap((path) => {
      let text: string;
      try {
        text = readFileSync(path, "utf8");
      } catch {
        // Nothing has ended yet.
        return [];
      }
      return text.split("\n").flatMap(parseLine);
    });
  }
}

function sizeOf(path: string): number {
  try {
    return statSync(path).size;
  } catch {
    return 0;
  }
}

/** A line that was cut off, by our sudden death or a full disk, says nothing; the others still do. */
function parseLine(line: string): { readonly id: number; readonly ending: CommandEnding }[] {
  if (line === "") return [];
  try {
    return [JSON.parse(line) as { id: number; ending: CommandEnding }];
  } catch {
    return [];
  }
}
