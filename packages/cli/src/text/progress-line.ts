/** One line of a terminal that is written over and over. Where there is no terminal, nothing is shown. */

import { formatBytes } from "@holdfast/protocol";
import type { TransferProgress } from "@holdfast/sdk";
import { fit } from "./fit.js";

const EVERY_MS = 100;
const CLEAR = "\r\u001b[K";

export interface TerminalStream {
  readonly isTTY?: boolean | undefined;
  readonly columns?: number | undefined;
  write(text: string): unknown;
}

export class ProgressLine {
  readonly #stream: TerminalStream;
  #shownAt = 0;
  #isShown = false;

  constructor(stream: TerminalStream = process.stderr) {
    this.#stream = stream;
  }

  get isVisible(): boolean {
    return this.#stream.isTTY === true;
  }

  show(text: string): void {
    const now = performance.now();
    if (!this.isVisible || (this.#isShown && now - this.#shownAt < EVERY_MS)) return;
    this.#shownAt = now;
    this.#isShown = true;
    this.#stream.write(CLEAR + fit(text, (this.#stream.columns ?? 80) - 1));
  }

  clear(): void {
    if (this.#isShown) this.#stream.write(CLEAR);
    this.#isShown = false;
  }
}

const BAR_CELLS = 24;

/** `[########................] 33 %`. */
export function bar(share: number): string {
  const bounded = Math.min(1, Math.max(0, share));
  const full = Math.round(bounded * BAR_CELLS);
  return `[${"#".repeat(full)}${".".repeat(BAR_CELLS - full)}] ${String(Math.round(bounded * 100)).padStart(3)} %`;
}

/** How far an image has been moved: layers go side by side, and are told as one. */
export class TransferText {
  readonly #parts = new Map<string, TransferProgress>();
  readonly #beganAt: number;

  constructor(now = performance.now()) {
    this.#beganAt = now;
  }

  add(progress: TransferProgress): void {
    this.#parts.set(`${progress.phase} ${progress.what}`, progress);
  }

  text(now = performance.now()): string {
    const phases = new Map<string, { doneBytes: number; totalBytes: number | null }>();
    for (const { phase, doneBytes, totalBytes } of this.#parts.values()) {
      const sum = phases.get(phase) ?? { doneBytes: 0, totalBytes: 0 };
      sum.doneBytes += doneBytes;
      sum.totalBytes = sum.totalBytes === null || totalBytes === null ? null : sum.totalBytes + totalBytes;
      phases.set(phase, sum);
    }
    const seconds = (now - this.#beganAt) / 1000;
    return [...phases]
      .map(([phase, { doneBytes, totalBytes }]) => {
        const isKnown = totalBytes !== null && totalBytes >= doneBytes && totalBytes > 0;
        const far = isKnown ? `${bar(doneBytes / totalBytes)} of ${formatBytes(totalBytes)}` : formatBytes(doneBytes);
        const speed = seconds >= 1 ? `, ${formatBytes(Math.round(doneBytes / seconds))}/s` : "";
        return `${phase} ${far}${speed}`;
      })
      .join("  ");
  }
}
