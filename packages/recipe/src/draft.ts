/** An image as it was declared: a recipe in which local files are still paths. */

import type { BuilderOptions, CopyOptions, RecipeStep, StartCommand } from "./recipe.js";
import type { ExternalBase } from "./recipe-hash.js";

export interface DockerfileOptions {
  /** The directory that COPY and ADD read from. Default: the one that the Dockerfile lies in. */
  readonly context?: string | undefined;
  /** The stage to build, by name or number. Default: the last. */
  readonly target?: string | undefined;
  /** Values for its ARGs. */
  readonly args?: Readonly<Record<string, string>> | undefined;
}

export type DraftBase = ExternalBase | ({ readonly kind: "dockerfile"; readonly path: string } & DockerfileOptions);

export type LocalStep =
  | ({ readonly kind: "local-file"; readonly path: string; readonly to: string } & CopyOptions)
  | ({
      readonly kind: "local-dir";
      readonly path: string;
      readonly to: string;
      readonly ignoreFile?: string | undefined;
      readonly ignore?: readonly string[] | undefined;
    } & CopyOptions);

export type DraftStep =
  | RecipeStep
  | LocalStep
  | ({ readonly kind: "inline-file"; readonly content: Uint8Array; readonly to: string } & CopyOptions)
  | ({
      readonly kind: "copy-image";
      readonly source: Draft;
      readonly paths: readonly string[];
      readonly to: string;
    } & CopyOptions);

export interface Draft {
  readonly base: DraftBase;
  readonly steps: readonly DraftStep[];
  readonly start: StartCommand | null;
  readonly builder: BuilderOptions;
}
