/**
 * Watches how full a sandbox's disk is while commands run in it. The kernel refuses writes by itself (btrfs) but counts no
 * refusals; so whoever wants to say "the disk was full" has to have looked.
 */
import type { Disk, Pool } from "./pool.js";

const LOOK_MS = 500;
/** Above this share of its limit a disk's count is brought up to date before a command is measured by it. */
const NEARLY_FULL = 0.9;

export class DiskGauge {
  readonly #pool: Pool;
  readonly #disk: Disk;
  readonly #limitBytes: () => number;
  readonly #onLook: (usedBytes: number) => void;
  readonly #watches = new Set<DiskWatch>();
  #timer: NodeJS.Timeout | undefined;
  #lastUsedBytes = 0;

  constructor(pool: Pool, disk: Disk, limitBytes: () => number, onLook: (usedBytes: number) => void) {
    this.#pool = pool;
    this.#disk = disk;
    this.#limitBytes = limitBytes;
    this.#onLook = onLook;
  }

  /** Null where it cannot be told, for instance because the disk is being removed. */
  async read(): Promise<number | null> {
    const used = await this.#pool.usedBytes(this.#disk).catch(() => null);
    if (used !== null) this.#lastUsedBytes = used;
    return used;
  }

  /** As of the last look: not up to date, and free. */
  get lastUsedBytes(): number {
    return this.#lastUsedBytes;
  }

  /** Follows one command; `finish` says what was seen. */
  async watch(): Promise<DiskWatch> {
    let before = await this.read();
    if (before !== null && before > this.#limitBytes() * NEARLY_FULL) {
      await this.#pool.settle(this.#disk).catch(() => {});
      before = await this.read();
    }
    const watch = new DiskWatch(before, this, () => this.#remove(watch));
    this.#watches.add(watch);
    this.#timer ??= this.#startLooking();
    return watch;
  }

  stop(): void {
    clearInterval(this.#timer);
    this.#timer = undefined;
  }

  #startLooking(): NodeJS.Timeout {
    const timer = setInterval(() => void this.#look(), LOOK_MS);
    timer.unref();
    return timer;
  }

  async #look(): Promise<void> {
    const used = await this.read();
    if (used === null) return;
    for (const watch of this.#watches) watch.see(used);
    this.#onLook(used);
  }

  #remove(watch: DiskWatch): void {
    this.#watches.delete(watch);
    if (this.#watches.size === 0) this.stop();
  }
}

export class DiskWatch {
  readonly usedBytesBefore: number | null;
  readonly #gauge: DiskGauge;
  readonly #onFinished: () => void;
  #peak: number | null;

  constructor(usedBytesBefore: number | null, gauge: DiskGauge, onFinished: () => void) {
    this.usedBytesBefore = usedBytesBefore;
    this.#peak = usedBytesBefore;
    this.#gauge = gauge;
    this.#onFinished = onFinished;
  }

  see(usedBytes: number): void {
    this.#peak = Math.max(this.#peak ?? 0, usedBytes);
  }

  async finish(): Promise<{ usedBytesBefore: number | null; usedBytesPeak: number | null }> {
    const used = await this.#gauge.read();
    if (used !== null) this.see(used);
    this.#onFinished();
    return { usedBytesBefore: this.usedBytesBefore, usedBytesPeak: this.#peak };
  }
}
