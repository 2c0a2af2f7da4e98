/** Layers on their way into files, so many at a time, while others that have arrived are unpacked. */
import type { Digest } from "@holdfast/recipe";
import { shortDigest } from "../layers/digest.js";
import { type OnProgress, ProgressCounter } from "../layers/progress.js";
import type { Descriptor } from "../oci/types.js";
import { downloadBlob } from "./download.js";
import type { RegistryClient } from "./http.js";
import { PartialFile } from "./partial-file.js";

export interface LayerDownloadsOptions {
  readonly client: RegistryClient;
  readonly repository: string;
  readonly scratchDirectory: string;
  readonly parallel: number;
  readonly signal: AbortSignal;
  /** At once, whichever layer is waited for just now. */
  readonly onFailure: (reason: unknown) => void;
  readonly onProgress: OnProgress | undefined;
}

export interface LayerDownload {
  /** It has its turn; its file is being written. */
  readonly begun: Promise<PartialFile>;
  /** The whole layer. It is what its digest says, or what it unpacks from has that digest itself. */
  readonly whole: Promise<PartialFile>;
}

export class LayerDownloads {
  readonly #options: LayerDownloadsOptions;
  readonly #started = new Map<Digest, LayerDownload>();
  readonly #files = new Set<PartialFile>();
  readonly #waiting: (() => void)[] = [];
  #running = 0;

  constructor(options: LayerDownloadsOptions) {
    this.#options = options;
  }

  /** Starts it, if nobody has. */
  get(layer: Descriptor, diffId: Digest): LayerDownload {
    let started = this.#started.get(layer.digest);
    if (started === undefined) {
      const begun = this.#inTurn(() => this.#claim(layer, diffId));
      const whole = begun.then((file) => this.#fetch(layer, file)).finally(() => this.#endTurn());
      begun.catch(() => undefined);
      whole.catch(this.#options.onFailure);
      started = { begun, whole };
      this.#started.set(layer.digest, started);
    }
    return started;
  }

  /** When the signal has been given or everything is there. `keep`: for the next one who wants the same layers. */
  async close(options: { readonly keep: boolean }): Promise<void> {
    await Promise.allSettled([...this.#started.values()].map(({ whole }) => whole));
    for (const file of this.#files) await (options.keep ? file.release() : file.remove());
  }

  /** Whoever had a turn has to end it. */
  async #inTurn<T>(work: () => Promise<T>): Promise<T> {
    if (this.#running >= this.#options.parallel) await new Promise<void>((resolve) => this.#waiting.push(resolve));
    else this.#running++;
    return work();
  }

  #endTurn(): void {
    // The next one takes our place, or nobody does.
    const next = this.#waiting.shift();
    if (next === undefined) this.#running--;
    else next();
  }

  async #claim({ digest, size }: Descriptor, diffId: Digest): Promise<PartialFile> {
    const { client, scratchDirectory, signal } = this.#options;
    client.assertNotCanceled(signal);
    const file = await PartialFile.claim(scratchDirectory, digest, {
      maxBytes: size,
      isCheckedLater: digest === diffId,
      signal,
    });
    this.#files.add(file);
    return file;
  }

  async #fetch({ digest, size }: Descriptor, file: PartialFile): Promise<PartialFile> {
    const { client, repository, signal, onProgress } = this.#options;
    const what = shortDigest(digest);
    const progress = new ProgressCounter({ onProgress, phase: "download", what, totalBytes: size });
    const blob = { repository, digest, sizeBytes: size };
    const onBytes = (bytes: number): void => progress.add(bytes - progress.doneBytes);
    await downloadBlob(client, blob, file, { signal, onBytes });
    progress.end();
    return file;
  }
}
