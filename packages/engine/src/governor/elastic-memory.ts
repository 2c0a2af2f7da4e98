/**
 * Lets one sandbox's memory limit breathe between where it started and its ceiling. A sandbox that has used up its limit is
 * held, not killed; it is given more if the host has room, and goes on as if nothing had happened. If there is none, it waits
 * for a while; then the kernel is let loose on it, and the history of its limit tells why.
 */
import { HoldfastError, type MemoryLimitChange } from "@holdfast/protocol";
import { withLinkedSignal } from "../host/linked-signal.js";
import { growthSteps, shrunkLimit } from "./elastic-limit.js";
import type { Admission, MemoryEvent } from "./types.js";

/** How often an idle sandbox's limit is looked at, and how often in a row it must have been too high. */
const SHRINK_LOOK_MS = 10_000;
const IDLE_LOOKS = 3;
/** How long the kernel may take to kill somebody once it is allowed to. */
const KILL_LOOK_MS = 10;
const KILL_LOOKS = 200;
/** How often one that waits for room is looked at: what needed more may have ended. */
const NEED_LOOK_MS = 250;

/** What it works on. */
export interface ElasticSandbox {
  readonly limitBytes: number;
  readonly startBytes: number;
  readonly ceilingBytes: number;
  /** Not while it stands still, nor when it has ended. */
  isRunning(): boolean;
  /** `near`: it has almost all of its limit. `held`: something in it waits for more. */
  shortage(): "none" | "near" | "held";
  setHolding(holding: boolean): Promise<void>;
  oomKills(): number;
  workingSetBytes(): number;
  /**
   * Takes the room for it first; `host_capacity` if there is none within the admission's time. Its signal also calls off a
   * lower limit that is not in force yet: then all is as it was.
   */
  setLimit(bytes: number, admission?: Admission): Promise<void>;
}

const MAX_HISTORY = 100;
const NO_ROOM: ReadonlySet<string> = new Set(["host_capacity", "invalid_argument"]);
/** Whoever called it off, or froze or ended it, sees to what comes next. */
const CALLED_OFF: ReadonlySet<string> = new Set(["canceled", "sandbox_frozen", "sandbox_ended"]);

type Growth = "grown" | "no_room" | "canceled";

async function lookUntil(isSo: () => boolean): Promise<void> {
  for (let look = 0; look < KILL_LOOKS && !isSo(); look++) {
    await new Promise((resume) => setTimeout(resume, KILL_LOOK_MS));
  }
}

export class ElasticMemory {
  readonly #sandbox: ElasticSandbox;
  readonly #waitMs: number;
  readonly #tell: (event: MemoryEvent) => void;
  readonly #onError: (error: unknown) => void;
  readonly #closing = new AbortController();
  #interruption = new AbortController();
  readonly #history: MemoryLimitChange[] = [];
  readonly #timer: NodeJS.Timeout;
  #busy = false;
  #again = false;
  /** While its limit is being lowered. */
  #shrinking: AbortController | undefined;
  #idleLooks = 0;
  #heldMs: number;
  #waiting: { readonly since: number; readonly over: Promise<void> } | undefined;

  constructor(
    sandbox: ElasticSandbox,
    options: {
      readonly waitMs: number;
      readonly tell: (event: MemoryEvent) => void;
      readonly onError: (error: unknown) => void;
      /** Of one whose place this takes. */
      readonly history?: readonly MemoryLimitChange[];
      readonly heldMs?: number;
    },
  ) {
    this.#sandbox = sandbox;
    this.#waitMs = options.waitMs;
    this.#tell = options.tell;
    this.#onError = options.onError;
    this.#history.push(...(options.history ?? []));
    this.#heldMs = options.heldMs ?? 0;
    this.#timer = setInterval(() => void this.#onIdleLook().catch(this.#onError), SHRINK_LOOK_MS).unref();
    this.#holdIfRoom().catch(this.#onError);
  }

  get history(): readonly MemoryLimitChange[] {
    return this.#history;
  }

  /** How long it was without room for more, in all. */
  get heldMs(): number {
    return this.#heldMs + (this.#waiting === undefined ? 0 : Math.ceil(performance.now() - this.#waiting.since));
  }

  /** While it waits for room: resolves when it does so no more. */
  get relief(): Promise<void> | undefined {
    return this.#waiting?.over;
  }

  /** Something may be held. */
  async look(): Promise<void> {
    if (this.#busy) {
      this.#again = true;
      // Whoever needs more does not wait until there is less.
      if (this.#shrinking !== undefined && this.#sandbox.shortage() !== "none") this.#shrinking.abort();
      return;
    }
    this.#busy = true;
    try {
      do {
        this.#again = false;
        while (await this.#lookOnce());
      } while (this.#again);
    } finally {
      this.#busy = false;
    }
  }

  /** It moves again, and may have been short of memory when it came to stand still. */
  async goOn(): Promise<void> {
    if (!this.#canAct()) return;
    await this.#holdIfRoom();
    await this.look();
  }

  /** It is about to stand still: it waits for nothing until it is looked at again. */
  interrupt(): void {
    this.#interruption.abort();
    this.#interruption = new AbortController();
  }

  close(): void {
    this.#closing.abort();
    clearInterval(this.#timer);
  }

  async #holdIfRoom(): Promise<void> {
    await this.#sandbox.setHolding(this.#sandbox.limitBytes < this.#sandbox.ceilingBytes);
  }

  #canAct(): boolean {
    return !this.#closing.signal.aborted && this.#sandbox.isRunning();
  }

  /** Whether it is worth another look. */
  async #lookOnce(): Promise<boolean> {
    if (!this.#canAct()) return false;
    const shortage = this.#sandbox.shortage();
    if (shortage === "none") return false;
    this.#idleLooks = 0;
    return shortage === "near" ? (await this.#growAtOnce(undefined)) === "grown" : this.#relieve();
  }

  async #growAtOnce(heldSince: number | undefined): Promise<Growth> {
    const { limitBytes, ceilingBytes } = this.#sandbox;
    for (const step of growthSteps(limitBytes, ceilingBytes)) {
      const outcome = await this.#growTo(step, heldSince);
      if (outcome !== "no_room") return outcome;
    }
    return "no_room";
  }

  /** Whether it is worth another look. */
  async #relieve(): Promise<boolean> {
    const begin = performance.now();
    const { limitBytes, ceilingBytes } = this.#sandbox;
    this.#tell({ kind: "held", limitBytes });
    const atOnce = await this.#growAtOnce(begin);
    if (atOnce !== "no_room") return atOnce === "grown";
    const least = growthSteps(limitBytes, ceilingBytes).at(-1);
    return this.#withoutRoom(begin, async () => {
      const outcome = least === undefined ? "no_room" : await this.#waitForRoom(least, begin);
      if (outcome === "no_room" && this.#isHeld()) await this.#letGo(performance.now() - begin, least === undefined);
      // Whoever called it off has not decided that anybody is to be killed: it stays held, for whoever comes next.
      return outcome !== "canceled";
    });
  }

  /** Until there is room, or somebody has been killed for want of it. */
  async #withoutRoom<T>(since: number, work: () => Promise<T>): Promise<T> {
    let end = () => {};
    const over = new Promise<void>((resolve) => {
      end = resolve;
    });
    this.#waiting = { since, over };
    try {
      return await work();
    } finally {
      this.#heldMs = this.heldMs;
      this.#waiting = undefined;
      end();
    }
  }

  #isHeld(): boolean {
    return this.#canAct() && this.#sandbox.shortage() === "held";
  }

  async #waitForRoom(toBytes: number, heldSince: number): Promise<Growth> {
    const needless = new AbortController();
    const look = setInterval(() => {
      if (!this.#isHeld()) needless.abort();
    }, NEED_LOOK_MS).unref();
    try {
      return await this.#unlessCalledOff(needless.signal, (signal) =>
        this.#growTo(toBytes, heldSince, {
          waitMs: this.#waitMs,
          urgent: true,
          signal,
          onWaiting: (waiting) => this.#tell({ kind: "waiting", waiting }),
          onWaited: (waited) => this.#tell({ kind: "waited", waited }),
        }),
      );
    } finally {
      clearInterval(look);
    }
  }

  /** The signal is also that of whoever ends it, or has it stand still. */
  #unlessCalledOff<T>(signal: AbortSignal, work: (signal: AbortSignal) => Promise<T>): Promise<T> {
    return withLinkedSignal([this.#closing.signal, this.#interruption.signal, signal], work);
  }

  async #growTo(toBytes: number, heldSince: number | undefined, admission?: Admission): Promise<Growth> {
    const fromBytes = this.#sandbox.limitBytes;
    try {
      await this.#sandbox.setLimit(toBytes, admission);
    } catch (error) {
      // There is none now, or never will be. Whatever else went wrong: nobody may be held for ever because of it.
      const { code } = HoldfastError.from(error);
      if (CALLED_OFF.has(code)) return "canceled";
      if (!NO_ROOM.has(code)) this.#onError(error);
      return "no_room";
    }
    await this.#holdIfRoom();
    const heldMs = heldSince === undefined ? null : Math.round(performance.now() - heldSince);
    this.#note("grown", { fromBytes, toBytes, heldMs });
    return "grown";
  }

  /** The kernel kills one; whoever is left is held again. */
  async #letGo(heldMs: number, isAtCeiling: boolean): Promise<void> {
    const { limitBytes } = this.#sandbox;
    const why = isAtCeiling ? "it is at its ceiling" : "the host had no room for more";
    this.#tell({ kind: "let_go", limitBytes, heldMs, why });
    const before = this.#sandbox.oomKills();
    await this.#sandbox.setHolding(false);
    await lookUntil(() => this.#sandbox.oomKills() > before);
    if (!isAtCeiling && this.#canAct()) await this.#sandbox.setHolding(true);
    // What it had is free when it is gone, which takes longer the more there was.
    await lookUntil(() => !this.#canAct() || this.#sandbox.shortage() === "none");
  }

  async #onIdleLook(): Promise<void> {
    if (this.#busy || !this.#canAct()) return;
    const { limitBytes, startBytes } = this.#sandbox;
    // Should an event have been lost. Most never grow, and more of a look costs.
    if (this.#sandbox.shortage() !== "none") return this.look();
    if (limitBytes <= startBytes) return;
    const toBytes = shrunkLimit({ limitBytes, startBytes, workingSetBytes: this.#sandbox.workingSetBytes() });
    this.#idleLooks = toBytes === undefined ? 0 : this.#idleLooks + 1;
    if (toBytes === undefined || this.#idleLooks < IDLE_LOOKS) return;
    this.#idleLooks = 0;
    this.#busy = true;
    this.#shrinking = new AbortController();
    try {
      await this.#unlessCalledOff(this.#shrinking.signal, (signal) => this.#sandbox.setLimit(toBytes, { signal }));
      await this.#sandbox.setHolding(true);
      this.#note("shrunk", { fromBytes: limitBytes, toBytes, heldMs: null });
    } catch {
      // It uses more again, is to stand still, or has ended.
    } finally {
      this.#shrinking = undefined;
      this.#busy = false;
    }
    // Whoever came meanwhile was told to wait for us.
    if (this.#again) await this.look();
  }

  #note(kind: "grown" | "shrunk", change: Omit<MemoryLimitChange, "at">): void {
    const entry = { at: new Date().toISOString(), ...change };
    this.#history.push(entry);
    if (this.#history.length > MAX_HISTORY) this.#history.shift();
    this.#tell({ kind, ...entry });
  }
}
