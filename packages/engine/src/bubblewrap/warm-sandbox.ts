/** A sandbox that is ready and nobody's: made like any other, with nothing run in it. */
import { setImmediate as nextTurn } from "node:timers/promises";
import { HoldfastError, type SandboxId } from "@holdfast/protocol";
import type { SandboxSpec } from "../engine.js";
import type { Amounts } from "../governor/amounts.js";
import type { Admission } from "../governor/types.js";
import type { WarmThing } from "../governor/warm/warm-pool.js";
import { listCommands } from "./command-list.js";
import { type PreparedSandbox, prepareSandbox } from "./create.js";
import { dismantle } from "./dismantle.js";
import type { HostParts } from "./host-parts.js";
import { BubblewrapSandbox } from "./sandbox.js";
import { admissionRequest } from "./sandbox-budget.js";
import { warmShapeOf } from "./warm-shape.js";
import { putTokenBack, takeToken, WARM_TOKEN } from "./warm-token.js";

/** A guest that does not answer within this is not given to anybody. */
const ANSWER_MS = 500;

export class WarmSandbox implements WarmThing {
  readonly id: SandboxId;
  readonly amounts: Amounts;
  readonly gone: Promise<void>;
  readonly #host: HostParts;
  readonly #prepared: PreparedSandbox;
  readonly #shape: string | undefined;
  #isGone = false;
  #isHandedOut = false;

  private constructor(host: HostParts, prepared: PreparedSandbox) {
    const { record, connection, monitor } = prepared;
    this.#host = host;
    this.#prepared = prepared;
    this.id = record.id;
    this.amounts = admissionRequest(host, record.id, record).amounts;
    this.#shape = warmShapeOf(record.spec, prepared.skeleton);
    this.gone = Promise.race([connection.closed, ...(monitor === undefined ? [] : [monitor.exited])]).then(() => {
      this.#isGone = true;
    });
  }

  /** Its part of the budget must have been taken. */
  static async make(
    host: HostParts,
    id: SandboxId,
    options: { readonly spec: SandboxSpec; readonly signal: AbortSignal },
  ): Promise<WarmSandbox> {
    const { spec, signal } = options;
    const files = { [WARM_TOKEN]: "" };
    const prepared = await prepareSandbox(host, id, { ...spec, id }, { signal, warm: true, files });
    return new WarmSandbox(host, prepared);
  }

  take(): boolean {
    return takeToken(this.#host.records, this.id);
  }

  putBack(): boolean {
    return !this.#isGone && putTokenBack(this.#host.records, this.id);
  }

  async isFit(): Promise<boolean> {
    const { connection, cgroup } = this.#prepared;
    if (this.#isGone) return false;
    // It answers, and has run nothing.
    const answer = within(ANSWER_MS, listCommands(connection));
    // While it does so.
    const isUp = !cgroup.isFrozen() && !cgroup.isEmpty();
    return (await answer)?.length === 0 && isUp && !this.#isGone;
  }

  isCurrent(): boolean {
    return warmShapeOf(this.#prepared.record.spec, this.#host.skeleton()) === this.#shape;
  }

  held(): { memoryBytes: number; pids: number } {
    const { cgroup } = this.#prepared;
    try {
      return { memoryBytes: cgroup.readHeldBytes(), pids: cgroup.readSandbox().pids };
    } catch {
      // It ended while we looked.
      return { memoryBytes: 0, pids: 0 };
    }
  }

  get hasDied(): boolean {
    return this.#isGone;
  }

  /** From here on it is what it would be, had it been made now. */
  handOver(spec: SandboxSpec, admission: Admission | undefined): BubblewrapSandbox {
    const { records, governor } = this.#host;
    const { warm: _, ...made } = this.#prepared.record;
    const record = {
      ...made,
      createdAt: new Date().toISOString(),
      spec: { ...spec, id: this.id },
      limits: spec.limits,
    };
    // A process that is killed before this leaves a ready one, to be swept; after it, one that can be adopted.
    records.write(record);
    governor.handOver(admissionRequest(this.#host, this.id, { limits: spec.limits, admission }));
    const sandbox = new BubblewrapSandbox(this.#host, { ...this.#prepared, record });
    this.#isHandedOut = true;
    return sandbox;
  }

  async end(): Promise<void> {
    if (this.#isHandedOut) return;
    const { cgroup, monitor, uids, record, connection } = this.#prepared;
    try {
      connection.expectEnd(new HoldfastError("sandbox_ended", `sandbox ${this.id} was ended before anybody used it`));
      await dismantle(this.#host, this.id, { cgroup, monitor, uidSlot: uids.slot, diskPath: record.disk.path });
      connection.close();
    } catch (error) {
      // Its record stays, and the next sweep finds what is left.
      this.#host.records.disown(this.id, this.#host.us, { remains: true });
      const { message } = HoldfastError.from(error);
      this.#host.log.warn({ sandbox: this.id, error: message }, "a ready sandbox could not be removed whole");
    }
  }
}

/** Undefined if it fails, or takes longer: by our clock, and by what we got round to read while we were busy with others. */
function within<T>(limitMs: number, work: Promise<T>): Promise<T | undefined> {
  return new Promise((resolve) => {
    const giveUp = () => void nextTurn().then(() => nextTurn().then(() => resolve(undefined)));
    const timer = setTimeout(giveUp, limitMs);
    work.then(resolve, () => resolve(undefined)).finally(() => clearTimeout(timer));
  });
}
