/**
 * How much of each command's output somebody has been given. A reader that says no offset goes on from there, also after
 * this process was killed: each advance is one short write into a file, which the kernel keeps when we die.
 *
 * A fixed number of slots, found by the command's id: a command that is so old that a newer one took its slot is read
 * from its first kept byte again.
 */
import { closeSync, constants, openSync, readSync, rmSync, writeSync } from "node:fs";
import type { OutputOffsets } from "@holdfast/engine";

const SLOTS = 1024;
const SLOT_BYTES = 24;
const START: OutputOffsets = { stdout: 0, stderr: 0 };

export class DeliveredOffsets {
  readonly #path: string;
  readonly #slot = Buffer.alloc(SLOT_BYTES);
  /** What the file says about commands that are being read. */
  readonly #known = new Map<number, OutputOffsets>();
  #fd: number | undefined;
  #removed = false;

  constructor(path: string) {
    this.#path = path;
  }

  get(commandId: number): OutputOffsets {
    let known = this.#known.get(commandId);
    if (known === undefined) {
      known = this.#read(commandId) ?? START;
      this.#known.set(commandId, known);
    }
    return known;
  }

  /** Never goes back: a reader that reads old output again takes nothing from the others. */
  advance(commandId: number, stream: "stdout" | "stderr", offset: number): void {
    const before = this.get(commandId);
    if (offset <= before[stream]) return;
    const after = { ...before, [stream]: offset };
    this.#known.set(commandId, after);
    this.#slot.writeDoubleLE(commandId, 0);
    this.#slot.writeDoubleLE(after.stdout, 8);
    this.#slot.writeDoubleLE(after.stderr, 16);
    try {
      const fd = this.#open();
      if (fd !== undefined) writeSync(fd, this.#slot, 0, SLOT_BYTES, (commandId % SLOTS) * SLOT_BYTES);
    } catch {
      // The disk is full, say. It is known in memory, and the next chunk tries again; no reader loses output for it.
    }
  }

  /** The command has ended: what is known about it need not stay in memory. */
  forget(commandId: number): void {
    this.#known.delete(commandId);
  }

  close(): void {
    if (this.#fd !== undefined) closeSync(this.#fd);
    this.#fd = undefined;
  }

  /** For a sandbox that is gone. */
  remove(): void {
    this.#removed = true;
    this.close();
    rmSync(this.#path, { force: true });
  }

  #read(commandId: number): OutputOffsets | undefined {
    try {
      const fd = this.#open();
      if (fd === undefined) return undefined;
      const length = readSync(fd, this.#slot, 0, SLOT_BYTES, (commandId % SLOTS) * SLOT_BYTES);
      if (length < SLOT_BYTES || this.#slot.readDoubleLE(0) !== commandId) return undefined;
    } catch {
      return undefined;
    }
    return { stdout: this.#slot.readDoubleLE(8), stderr: this.#slot.readDoubleLE(16) };
  }

  /** Undefined once it is removed: a reader that is still behind must not make it anew. */
  #open(): number | undefined {
    if (this.#removed) return undefined;
    this.#fd ??= openSync(this.#path, constants.O_RDWR | constants.O_CREAT, 0o600);
    return this.#fd;
  }
}
