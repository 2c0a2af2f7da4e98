/** A build that this process writes down: what is known of it, its log, and the sign that somebody works on it. */
import { HoldfastError } from "@holdfast/protocol";
import type { BuildId, BuildInfo, BuildLogEntry, BuildStepStatus } from "../types.js";
import { type BuildFiles, HEARTBEAT_MS, hasEnded, type StoredBuild } from "./build-files.js";
import { BuildLog } from "./build-log.js";
import type { BuildOrder } from "./build-order.js";

/** How often a wish of another process is looked for. */
const LOOK_MS = 250;

export type JournalOrder = Pick<BuildOrder, "settings" | "forceFrom">;

export class Journal {
  readonly id: BuildId;
  readonly #files: BuildFiles;
  readonly #order: JournalOrder;
  readonly #log: BuildLog;
  readonly #timer: NodeJS.Timeout;
  #info: BuildInfo;
  #follows: readonly BuildId[] = [];
  #beatAtMs = Date.now();
  #closed = false;
  #onCancel: ((by: string) => void) | undefined;
  #onLost: (() => void) | undefined;

  /** Undefined if there is a build of that id. */
  static create(files: BuildFiles, info: BuildInfo, order: JournalOrder): Journal | undefined {
    const journal = new Journal(files, info, order);
    let isCreated = false;
    try {
      isCreated = files.create(info.id, journal.#stored());
    } finally {
      if (!isCreated) clearInterval(journal.#timer);
    }
    return isCreated ? journal : undefined;
  }

  private constructor(files: BuildFiles, info: BuildInfo, order: JournalOrder) {
    this.id = info.id;
    this.#files = files;
    this.#order = order;
    this.#info = info;
    this.#log = new BuildLog(files.pathOf(info.id), { onFlush: () => files.wakes.wake(info.id) });
    this.#timer = setInterval(() => this.#look(), LOOK_MS);
    this.#timer.unref();
  }

  get info(): BuildInfo {
    return this.#info;
  }

  /** As it is, or would be if there were room for it. */
  get stored(): StoredBuild {
    return this.#stored();
  }

  get follows(): readonly BuildId[] {
    return this.#follows;
  }

  /** Another process wants the build to end. */
  onCancel(callback: (by: string) => void): void {
    this.#onCancel = callback;
  }

  /** This process was taken for dead, and another may be at work in its place. */
  onLost(callback: () => void): void {
    this.#onLost = callback;
  }

  update(change: Partial<BuildInfo>): void {
    if (this.#closed) return;
    this.#info = { ...this.#info, ...change };
    this.#write();
  }

  updateStep(step: string, change: Partial<BuildStepStatus>): void {
    this.update({
      steps: this.#info.steps.map((status) => (status.step === step ? { ...status, ...change } : status)),
    });
  }

  /** Why it failed matters more than whether there is room to write it down. */
  failStep(step: string, memoryPeakBytes: number | null): void {
    try {
      this.updateStep(step, { state: "failed", endedAt: new Date().toISOString(), memoryPeakBytes });
    } catch {
      // A full disk: whoever ends the build says so.
    }
  }

  follow(id: BuildId): void {
    if (this.#closed || id === this.id) return;
    // What was said until now stands before what the other one says.
    this.#log.flush();
    this.#follows = [...this.#follows, id];
    this.#write();
  }

  log(step: string, stream: BuildLogEntry["stream"], text: string): void {
    if (!this.#closed) this.#log.append(step, stream, text);
  }

  tailOf(step: string): BuildLogEntry[] {
    return this.#log.tailOf(step);
  }

  /**
   * The last thing that is written down: everything of the log comes before it. `release` lets go of what only the build's
   * own process may let go of.
   */
  end(change: Partial<BuildInfo> & Pick<BuildInfo, "state">, release: () => void = () => {}): void {
    if (this.#closed) return;
    this.#closed = true;
    clearInterval(this.#timer);
    this.#info = { ...this.#info, ...change, endedAt: new Date().toISOString() };
    const files = this.#files;
    // On a full disk nothing can be written; whatever can be let go of is let go of all the same.
    let failure: HoldfastError | undefined;
    const attempt = (work: () => void): void => {
      try {
        work();
      } catch (error) {
        failure ??= HoldfastError.from(error);
      }
    };
    attempt(() => this.#log.close());
    attempt(() => {
      if (files.exists(this.id) && files.buriedAtMs(this.id) === undefined) this.#write();
    });
    attempt(release);
    attempt(() => files.releaseClaims(this.id));
    attempt(() => files.releaseLease(this.id));
    files.wakes.wake(this.id);
    if (failure !== undefined) throw failure;
  }

  get hasEnded(): boolean {
    return hasEnded(this.#info);
  }

  #write(): void {
    this.#files.write(this.id, this.#stored());
  }

  #stored(): StoredBuild {
    const { settings, forceFrom } = this.#order;
    return { version: 1, info: this.#info, settings, forceFrom: forceFrom ?? null, follows: this.#follows };
  }

  #look(): void {
    if (Date.now() - this.#beatAtMs >= HEARTBEAT_MS) {
      this.#beatAtMs = Date.now();
      if (this.#files.buriedAtMs(this.id) !== undefined) {
        this.#onLost?.();
        return;
      }
      try {
        this.#files.beat(this.id);
      } catch {
        // Its directory is gone: somebody removed the state directory's content, and nobody can wait for it any more.
        this.#onLost?.();
        return;
      }
    }
    const by = this.#files.cancelRequest(this.id);
    if (by !== undefined) this.#onCancel?.(by);
  }
}
