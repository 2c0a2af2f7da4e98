/**
 * Watches for clients that ask for events instead of holding a stream. They are kept for a sandbox as long as it runs,
 * so many and no more, and for each of them so many events and no more.
 */
import { randomBytes } from "node:crypto";
import { setTimeout as sleep } from "node:timers/promises";
import { HoldfastError } from "@holdfast/protocol";
import type { LiveSandbox } from "../../sandboxes/types.js";
import {
  eventsWereLost,
  type FilesystemEventInit,
  type OpenWatch,
  openWatch,
  type WatchItem,
  type WatchOptions,
} from "./watch-events.js";

const MOST_WATCHERS = 32;
const MOST_WAITING_BYTES = 1024 * 1024;
const EVENT_BYTES = 256;
const ENTRY_BYTES = 1024;
/** A guest from before it could be asked gives no answer, and one that stands still none in time. */
const CATCH_UP_MS = 1000;

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
  #watch: OpenWatch | undefined;
  #events: FilesystemEventInit[] = [];
  #waitingBytes = 0;
  /** Of those who have asked for all until now, oldest first. */
  readonly #asking: (() => void)[] = [];
  /** An answer did not come in time: nobody waits again before it is there. */
  #overdue = false;
  #lost = false;
  #ended = false;
  #failure: unknown;

  constructor(path: string) {
    this.#path = path;
  }

  async open(live: LiveSandbox, options: WatchOptions): Promise<void> {
    this.#watch = await openWatch(live.sandbox.files, options, this.#stop.signal);
    void this.#collect(this.#watch.items);
  }

  /** What has happened since the last time, until now: whoever wrote a file before asking finds it. */
  async take(): Promise<FilesystemEventInit[]> {
    await this.#catchUp();
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

  async #catchUp(): Promise<void> {
    if (this.#watch === undefined || this.#ended || this.#overdue) return;
    const inTime = new AbortController();
    const caughtUp = new Promise<void>((resolve) => {
      this.#asking.push(resolve);
    });
    this.#watch.catchUp();
    const tooLong = sleep(CATCH_UP_MS, true, { signal: inTime.signal }).catch(() => false);
    this.#overdue = (await Promise.race([caughtUp, tooLong])) === true;
    inTime.abort();
  }

  async #collect(items: AsyncIterable<WatchItem>): Promise<void> {
    try {
      for await (const item of items) {
        if (item.kind === "caught_up") this.#answered();
        else if (item.kind === "lost" || !this.#keep(item.event)) {
          this.#lost = true;
          this.#drop();
        }
      }
    } catch (error) {
      this.#failure = error;
    } finally {
      this.#ended = true;
      for (const tell of this.#asking.splice(0)) tell();
    }
  }

  #answered(): void {
    this.#overdue = false;
    this.#asking.shift()?.();
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

  async take(live: LiveSandbox, id: string): Promise<FilesystemEventInit[]> {
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
