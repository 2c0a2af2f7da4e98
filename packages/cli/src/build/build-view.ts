/** How a build is shown while it goes on. */
import type { BaseProgress } from "@holdfast/images";
import type { StepListener } from "./step-tracker.js";

export interface BuildView extends StepListener {
  /** What goes on before the first step; undefined: nothing worth saying. */
  status(text: string | undefined): void;
  /** While the base image itself is built, once. */
  bar(progress: BaseProgress): void;
  /** What was drawn stays as it is; the terminal is as before. */
  close(): void;
}
