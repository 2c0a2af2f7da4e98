/** What every part of this package works with. */
import type { Engine, Log } from "@holdfast/engine";
import type { RecipeBase } from "@holdfast/recipe";
import type { AuthFor } from "./registry/credentials.js";
import type { ImageRecord, ImageStore, Owner } from "./types.js";

export interface ImagesContext {
  readonly engine: Engine;
  readonly store: ImageStore;
  readonly stateDirectory: string;
  /** For temporary files, each in a directory that `openScratch` makes. */
  readonly scratchDirectory: string;
  /** `holdfast-tar`, which packs and unpacks layers on the host and copies files inside a sandbox. */
  readonly tarProgram: string;
  readonly log: Log;
}

/** Finds what a recipe starts from, or makes it: the base is built on first use, names may be pulled. */
export interface BaseResolver {
  resolve(
    base: Exclude<RecipeBase, { kind: "stage" }>,
    options: {
      readonly owner: Owner;
      /** For the build's log: progress of a download or of the base's own build. */
      readonly onLine: (text: string) => void;
      readonly signal: AbortSignal;
      readonly authFor?: AuthFor | undefined;
    },
  ): Promise<ImageRecord>;
}
