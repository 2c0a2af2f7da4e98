/**
 * One sandbox's life as the server sees it: it runs, is paused, runs again, ends once. Changes happen one after the
 * other; each is written down with its cause in the moment it is true.
 *
 *            pause(memory)             pause(files only), or the host restarted
 *   running ───────────────> paused ──────────────────────> paused, files only
 *      ^ <──── thaw ──────────┘ └───────── boot ────────────────┘
 *      └── kill, time is up, death of its own ──> ended
 */
import type { Admission, Sandbox } from "@holdfast/engine";
import { HoldfastError, type ResizeLimits, type SandboxCause, type SandboxEnding } from "@holdfast/protocol";
import type { NetworkSettings, NewEvent, SandboxRow } from "../store/store.js";
import { ExpiryTimer } from "./expiry-timer.js";
import { LifeBody } from "./life-body.js";
import { lifeEvents } from "./life-events.js";
import { admissionOf, type LifeParts } from "./life-parts.js";
import { LifeRecord } from "./life-record.js";
import { LifeTurns } from "./life-turns.js";
import type { LastWords } from "./live-commands.js";
import { createLive, type Live } from "./live-sandbox.js";
import { openLife } from "./open-life.js";
import { endedError, endingWithoutSandbox, postmortemOf } from "./postmortem.js";
import { resizeSandbox } from "./resize-sandbox.js";
import type { Opened } from "./types.js";

/** How long after a failure to end a sandbox whose time is up it is tried again. */
const RETRY_MS = 5000;

export class SandboxLife {
  readonly #parts: LifeParts;
  readonly #expiry = new ExpiryTimer();
  readonly #onEnded: (life: SandboxLife) => void;
  readonly #record: LifeRecord;
  readonly #body: LifeBody;
  readonly #turns = new LifeTurns(() => this.#requireAlive());
  #live: Live | undefined;
  #released = false;
  /** Nothing waits for room any more when it is to end, or is let go of. */
  readonly #leaving = new AbortController();

  constructor(parts: LifeParts, row: SandboxRow, onEnded: (life: SandboxLife) => void) {
    this.#parts = parts;
    this.#record = new LifeRecord(parts, row);
    this.#onEnded = onEnded;
    this.#body = new LifeBody(
      parts,
      () => this.#row,
      (sandbox, ending) => this.#onSandboxEnded(sandbox, ending),
    );
  }

  get row(): SandboxRow {
    return this.#record.row;
  }

  get #row(): SandboxRow {
    return this.#record.row;
  }

  /** The engine's, while there is one: running or frozen. */
  get sandbox(): Sandbox | undefined {
    return this.#body.sandbox;
  }

  /** It runs from now on, for the first time. */
  async begin(sandbox: Sandbox): Promise<void> {
    this.#body.set(sandbox);
    await this.#record.wish({ status: "running" }, lifeEvents.created(this.#row));
    this.#goLive();
  }

  /** For a sandbox that has just begun: resolves when what its image is there to run is ready. */
  async startImage(): Promise<void> {
    if (this.#live !== undefined) await this.#parts.startImage(this.#live.sandbox);
  }

  /** Found running or frozen after a restart of the server. */
  async adopt(sandbox: Sandbox): Promise<void> {
    this.#body.set(sandbox);
    if (this.#row.status === "paused") {
      if (this.#row.memoryKept === false) {
        // Its boot was cut off before anybody was told.
        await this.#stop("the restart of the server");
        return;
      }
      this.#body.adoptCommandsLater();
      if (sandbox.state !== "frozen") await sandbox.freeze();
      return;
    }
    if (sandbox.state === "frozen" && !(await this.#thawAgain(sandbox))) return;
    await this.#body.adoptCommands();
    await this.#record.fact({ status: "running" }, lifeEvents.adopted());
    this.#goLive();
  }

  /** Its pause was cut off. False if the host has no room for it any more: then it is paused. */
  async #thawAgain(sandbox: Sandbox): Promise<boolean> {
    try {
      // Whoever was frozen for the host's sake has its promise still; nobody else is waited for while the server starts.
      await sandbox.thaw({ ...admissionOf(this.#parts, this.#row), waitMs: 0 });
      return true;
    } catch (error) {
      if (!["host_capacity", "invalid_argument"].includes(HoldfastError.from(error).code)) throw error;
      this.#body.adoptCommandsLater();
      const data = { releasedBytes: 0, heldBytes: (await sandbox.stats()).memoryBytes };
      const event = lifeEvents.frozen("the host has no room for it", data);
      await this.#record.fact({ status: "paused", memoryKept: true, expiresAt: null }, event);
      return false;
    }
  }

  /** Only its files were found after a restart of the server. */
  async adoptFiles(why: string): Promise<void> {
    if (this.#row.status === "paused" && this.#row.memoryKept === false) return;
    await this.#record.fact({ status: "paused", memoryKept: false, expiresAt: null }, lifeEvents.foundAsFiles(why));
  }

  /** The server was killed while it was ending it: the end is what it was to be. */
  async endAsIntended(sandbox: Sandbox | undefined, intended: SandboxEnding, hasFiles: boolean): Promise<void> {
    await sandbox?.kill("the restarted server");
    if (hasFiles) await this.#parts.engine.discard(this.#row.id);
    await this.#finish(intended, [], sandbox);
  }

  /** It did not survive while no server was running. */
  async lost(why: string): Promise<void> {
    await this.#finish(endingWithoutSandbox(this.#row, { kind: "lost", why }), []);
  }

  /** As it will be when an end that has begun is over: nobody is told that it runs who could not reach it. */
  async settledRow(): Promise<SandboxRow> {
    if (this.#turns.isEnding) await this.#turns.settled();
    return this.#row;
  }

  open(options: { readonly wake: boolean }): Promise<Opened> {
    const life = this;
    return openLife(
      {
        get row() {
          return life.#row;
        },
        get live() {
          return life.#live?.sandbox;
        },
        turns: this.#turns,
        resume: () => this.resume({}),
      },
      options,
    );
  }

  kill(by: string): Promise<SandboxEnding> {
    return this.#end({ kind: "killed", by }, (sandbox) => sandbox.kill(by));
  }

  setTimeout(timeoutMs: number, options: { readonly extendOnly: boolean }): Promise<SandboxRow> {
    return this.#turns.take(undefined, async () => {
      if (this.#row.status === "paused") {
        throw new HoldfastError("sandbox_paused", `sandbox ${this.#row.id} is paused and has no timeout`, {
          hint: "Resume it first; that sets a timeout.",
        });
      }
      await this.#setExpiry(timeoutMs, options.extendOnly);
      return this.#row;
    });
  }

  pause(options: { readonly memory: boolean; readonly why: string }): Promise<SandboxRow> {
    return this.#turns.take("pausing", async () => {
      if (this.#row.status === "paused") {
        throw new HoldfastError("sandbox_paused", `sandbox ${this.#row.id} is paused already`);
      }
      this.#leaveLive();
      this.#expiry.clear();
      try {
        if (options.memory) await this.#freeze(options.why);
        else await this.#stop(options.why);
      } catch (error) {
        await this.#goOn();
        throw error;
      }
      return this.#row;
    });
  }

  async resume(options: {
    readonly timeoutMs?: number | undefined;
    readonly memory?: boolean | undefined;
  }): Promise<{ row: SandboxRow; resumed: boolean }> {
    const asks = this.#row.status === "paused" ? "resuming" : undefined;
    const how = await this.#turns.take(asks, async () => {
      const timeoutMs = options.timeoutMs ?? this.#row.timeoutMs;
      if (this.#row.status === "running") {
        if (options.timeoutMs !== undefined) await this.#setExpiry(timeoutMs, true);
        return { resumed: false, booted: false };
      }
      const before = this.#row.boots;
      const boots = await this.#parts.creating("resume", (told) => this.#wake(options.memory ?? true, told));
      const booted = boots > before;
      await this.#record.fact(
        { status: "running", memoryKept: null, boots, timeoutMs, expiresAt: new Date(Date.now() + timeoutMs) },
        lifeEvents.resumed(booted ? "from its files" : "with its processes", { boots, timeoutMs }),
      );
      this.#goLive();
      return { resumed: true, booted };
    });
    // Nobody who wants to pause, keep or end it waits for this.
    if (how.booted) await this.#startAgain();
    return { row: this.#row, resumed: how.resumed };
  }

  /** Its processes are gone, the one that it is there for among them. It runs in any case. */
  async #startAgain(): Promise<void> {
    const live = this.#live;
    await this.startImage().catch((error: unknown) => {
      const isExpected = this.#live !== live || HoldfastError.from(error).code === "server_stopping";
      if (!isExpected) this.#body.complain(error, "what a sandbox is there to run did not come up after its boot");
    });
    if (this.#hasEnded()) throw endedError(await this.settledRow());
  }

  /** `reserve` is told by how much its memory grows, when its turn has come, and may refuse. */
  resize(limits: ResizeLimits, reserve: (grownBytes: number) => void): Promise<SandboxRow> {
    return this.#turns.take(undefined, async () => {
      await resizeSandbox(this.#record, this.sandbox, { limits, reserve });
      return this.#row;
    });
  }

  setNetwork(network: NetworkSettings): Promise<SandboxRow> {
    return this.#turns.take(undefined, async () => {
      await this.#record.wish({ network }, lifeEvents.networkChanged(network));
      return this.#row;
    });
  }

  /**
   * Does something with the sandbox as it stands, running or frozen; nobody pauses, resumes or ends it meanwhile. What is to
   * be told of it comes back with the result.
   */
  withSandbox<T>(work: (sandbox: Sandbox) => Promise<{ result: T; event: NewEvent }>): Promise<T> {
    return this.#turns.take(undefined, async () => {
      if (this.sandbox === undefined) {
        throw new HoldfastError("sandbox_paused", `sandbox ${this.#row.id} is paused, and only its files are kept`, {
          hint: "Resume it first.",
        });
      }
      const { result, event } = await work(this.sandbox);
      await this.#record.fact({}, event);
      return result;
    });
  }

  /** Lets go, after what is going on: the sandbox runs on for the next server. */
  async release(): Promise<void> {
    this.#leaving.abort();
    await this.#turns.settled();
    this.#released = true;
    this.#record.close();
    this.#expiry.clear();
    this.#body.release();
  }

  #admission(onWaited?: Admission["onWaited"]): Admission {
    return admissionOf(this.#parts, this.#row, { onWaited, signal: this.#leaving.signal });
  }

  /** Requests reach it from now on, and its time runs. */
  #goLive(): void {
    const { sandbox, commands } = this.#body.alive();
    this.#live = createLive(() => this.#row, sandbox, commands);
    this.#armTimer();
  }

  /** No request reaches it from now on; those that are under way are cut off. */
  #leaveLive(): void {
    const live = this.#live;
    this.#live = undefined;
    live?.gone.abort();
  }

  /** Or is about to. */
  #hasEnded(): boolean {
    return this.#row.status === "ended" || this.#turns.isEnding;
  }

  #requireAlive(): void {
    if (this.#hasEnded()) throw endedError(this.#row);
  }

  async #freeze(why: string): Promise<void> {
    const figures = await this.#body.freeze();
    await this.#record.fact({ status: "paused", memoryKept: true, expiresAt: null }, lifeEvents.frozen(why, figures));
  }

  async #stop(why: string): Promise<void> {
    await this.#body.stop(`a pause (${why})`);
    await this.#record.fact({ status: "paused", memoryKept: false, expiresAt: null }, lifeEvents.stopped(why));
  }

  /** A pause that failed leaves it running, if it does. */
  async #goOn(): Promise<void> {
    try {
      if (this.sandbox?.state === "frozen") await this.sandbox.thaw(this.#admission());
    } catch (error) {
      this.#body.complain(error, "a sandbox whose pause failed could not be thawed");
    }
    if (this.sandbox?.state === "running") this.#goLive();
  }

  /** Makes it run; resolves to the number of its boots. */
  async #wake(withMemory: boolean, onWaited: Admission["onWaited"]): Promise<number> {
    const admission = this.#admission(onWaited);
    if (this.sandbox !== undefined && withMemory) {
      await this.#body.thaw(admission);
      return this.#row.boots;
    }
    if (this.sandbox !== undefined) await this.#stop("a resume without its memory");
    this.#body.set(await this.#parts.engine.boot(this.#row.id, { admission }));
    return this.#row.boots + 1;
  }

  async #setExpiry(timeoutMs: number, extendOnly: boolean): Promise<void> {
    const expiresAt = new Date(Date.now() + timeoutMs);
    if (extendOnly && this.#row.expiresAt !== null && expiresAt <= this.#row.expiresAt) return;
    await this.#record.wish({ expiresAt, timeoutMs }, lifeEvents.timeoutChanged(timeoutMs, expiresAt));
    this.#armTimer();
  }

  #armTimer(): void {
    const { expiresAt } = this.#row;
    if (expiresAt !== null) this.#expiry.set(expiresAt, () => this.#onTimeUp(expiresAt));
  }

  #onTimeUp(expiresAt: Date): void {
    // The end may have been moved since the timer was set.
    if (this.#row.expiresAt?.getTime() !== expiresAt.getTime() || this.#live === undefined) return;
    const { onTimeout, timeoutMs } = this.#row;
    const done =
      onTimeout === "kill"
        ? this.#end({ kind: "timed_out", limitMs: timeoutMs }, (sandbox) => sandbox.expire(timeoutMs))
        : this.pause({ memory: onTimeout === "pause", why: "its time was up" });
    done.catch((error) => {
      this.#body.complain(error, "a sandbox whose time is up could not be ended or paused");
      // Again, but not at once: whatever is wrong with the host, this must not make it worse.
      const again = new Date(Date.now() + RETRY_MS);
      if (!this.#turns.isEnding) this.#expiry.set(again, () => this.#onTimeUp(expiresAt));
    });
  }

  #end(cause: SandboxCause, how: (sandbox: Sandbox) => Promise<SandboxEnding>): Promise<SandboxEnding> {
    if (this.#hasEnded()) return Promise.reject(endedError(this.#row));
    this.#leaving.abort();
    this.#expiry.clear();
    return this.#turns.end(async () => {
      if (this.#row.status === "ended") throw endedError(this.#row);
      const sandbox = this.#body.letGo();
      const intended = endingWithoutSandbox(this.#row, cause);
      // Before anything of it is taken apart: should we be killed on the way, the next server knows why it ended.
      await this.#record.fact({ ending: intended }, lifeEvents.ending(intended.message, cause));
      if (sandbox === undefined) {
        this.#leaveLive();
        await this.#discard();
        await this.#finish(intended, []);
        return intended;
      }
      const words = await this.#body.lastWords({ askGuest: sandbox.state === "running" });
      this.#leaveLive();
      const ending = await how(sandbox);
      await this.#finish(ending, words, sandbox);
      return ending;
    });
  }

  async #discard(): Promise<void> {
    try {
      await this.#parts.engine.discard(this.#row.id);
    } catch (error) {
      // Its files are there still: it is paused as before.
      this.#turns.takeBackEnd();
      throw error;
    }
  }

  /** It ended without our doing. */
  #onSandboxEnded(sandbox: Sandbox, ending: SandboxEnding): void {
    if (this.#released) return;
    this.#expiry.clear();
    const ended = this.#turns.end(async () => {
      await this.#finish(ending, await this.#body.lastWords({ askGuest: false }), sandbox);
    });
    this.#leaveLive();
    ended.catch((error) => this.#body.complain(error, "the end of a sandbox was not recorded"));
  }

  async #finish(ending: SandboxEnding, words: readonly LastWords[], sandbox?: Sandbox): Promise<void> {
    const { id } = this.#row;
    await this.#body.settleCommands();
    await this.#record.write(() => this.#parts.store.postmortems.put(id, postmortemOf(ending, words, sandbox)));
    await this.#record.fact(
      { status: "ended", endedAt: new Date(), ending, expiresAt: null, memoryKept: null },
      lifeEvents.ended(ending),
    );
    this.#body.forget();
    // Not before the store knows it: until then whoever asks is told by us.
    void this.#record.written().then(() => this.#onEnded(this));
  }
}
