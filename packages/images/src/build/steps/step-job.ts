/** What a step is given to run with, whatever its kind. */
import type { Sandbox } from "@holdfast/engine";
import type { CommandEnding } from "@holdfast/protocol";
import type { RecipeBase } from "@holdfast/recipe";
import type { BlobStore, ImageConfig } from "../../types.js";
import type { RunOptions } from "../run-command.js";
import type { FailingStep } from "../step-failure.js";

/** By number: images need not have a list of users. */
export const ROOT = "0";

export interface StepJob {
  /** Where it writes. */
  readonly sandbox: Sandbox;
  /** In force when it runs. */
  readonly config: ImageConfig;
  readonly blobs: BlobStore;
  readonly run: Pick<RunOptions, "onLine" | "signal" | "endsAtMs">;
  /** For the words of a failure. */
  readonly failing: FailingStep;
  readonly onInfo: (text: string) => void;
  /** A sandbox on what a `copy-from` copies from. */
  readonly withSource: <T>(source: RecipeBase, work: (sandbox: Sandbox) => Promise<T>) => Promise<T>;
  /** To be told of every command that ends well. */
  readonly onEnding: (ending: CommandEnding) => void;
}
