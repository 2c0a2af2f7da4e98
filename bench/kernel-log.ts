/** The kernel's log as a clock: when, to the microsecond, it killed somebody for memory. */
import { closeSync, constants, openSync, readSync, writeSync } from "node:fs";

interface Entry {
  readonly usec: number;
  readonly text: string;
}

const CALIBRATIONS = 3;

export class KernelLog {
  readonly #fd = openSync("/dev/kmsg", constants.O_RDWR | constants.O_NONBLOCK);
  readonly #buffer = Buffer.allocUnsafe(16 * 1024);
  /** Its clock runs apart from CLOCK_MONOTONIC, by milliseconds in an hour: a note of our own tells by how much. */
  readonly #offsetUsec: number;

  constructor() {
    this.skipToEnd();
    let best = { spread: Number.POSITIVE_INFINITY, offset: 0 };
    for (let i = 0; i < CALIBRATIONS; i++) {
      const mark = `holdfast-bench: clock ${process.pid}.${i}`;
      const before = nowUsec();
      writeSync(this.#fd, `<7>${mark}\n`);
      const after = nowUsec();
      const seen = this.#read().find((entry) => entry.text.includes(mark));
      if (seen === undefined || after - before >= best.spread) continue;
      best = { spread: after - before, offset: (before + after) / 2 - seen.usec };
    }
    if (best.spread === Number.POSITIVE_INFINITY) throw new Error("what is written to /dev/kmsg does not appear there");
    this.#offsetUsec = best.offset;
  }

  skipToEnd(): void {
    this.#read();
  }

  /** How long ago the last process of this name was killed for memory. The one line of a kill that is never left out. */
  millisSinceKillOf(name: string): number {
    const now = nowUsec();
    const kill = this.#read().findLast(
      (entry) => /\bKilled process \d+ \(/.test(entry.text) && entry.text.includes(`(${name})`),
    );
    if (kill === undefined) throw new Error(`the kernel did not log that it killed ${name}`);
    return (now - kill.usec - this.#offsetUsec) / 1000;
  }

  close(): void {
    closeSync(this.#fd);
  }

  #read(): Entry[] {
    const entries: Entry[] = [];
    for (;;) {
      let record: string;
      try {
        record = this.#buffer.toString("latin1", 0, readSync(this.#fd, this.#buffer, 0, this.#buffer.length, null));
      } catch (error) {
        // EPIPE: the oldest were overwritten; the next read goes on with what there is.
        if ((error as NodeJS.ErrnoException).code === "EPIPE") continue;
        return entries;
      }
      const match = /^\d+,\d+,(\d+),[^;]*;(.*)/.exec(record);
      if (match?.[1] !== undefined) entries.push({ usec: Number(match[1]), text: match[2] ?? "" });
    }
  }
}

const nowUsec = (): number => Number(process.hrtime.bigint()) / 1000;
