/**
 * Watches for clients that ask for events instead of holding a stream. They are kept for a sandbox as long as it runs,
 * so many and no more, and for each of them so many events and no more.
 */
import { randomBytes } from "node:crypto";
import { HoldfastError } from "@holdfast/protocol";
import type { LiveSandbox } from "../../sandboxes/types.js";
import {
  eventsWereLost,
  type FilesystemEventInit,
  openWatch,
  type WatchItem,
  type WatchOptions,
} from "./watch-events.js";

const MOST_WATCHERS = 32;
const MOST_WAITING_BYTES = 1024 * 1024;
const EVENT_BYTES = 256;
const ENTRY_BYTES = 1024;

function sizeOf(event: FilesystemEventInit): number {
  const { entry } = event;
  if (entry === undefined) return EVENT_BYTES + (event.name?.length ?? 0);
  const metadata = Object.entries(entry.metadata ?? {}).reduce(
    (sum, [key, value]) => sum + key.length + value.length,
    0,
  );
  return EVENT_BYTES + ENTRY_BYTES + (event.name?.length ?? 0) + (entry.path?.length ?? 0) + metadata;
}

class Watcher {
  readonly #path: string;
  readonly #stop = new AbortController();
  #events: FilesystemEventInit[] = [];
  #waitingBytes = 0;
  #lost = false;
  #failure: unknown;

  constructor(path: string) {
    this.#path = path;
  }

  async open(live: LiveSandbox, options: WatchOptions): Promise<void> {
    const items = await openWatch(live.sandbox.files, options, this.#stop.signal);
    void this.#collect(items);
  }

  /** What has happened since the last time. */
  take(): FilesystemEventInit[] {
    if (this.#lost) {
      this.#lost = false;
      throw eventsWereLost(this.#path);
    }
    const events = this.#drop();
    if (events.length === 0 && this.#failure !== undefined) throw this.#failure;
    return events;
  }

  close(): void {
    this.#stop.abort();
    this.#drop();
  }

  async #collect(items: AsyncIterable<WatchItem>): Promise<void> {
    try {
      for await (const item of items) {
        if (item.kind === "event" && this.#keep(item.event)) continue;
        this.#lost = true;
        this.#drop();
      }
    } catch (error) {
      this.#failure = error;
    }
  }

  #keep(event: FilesystemEventInit): boolean {
    this.#waitingBytes += sizeOf(event);
    if (this.#waitingBytes > MOST_WAITING_BYTES) return false;
    this.#events.push(event);
    return true;
  }

  #drop(): FilesystemEventInit[] {
    const events = this.#events;
    this.#events = [];
    this.#waitingBytes = 0;
    return events;
  }
}

export class Watchers {
  readonly #bySandbox = new WeakMap<LiveSandbox, Map<string, Watcher>>();

  async create(live: LiveSandbox, options: WatchOptions): Promise<string> {
    const watchers = this.#of(live);
    if (watchers.size >= MOST_WATCHERS) {
      throw new HoldfastError("limit_reached", `the sandbox has ${MOST_WATCHERS} watchers, which is the most`, {
        hint: "Remove one that is not needed any more.",
      });
    }
    const id = `w${randomBytes(12).toString("hex")}`;
    const watcher = new Watcher(options.path);
    watchers.set(id, watcher);
    try {
      await watcher.open(live, options);
    } catch (error) {
      watchers.delete(id);
      throw error;
    }
    return id;
  }

  take(live: LiveSandbox, id: string): FilesystemEventInit[] {
    return this.#find(live, id).take();
  }

  remove(live: LiveSandbox, id: string): void {
    this.#find(live, id).close();
    this.#of(live).delete(id);
  }

  #find(live: LiveSandbox, id: string): Watcher {
    const watcher = this.#of(live).get(id);
    if (watcher !== undefined) return watcher;
    throw new HoldfastError("file_not_found", `watcher with id ${id.slice(0, 100)} not found`, {
      hint: "Watchers do not outlive a pause of the sandbox or a restart of the server: create it again.",
    });
  }

  #of(live: LiveSandbox): Map<string, Watcher> {
    const known = this.#bySandbox.get(live);
    if (known !== undefined) return known;
    const watchers = new Map<string, Watcher>();
    this.#bySandbox.set(live, watchers);
    const closeAll = () => {
      for (const watcher of watchers.values()) watcher.close();
      watchers.clear();
    };
    live.gone.addEventListener("abort", closeAll, { once: true });
    return watchers;
  }
}
