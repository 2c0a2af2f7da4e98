/** A build that nobody in this process has asked for, or that has ended. */
import { HoldfastError } from "@holdfast/protocol";
import type { Build, BuildId, BuildInfo, BuildLogEntry, ImageRecord, ImageStore } from "../types.js";
import { type BuildFiles, hasEnded } from "./build-files.js";
import { buildError, imageOf, lostFailure, readBuildLog, readInfo, waitForEnd } from "./build-reader.js";

export class BuildOnDisk implements Build {
  readonly id: BuildId;
  readonly #files: BuildFiles;
  readonly #store: ImageStore;
  #image: Promise<ImageRecord> | undefined;

  constructor(files: BuildFiles, store: ImageStore, id: BuildId) {
    this.id = id;
    this.#files = files;
    this.#store = store;
  }

  info(): BuildInfo {
    const info = readInfo(this.#files, this.id);
    if (info === undefined) throw new HoldfastError("build_not_found", `there is no build ${this.id} any more`);
    return info;
  }

  log(options: { readonly from?: number; readonly signal?: AbortSignal } = {}): AsyncIterable<BuildLogEntry> {
    return readBuildLog(this.#files, this.id, { from: options.from ?? 0, signal: options.signal });
  }

  get image(): Promise<ImageRecord> {
    if (this.#image === undefined) {
      this.#image = this.#wait();
      // Whoever only looks at the log does not have to look at this.
      this.#image.catch(() => undefined);
    }
    return this.#image;
  }

  /** All who wait for the build by this id give up. */
  async cancel(by: string): Promise<void> {
    const info = this.info();
    if (hasEnded(info)) return;
    this.#files.requestCancel(this.id, by);
    await waitForEnd(this.#files, this.id);
  }

  async #wait(): Promise<ImageRecord> {
    const ended = await waitForEnd(this.#files, this.id);
    if (ended === "gone") {
      const info = this.info();
      throw buildError({ ...info, state: "failed", failure: info.failure ?? lostFailure(info) });
    }
    if (ended.info.state !== "ready") throw buildError(ended.info);
    return imageOf(this.#store, ended.info);
  }
}
