/** `holdfast events`. */
import { once } from "node:events";
import { HoldfastError } from "@holdfast/protocol";
import { parseCount } from "../parse-flags.js";
import { coloursFor } from "../text/colours.js";
import { eventLine } from "./event-line.js";
import type { ServerFlags } from "./find-server.js";
import { untilInterrupted } from "./interrupt.js";
import { ServerClient } from "./server-client.js";

export interface EventsFlags extends ServerFlags {
  readonly follow?: boolean;
  readonly after?: string;
  readonly json?: boolean;
}

export async function events(name: string | undefined, flags: EventsFlags): Promise<void> {
  const after = flags.after === undefined ? 0 : parseCount("--after", flags.after);
  const server = await ServerClient.open(flags);
  const sandbox = name === undefined ? undefined : await server.find(name);
  const interrupt = untilInterrupted();
  const colours = coloursFor(process.stdout);
  const { signal } = interrupt;
  try {
    for await (const event of server.events(sandbox, { after, follow: flags.follow === true, signal })) {
      const line = flags.json === true ? JSON.stringify(event) : eventLine(event, colours);
      if (!process.stdout.write(`${line}\n`)) await once(process.stdout, "drain", { signal });
    }
  } catch (error) {
    // Ctrl-C is how one ends this.
    if (!signal.aborted) throw HoldfastError.from(error);
  } finally {
    interrupt.release();
  }
}
