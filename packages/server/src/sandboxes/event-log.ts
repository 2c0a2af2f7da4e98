/** The event log as it grows. Whoever follows it reads the store, and is told here when there is more to read. */
import { EventEmitter } from "node:events";
import type { SandboxId } from "@holdfast/protocol";
import type { Metrics } from "../metrics/metrics.js";
import type { CommandRow, EventRow, NewEvent, SandboxRow, Store } from "../store/store.js";

const PAGE = 200;

export class EventLog {
  readonly #store: Store;
  readonly #metrics: Pick<Metrics, "commandEnded" | "averted">;
  readonly #grown = new EventEmitter();

  constructor(store: Store, metrics: Pick<Metrics, "commandEnded" | "averted">) {
    this.#store = store;
    this.#metrics = metrics;
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
    if (event === undefined) return;
    // Here, where it is known to be the first time that anybody says so.
    this.#metrics.commandEnded(args[2]);
    this.#announce(event);
  }

  /** A command lived that a fixed memory limit would have killed. */
  spared(): void {
    this.#metrics.averted();
  }

  async *follow(
    query: { readonly keyId?: string | undefined; readonly sandboxId?: SandboxId | undefined; readonly after: number },
    signal: AbortSignal,
  ): AsyncGenerator<EventRow> {
    let after = query.after;
    while (!signal.aborted) {
      // Listening begins before the look: what is written in between wakes us at once.
      const news = this.#news(signal);
      try {
        const rows = await this.#store.events.list({ ...query, after, limit: PAGE });
        if (rows.length === 0) await news.came;
        for (const row of rows) {
          after = row.seq;
          yield row;
        }
      } finally {
        news.dismiss();
      }
    }
  }

  /** Listens from now on. `came` settles with the next event, the signal, or when it is dismissed. */
  #news(signal: AbortSignal): { readonly came: Promise<void>; dismiss(): void } {
    let dismiss: () => void = () => {};
    const came = new Promise<void>((resolve) => {
      dismiss = () => {
        this.#grown.off("grown", dismiss);
        signal.removeEventListener("abort", dismiss);
        resolve();
      };
    });
    this.#grown.on("grown", dismiss);
    signal.addEventListener("abort", dismiss, { once: true });
    return { came, dismiss };
  }

  #announce(event: EventRow): EventRow {
    this.#grown.emit("grown");
    return event;
  }
}
