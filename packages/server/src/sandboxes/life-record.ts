/**
 * What is known about one sandbox, in memory and in the store. A wish is refused if the store refuses it. A fact (it has
 * ended, it is paused) is true whatever the store says: it is known at once, and written as soon as that is possible.
 */
import { setTimeout as sleep } from "node:timers/promises";
import { HoldfastError } from "@holdfast/protocol";
import type { Logger } from "pino";
import type { NewEvent, SandboxRow } from "../store/store.js";
import type { EventLog } from "./event-log.js";

const FIRST_RETRY_MS = 500;
const LONGEST_RETRY_MS = 30_000;

type Change = Partial<Omit<SandboxRow, "id" | "keyId">>;

export class LifeRecord {
  readonly #events: EventLog;
  readonly #log: Logger;
  readonly #closing = new AbortController();
  #row: SandboxRow;
  /** Writes happen in the order in which things happened, also when the first has to wait for the disk. */
  #written: Promise<void> = Promise.resolve();
  /** The store does not take what came before: nobody need wait to hear that again. */
  #isStuck = false;

  constructor(parts: { readonly events: EventLog; readonly log: Logger }, row: SandboxRow) {
    this.#events = parts.events;
    this.#log = parts.log;
    this.#row = row;
  }

  get row(): SandboxRow {
    return this.#row;
  }

  async wish(change: Change, event: NewEvent): Promise<void> {
    await this.#events.apply(this.#row.id, change, event);
    this.#row = { ...this.#row, ...change };
  }

  /** Resolves when it is written, or when a first try has failed and others follow. */
  async fact(change: Change, event: NewEvent): Promise<void> {
    this.#row = { ...this.#row, ...change };
    await this.write(async () => {
      await this.#events.apply(this.#row.id, change, event);
    });
  }

  /** For what belongs to a fact. */
  async write(work: () => Promise<void>): Promise<void> {
    let tried: () => void = () => {};
    const firstTry = new Promise<void>((resolve) => {
      tried = resolve;
    });
    this.#written = this.#written.then(() => this.#persist(work, tried));
    if (!this.#isStuck) await Promise.race([this.#written, firstTry]);
  }

  /** When everything so far is in the store. */
  written(): Promise<void> {
    return this.#written;
  }

  close(): void {
    this.#closing.abort();
  }

  async #persist(work: () => Promise<void>, tried: () => void): Promise<void> {
    for (let waitMs = FIRST_RETRY_MS; ; waitMs = Math.min(waitMs * 2, LONGEST_RETRY_MS)) {
      try {
        await work();
        this.#isStuck = false;
        return;
      } catch (reason) {
        const { code, message } = HoldfastError.from(reason);
        // Somebody removed it from the store: there is nothing left to write to.
        if (code === "sandbox_not_found") return;
        this.#log.error({ sandbox: this.#row.id, error: message }, "what became of a sandbox could not be written yet");
      }
      this.#isStuck = true;
      tried();
      try {
        await sleep(waitMs, undefined, { signal: this.#closing.signal, ref: false });
      } catch {
        return;
      }
    }
  }
}
