/** The server's log, on stderr: JSON for programs, short lines for a person at a terminal. */
import { Writable } from "node:stream";
import { type Logger, pino } from "pino";
import { coloursFor } from "../text/colours.js";
import { formatLogLine } from "./log-lines.js";

/** A reader of the log who stops reading loses lines: it must neither hold up the server nor fill its memory. */
const MAX_WAITING_BYTES = 4 * 1024 * 1024;

export interface ServerLog {
  readonly log: Logger;
  /** Before the process ends. */
  flush(): void;
}

export function createServerLog(level: string): ServerLog {
  return process.stderr.isTTY ? terminalLog(level) : jsonLog(level);
}

function terminalLog(level: string): ServerLog {
  const colours = coloursFor(process.stderr);
  const lines = new Writable({
    decodeStrings: false,
    write(line: string, _encoding, done) {
      process.stderr.write(formatLogLine(String(line), colours));
      done();
    },
  });
  return { log: pino({ level }, lines), flush: () => {} };
}

function jsonLog(level: string): ServerLog {
  const destination = pino.destination({ dest: 2, sync: false, maxLength: MAX_WAITING_BYTES });
  // Nobody reads it any more; the server goes on.
  destination.on("error", () => {});
  return {
    log: pino({ level }, destination),
    flush: () => {
      try {
        destination.flushSync();
      } catch {
        // A reader that is gone, or too slow for what is left.
      }
    },
  };
}
