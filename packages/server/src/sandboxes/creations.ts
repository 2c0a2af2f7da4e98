/** Sandboxes on their way: made whole, or nothing of them is left; and each token's request made once. */
import { createHash } from "node:crypto";
import type { Admission, Engine, Sandbox, SandboxSpec, Waiting, WarmClaim } from "@holdfast/engine";
import { ceilingBytesOf, HoldfastError, type SandboxId } from "@holdfast/protocol";
import type { CreationWay, Metrics } from "../metrics/metrics.js";
import type { SandboxRow, Store } from "../store/store.js";
import { Attendance } from "./attendance.js";
import type { KeyBudget } from "./key-budget.js";
import type { SandboxLife } from "./sandbox-life.js";
import type { Caller, CreateRequest } from "./types.js";
import { waitingNews } from "./waiting-news.js";

const FAILED_CREATION = "its creation, which failed";

export interface CreationParts {
  readonly engine: Engine;
  readonly store: Store;
  readonly budget: KeyBudget;
  /** Makes a life of a row, whose memory is counted already; it is in the list from then on. */
  readonly keep: (row: SandboxRow) => SandboxLife;
  /** Takes it from the list; false if it was not there. */
  readonly letGo: (id: SandboxId) => boolean;
  readonly metrics: Pick<Metrics, "creating">;
  readonly find: (id: SandboxId) => Promise<SandboxRow | undefined>;
  /** Writes down that it waits. */
  readonly onWaiting: (row: SandboxRow, waiting: Waiting) => Promise<void>;
}

export interface CreationOptions {
  /** How long it may wait for room on the host. */
  readonly waitForRoomMs: number;
  /** Whoever asked has gone, which ends the waiting. What is being made already is made. */
  readonly signal?: AbortSignal | undefined;
  /** They may come back to it for so long. */
  readonly comeBackMs?: number | undefined;
  readonly onBegun?: (() => void) | undefined;
  /** `cold` if absent. */
  readonly how?: CreationWay | undefined;
  /** One that is ready; the row has its id. It is handed over, or put back. */
  readonly warm?: WarmClaim | undefined;
}

/** What all sandboxes of a server have alike. */
const COMMON_SPEC = { hostname: "sandbox", whenOwnerDies: "keep" } as const;

interface PendingCreation {
  readonly made: Promise<SandboxRow>;
  readonly waiting: AbortController;
  readonly attendance: Attendance;
}

export class Creations {
  readonly #parts: CreationParts;
  readonly #pending = new Map<SandboxId, PendingCreation>();

  constructor(parts: CreationParts) {
    this.#parts = parts;
  }

  /** One that is ready for what is asked for, if there is one. */
  claim(spec: Partial<SandboxSpec>): Promise<WarmClaim | undefined> {
    return this.#parts.engine.warm.claim({ ...spec, ...COMMON_SPEC });
  }

  /** `onBegun` of the options: it is there, and only what it is there to run is still waited for. */
  make(caller: Caller, row: SandboxRow, spec: Partial<SandboxSpec>, options: CreationOptions): Promise<SandboxRow> {
    const waiting = new AbortController();
    const attendance = new Attendance({
      comeBackMs: options.comeBackMs ?? 0,
      onForsaken: () => waiting.abort(),
    });
    attendance.attend(options.signal);
    const making = this.#parts.metrics.creating(
      options.how ?? (options.warm === undefined ? "cold" : "warm"),
      (onWaited) => this.#make(caller, row, spec, { ...options, signal: waiting.signal, onWaited }),
    );
    const made = making.finally(() => {
      // It is nobody's if it did not come to be this one's.
      options.warm?.release();
      attendance.end();
      this.#pending.delete(row.id);
    });
    this.#pending.set(row.id, { made, waiting, attendance });
    return made;
  }

  /** Ends its waiting for room; resolves when nothing is left of it. False if there is no such creation. */
  async cancel(id: SandboxId): Promise<boolean> {
    const pending = this.#pending.get(id);
    if (pending === undefined) return false;
    pending.waiting.abort();
    return pending.made.then(
      () => false,
      () => true,
    );
  }

  /** Nobody waits for a server that is being stopped. */
  async settled(): Promise<void> {
    for (const { waiting } of this.#pending.values()) waiting.abort();
    await Promise.allSettled([...this.#pending.values()].map(({ made }) => made));
  }

  /** How many are on their way. */
  get count(): number {
    return this.#pending.size;
  }

  /** The sandbox that the token gave before; undefined if this is the first time. */
  async earlier(
    {
      keyId,
      token,
      signal,
    }: { readonly keyId: string; readonly token: string; readonly signal?: AbortSignal | undefined },
    request: CreateRequest,
    id: SandboxId,
  ): Promise<SandboxRow | undefined> {
    const { idempotency, sandboxes } = this.#parts.store;
    const requestHash = createHash("sha256").update(JSON.stringify(request)).digest("hex");
    for (;;) {
      const claim = await idempotency.claim({ keyId, token, requestHash, sandboxId: id, createdAt: new Date() });
      if (claim.sandboxId === id) return undefined;
      if (claim.requestHash !== requestHash) {
        throw new HoldfastError(
          "idempotency_conflict",
          "the Idempotency-Key was used before, for a different request",
          {
            hint: "Use a new key for a new request.",
            details: { field: "Idempotency-Key" },
          },
        );
      }
      const pending = this.#pending.get(claim.sandboxId);
      if (pending !== undefined) {
        pending.attendance.attend(signal);
        return pending.made;
      }
      const row = await this.#parts.find(claim.sandboxId);
      if (row !== undefined && row.status !== "creating") return row;
      // It came to nothing: the process was killed in the middle. Another may be making it right now.
      if (!this.#pending.has(claim.sandboxId)) {
        await idempotency.releaseFor(claim.sandboxId);
        await sandboxes.remove(claim.sandboxId);
      }
    }
  }

  async #make(
    caller: Caller,
    row: SandboxRow,
    spec: Partial<SandboxSpec>,
    { waitForRoomMs, signal, onBegun, onWaited, warm }: CreationOptions & Pick<Admission, "onWaited">,
  ): Promise<SandboxRow> {
    const { engine, store, budget } = this.#parts;
    let sandbox: Sandbox | undefined;
    let kept = false;
    try {
      // Before there is a row: its id may be that of a ready one, which goes back to the pool.
      if (signal?.aborted === true) throw new HoldfastError("canceled", "the creation of the sandbox was canceled");
      budget.take(caller, row.keyId, ceilingBytesOf(row.limits));
    } catch (error) {
      await store.idempotency.releaseFor(row.id);
      throw error;
    }
    let life: SandboxLife;
    try {
      const inserted = store.sandboxes.insert(row);
      const created = engine.create(
        {
          ...spec,
          id: row.id,
          limits: row.limits,
          ...COMMON_SPEC,
          labels: { key: row.keyId },
        },
        {
          warm,
          admission: {
            lane: row.keyId,
            waitMs: waitForRoomMs,
            signal,
            ...waitingNews((waiting) => {
              inserted.then(() => this.#parts.onWaiting(row, waiting)).catch(() => {});
            }, onWaited),
          },
        },
      );
      // Both are waited for, whichever fails: nothing may go on behind our back.
      await Promise.allSettled([inserted, created]);
      sandbox = await created;
      await inserted;
      life = this.#parts.keep(row);
      kept = true;
      await life.begin(sandbox);
    } catch (error) {
      // One that died in this very moment has been let go of already.
      if (this.#parts.letGo(row.id) || !kept) budget.free(row.keyId, ceilingBytesOf(row.limits));
      await sandbox?.kill(FAILED_CREATION);
      await store.idempotency.releaseFor(row.id);
      await store.sandboxes.remove(row.id);
      throw error;
    }
    onBegun?.();
    try {
      await life.startImage();
      return life.row;
    } catch (error) {
      // It has lived, and what it did can be asked about; but nobody gets it.
      await life.kill(FAILED_CREATION).catch(() => {});
      await store.idempotency.releaseFor(row.id);
      throw error;
    }
  }
}
