/**
 * Owns the host's budget: nothing starts that the host cannot carry. What does not fit now waits its turn, what never
 * will is told so at once.
 */
import { setTimeout as sleep } from "node:timers/promises";
import { HoldfastError } from "@holdfast/protocol";
import { type Amounts, isSame, mapAmounts, plus, type Resource, shortOf } from "./amounts.js";
import { existsAlready, type ReservationFiles } from "./reservation-files.js";
import { describeAmount, RESOURCE_WORDS } from "./resource-words.js";
import type { Admission, BudgetReport, HostBudget, ReservationKind, Waited } from "./types.js";
import { WaitingLine } from "./waiting-line.js";

/** Memory that others give back, and promises that other processes let go of, are noticed this often. */
const LOOK_AGAIN_MS = 200;
/** Two processes that asked at the same moment may both have stepped back. */
const ATTEMPTS = 4;
const MAX_PAUSE_MS = 8;
const RETRY_AFTER_SECONDS = 5;

export interface AdmissionRequest {
  readonly id: string;
  readonly kind: ReservationKind;
  readonly lane: string;
  readonly amounts: Amounts;
  /** The path of what is there as long as the thing itself is. */
  readonly record: string;
  /** More for something that has a promise; nothing once that is gone. */
  readonly isGrowth?: boolean;
}

type AdmitOptions = Omit<Admission, "kind" | "lane">;

interface PendingAdmission {
  readonly lane: string;
  readonly since: number;
  readonly urgent: boolean;
  readonly request: AdmissionRequest;
  readonly settle: (outcome: { admitted: true } | { admitted: false; error: HoldfastError }) => void;
  readonly onWaiting: Admission["onWaiting"];
  shortage: Shortage;
  position: number;
}

interface Shortage {
  readonly resource: Resource;
  readonly needed: number;
  readonly free: number;
  /** For somebody who has waited for long. */
  readonly isKept?: boolean;
}

export class Governor {
  readonly #files: ReservationFiles;
  readonly #readBudget: () => HostBudget;
  readonly #onWaited: ((waited: Waited) => void) | undefined;
  readonly #line = new WaitingLine<PendingAdmission>();
  /** Those that have nothing yet: two of one id would take each other's. */
  readonly #asking = new Set<string>();
  /** How many wait for `onShortage` before they wait in the line. */
  #makingRoom = 0;
  #roomMaking: Promise<void> | undefined;
  #timer: NodeJS.Timeout | undefined;

  /**
   * Called before anybody has to wait or is refused. Whoever keeps things that nobody needs gives back what is missing, and
   * resolves, when it is free, to whether anything is.
   */
  onShortage: (resource: Resource, missing: number) => Promise<boolean> = async () => false;

  constructor(parts: {
    readonly files: ReservationFiles;
    readonly readBudget: () => HostBudget;
    /** Told of everybody who has waited, beside what their own admission asks for. */
    readonly onWaited?: ((waited: Waited) => void) | undefined;
  }) {
    this.#files = parts.files;
    this.#readBudget = parts.readBudget;
    this.#onWaited = parts.onWaited;
  }

  report(options: { readonly reservations?: boolean } = {}): BudgetReport {
    const reservations = options.reservations === false ? [] : this.#files.list();
    const shown = reservations.map(({ id, amounts, kind, lane }) => ({ id, amounts, kind, lane }));
    return { ...this.#readBudget(), reserved: this.#files.sum(), reservations: shown, waiting: this.#line.length };
  }

  /** Whether somebody lacks room now. */
  get isShort(): boolean {
    return this.#line.length > 0 || this.#makingRoom > 0;
  }

  /** Resolves when the amounts are promised. They stay so until `release`, whatever becomes of this process. */
  async reserve(request: AdmissionRequest, options: AdmitOptions = {}): Promise<void> {
    const { id } = request;
    if (this.#asking.has(id)) throw existsAlready(id);
    this.#asking.add(id);
    try {
      await this.#admit(request, options);
    } finally {
      this.#asking.delete(id);
    }
  }

  /** The same for more than is promised already. */
  async grow(request: AdmissionRequest, options: AdmitOptions = {}): Promise<void> {
    await this.#admit({ ...request, isGrowth: true }, options);
  }

  async #admit(request: AdmissionRequest, options: AdmitOptions): Promise<void> {
    const { signal } = options;
    if (signal?.aborted) throw canceled();
    const budget = this.#readBudget();
    this.#refuseImpossible(request, budget);
    const waitMs = options.waitMs ?? 0;
    if (waitMs === 0) {
      this.#refuseToPass(request);
      let shortage = this.#try(request, budget);
      for (let attempt = 1; attempt < ATTEMPTS && shortage !== null; attempt++) {
        await sleep(Math.random() * MAX_PAUSE_MS);
        if (signal?.aborted) throw canceled();
        shortage = this.#try(request);
      }
      if (shortage !== null) shortage = await this.#tryWithRoomMade(request, shortage);
      if (shortage !== null) throw noRoom(shortage, 0);
      return;
    }
    // Whoever comes while others wait joins them.
    if (this.#line.length === 0) {
      const shortage = this.#try(request, budget);
      if (shortage === null || (await this.#tryWithRoomMade(request, shortage)) === null) return;
      if (signal?.aborted) throw canceled();
    }
    const since = performance.now();
    const tell = (outcome: Waited["outcome"]) => {
      const waited: Waited = { kind: request.kind, waitedMs: performance.now() - since, outcome };
      tellSafely(() => options.onWaited?.(waited));
      tellSafely(() => this.#onWaited?.(waited));
    };
    try {
      await this.#wait(request, { ...options, waitMs });
    } catch (error) {
      tell(HoldfastError.from(error).code === "canceled" ? "canceled" : "refused");
      throw error;
    }
    tell("admitted");
  }

  /** Null if it was admitted after all. */
  async #tryWithRoomMade(request: AdmissionRequest, first: Shortage): Promise<Shortage | null> {
    // What is only kept ready takes nothing from anybody.
    if (request.kind === "warm") return first;
    this.#makingRoom += 1;
    try {
      let shortage: Shortage | null = first;
      while (shortage !== null && (await this.#makeRoom(shortage))) {
        shortage = this.#try(request);
      }
      return shortage;
    } finally {
      this.#makingRoom -= 1;
    }
  }

  /** Whoever fails to give anything back has given nothing back. */
  #makeRoom({ resource, needed, free }: Shortage): Promise<boolean> {
    return this.onShortage(resource, needed - free).catch(() => false);
  }

  /** Makes a promise smaller, which always fits. */
  shrink(id: string, amounts: Amounts): void {
    const before = this.#files.ours(id);
    if (before === undefined) return;
    const less = mapAmounts((resource) => Math.min(before[resource], amounts[resource]));
    if (isSame(less, before)) return;
    this.#files.change(id, less, () => true);
    this.#serve();
  }

  release(id: string): void {
    this.#files.release(id);
    for (const pending of this.#line.inOrder()) {
      if (pending.request.id !== id || pending.request.isGrowth !== true) continue;
      this.#line.remove(pending);
      pending.settle({ admitted: false, error: canceled() });
    }
    this.#serve();
  }

  /** This process answers for it now; if the promise was lost, it is made anew, whatever there is. */
  adopt(request: AdmissionRequest, options: { readonly asItWas?: boolean } = {}): void {
    const { id, amounts, kind, lane, record } = request;
    this.#files.adopt(id, amounts, { kind, lane, record }, options.asItWas ?? false);
  }

  /** The same promise, for somebody else: in one step, so that it is always somebody's. */
  handOver({ id, kind, lane, record }: AdmissionRequest): void {
    this.#files.handOver(id, { kind, lane, record });
  }

  /** Lets go of what was promised to things that are no more, by processes that are no more. */
  removeStale(isThere: (record: string, id: string) => boolean): void {
    if (this.#files.removeStale(isThere).length > 0) this.#serve();
  }

  /** Nobody waits for us any more. */
  close(): void {
    clearInterval(this.#timer);
    for (const pending of this.#line.inOrder()) {
      this.#line.remove(pending);
      pending.settle({ admitted: false, error: canceled() });
    }
  }

  /** Null if it was admitted. */
  #try(request: AdmissionRequest, budget = this.#readBudget()): Shortage | null {
    const { id, kind, lane, record, amounts } = request;
    // It has ended while it asked for more: there is nobody left to give it back.
    if (request.isGrowth === true && this.#files.ours(id) === undefined) throw canceled();
    const more = this.#moreOf(request);
    let shortage: Shortage | undefined;
    const fits = (sum: Amounts) => {
      shortage = shortIn(more, sum, budget);
      return shortage === undefined;
    };
    const taken =
      request.isGrowth === true
        ? this.#files.change(id, amounts, fits)
        : this.#files.take(id, amounts, { kind, lane, record }, fits);
    return taken ? null : (shortage ?? null);
  }

  /** What it asks for beyond what it has. */
  #moreOf({ id, amounts, isGrowth }: AdmissionRequest): Amounts {
    const before = isGrowth === true ? this.#files.ours(id) : undefined;
    return before === undefined ? amounts : mapAmounts((resource) => amounts[resource] - before[resource]);
  }

  /** What frees up is kept for those whom nobody may pass; who does not want to wait does not pass them either. */
  #refuseToPass(request: AdmissionRequest): void {
    const first = this.#line.unpassable(performance.now());
    // Who grows goes before all who want to begin something, but not before others who are held.
    if (first === undefined || (request.isGrowth === true && !first.urgent)) return;
    const { resource, free } = first.shortage;
    const needed = this.#moreOf(request)[resource];
    if (needed > 0) throw noRoom({ resource, needed, free, isKept: true }, 0);
  }

  #wait(request: AdmissionRequest, options: AdmitOptions & { readonly waitMs: number }): Promise<void> {
    const { signal, waitMs, onWaiting } = options;
    return new Promise((resolve, reject) => {
      const finish = () => {
        clearTimeout(deadline);
        signal?.removeEventListener("abort", onAbort);
      };
      const giveUp = (error: HoldfastError) => {
        if (!this.#line.remove(pending)) return;
        finish();
        this.#stopLookingIfIdle();
        this.#tellPositions();
        reject(error);
      };
      const onAbort = () => giveUp(canceled());
      const deadline = setTimeout(() => giveUp(noRoom(pending.shortage, waitMs)), waitMs);
      signal?.addEventListener("abort", onAbort, { once: true });
      const budget = this.#readBudget();
      const pending: PendingAdmission = {
        lane: request.lane,
        since: performance.now(),
        urgent: options.urgent ?? false,
        request,
        onWaiting,
        position: 0,
        shortage: shortIn(request.amounts, plus(this.#files.sum(), request.amounts), budget) ?? {
          resource: "memoryBytes",
          needed: request.amounts.memoryBytes,
          free: 0,
        },
        settle: (outcome) => {
          finish();
          if (outcome.admitted) resolve();
          else reject(outcome.error);
        },
      };
      this.#line.add(pending);
      this.#timer ??= setInterval(() => this.#serve(), LOOK_AGAIN_MS);
      this.#serve();
    });
  }

  /** Never fails: whoever waits goes on waiting while the budget cannot be read, and gives up at the deadline. */
  #serve(): void {
    if (this.#line.length === 0) return;
    try {
      this.#serveLine();
    } catch {
      // The next look may be luckier.
    }
    this.#stopLookingIfIdle();
    this.#tellPositions();
  }

  #serveLine(): void {
    this.#line.serve((pending) => {
      let shortage: Shortage | null;
      try {
        shortage = this.#try(pending.request);
      } catch (error) {
        const refusal = HoldfastError.from(error);
        if (refusal.code !== "canceled" && refusal.code !== "sandbox_exists") throw error;
        pending.settle({ admitted: false, error: refusal });
        return true;
      }
      if (shortage === null) {
        pending.settle({ admitted: true });
        return true;
      }
      pending.shortage = shortage;
      // What it frees is noticed as everything that is released. One at a time: all who wait are looked at often.
      this.#roomMaking ??= this.#makeRoom(shortage).then(() => {
        this.#roomMaking = undefined;
      });
      return false;
    }, performance.now());
  }

  #stopLookingIfIdle(): void {
    if (this.#line.length > 0) return;
    clearInterval(this.#timer);
    this.#timer = undefined;
  }

  #tellPositions(): void {
    for (const [index, pending] of this.#line.inOrder().entries()) {
      const position = index + 1;
      if (pending.position === position) continue;
      pending.position = position;
      tellSafely(() => pending.onWaiting?.({ position, ...pending.shortage }));
    }
  }

  #refuseImpossible({ id, amounts }: AdmissionRequest, { capacity, reserve }: HostBudget): void {
    const resource = shortOf(amounts, capacity);
    // What it has already cannot be refused to it, whatever has become of the host.
    if (resource === undefined || amounts[resource] <= (this.#files.ours(id)?.[resource] ?? 0)) return;
    const { show } = RESOURCE_WORDS[resource];
    throw new HoldfastError(
      "invalid_argument",
      `limits.${resource}: ${describeAmount(resource, amounts[resource])} can never be had here: this host has ${show(capacity[resource])} to give, beside ${show(reserve[resource])} that it keeps for itself`,
      {
        hint: "Ask for less.",
        details: {
          field: `limits.${resource}`,
          asked: amounts[resource],
          capacity: capacity[resource],
          reserve: reserve[resource],
        },
      },
    );
  }
}

/** `sum` is everything that is promised, what is asked for included. */
function shortIn(asked: Amounts, sum: Amounts, { room }: HostBudget): Shortage | undefined {
  const free = mapAmounts((resource) => room[resource] - (sum[resource] - asked[resource]));
  const resource = shortOf(asked, free);
  return resource === undefined ? undefined : { resource, needed: asked[resource], free: Math.max(0, free[resource]) };
}

/** Whoever is told may fail at what it does with it; that is no reason for others not to be served. */
function tellSafely(tell: () => void): void {
  try {
    tell();
  } catch {
    // Theirs to notice.
  }
}

function canceled(): HoldfastError {
  return new HoldfastError("canceled", "the operation was canceled while it waited for room on the host");
}

function noRoom({ resource, needed, free, isKept }: Shortage, waitedMs: number): HoldfastError {
  const { show } = RESOURCE_WORDS[resource];
  const waited = waitedMs === 0 ? "" : ` after ${Math.round(waitedMs / 100) / 10} s of waiting`;
  return new HoldfastError(
    "host_capacity",
    `the host has no room${waited}: ${describeAmount(resource, needed)} are needed, ${show(free)} are free${isKept === true ? " and kept for somebody who waits already" : ""}`,
    {
      hint: "End sandboxes that are no longer needed, ask for less, or try again later.",
      details: { resource, needed, free, retryAfterSeconds: RETRY_AFTER_SECONDS },
    },
  );
}
