/**
 * How much of each command's output somebody has been given. A reader that says no offset goes on from there, also after
 * this process was killed: each advance is one short write into a file, which the kernel keeps when we die.
 *
 * A fixed number of slots, found by the command's id: a command that is so old that a newer one took its slot is read
 * from its first kept byte again.
 */
import { closeSync, ftruncateSync, openSync, readSync, rmSync, writeSync } from "node:fs";
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
    writeSync(this.#open(), this.#slot, 0, SLOT_BYTES, (commandId % SLOTS) * SLOT_BYTES);
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
    this.close();
    rmSync(this.#path, { force: true });
  }

  #read(commandId: number): OutputOffsets | undefined {
    const length = readSync(this.#open(), this.#slot, 0, SLOT_BYTES, (commandId % SLOTS) * SLOT_BYTES);
    if (length < SLOT_BYTES || this.#slot.readDoubleLE(0) !== commandId) return undefined;
    return { stdout: this.#slot.readDoubleLE(8), stderr: this.#slot.readDoubleLE(16) };
  }

  #open(): number {
    if (this.#fd === undefined) {
      this.#fd = openSync(this.#path, "a+", 0o600);
      closeSync(this.#fd);
      // "a+" made it; writing in place needs "r+".
      this.#fd = openSync(this.#path, "r+");
      ftruncateSync(this.#fd, SLOTS * SLOT_BYTES);
    }
    return this.#fd;
  }
}
