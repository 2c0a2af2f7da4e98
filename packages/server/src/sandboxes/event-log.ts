/** The event log as it grows. Whoever follows it reads the store, and is told here when there is more to read. */
import { EventEmitter, once } from "node:events";
import type { SandboxId } from "@holdfast/protocol";
import type { CommandRow, EventRow, NewEvent, SandboxRow, Store } from "../store/store.js";

const PAGE = 200;

export class EventLog {
  readonly #store: Store;
  readonly #grown = new EventEmitter();

  constructor(store: Store) {
    this.#store = store;
    this.#grown.setMaxListeners(0);
  }

  /** Changes the sandbox and says so, in one transaction. */
  async apply(id: SandboxId, change: Partial<Omit<SandboxRow, "id" | "keyId">>, event: NewEvent): Promise<EventRow> {
    return this.#announce(await this.#store.sandboxes.apply(id, change, event));
  }

  async commandStarted(row: CommandRow, event: NewEvent & { readonly keyId: string }): Promise<void> {
    this.#announce(await this.#store.commands.insert(row, event));
  }

  async commandEnded(...args: Parameters<Store["commands"]["end"]>): Promise<void> {
    const event = await this.#store.commands.end(...args);
    if (event !== undefined) this.#announce(event);
  }

  async *follow(
    query: { readonly keyId?: string | undefined; readonly sandboxId?: SandboxId | undefined; readonly after: number },
    signal: AbortSignal,
  ): AsyncGenerator<EventRow> {
    let after = query.after;
    while (!signal.aborted) {
      // Listening begins before the look: what is written in between wakes us at once.
      const waiting = new AbortController();
      const grown = once(this.#grown, "grown", { signal: AbortSignal.any([signal, waiting.signal]) }).catch(() => {});
      const rows = await this.#store.events.list({ ...query, after, limit: PAGE });
      if (rows.length === 0) await grown;
      waiting.abort();
      for (const row of rows) {
        after = row.seq;
        yield row;
      }
    }
  }

  #announce(event: EventRow): EventRow {
    this.#grown.emit("grown");
    return event;
  }
}
