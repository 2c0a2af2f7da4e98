/** What the builds of others are worth to somebody who wants the same image with settings of their own. */
import type { CommandCause } from "@holdfast/protocol";
import type { BuildFailure } from "../types.js";
import type { BuildSettings } from "./build-settings.js";
import { FINALIZE_STEP } from "./plan.js";

const FOR_WANT: readonly (CommandCause["kind"] | undefined)[] = ["out_of_memory", "out_of_disk", "timed_out"];

/** Of all that steps can notice. */
export function hasNoLess(settings: BuildSettings, than: BuildSettings): boolean {
  return (
    settings.network === than.network &&
    settings.memoryBytes >= than.memoryBytes &&
    settings.diskBytes >= than.diskBytes &&
    settings.cpuMillis >= than.cpuMillis &&
    settings.timeoutMs >= than.timeoutMs
  );
}

/** Whether a build that has failed like this has failed for want of something that it would have with these. */
export function wouldHelp(
  settings: BuildSettings,
  failed: { readonly settings: BuildSettings; readonly failure: Pick<BuildFailure, "step" | "cause"> | null },
): boolean {
  const { settings: had, failure } = failed;
  // Whatever went wrong there, it may be because of these.
  if (settings.network && !had.network) return true;
  if (failure?.step === FINALIZE_STEP && settings.floorBytes > had.floorBytes) return true;
  if (!FOR_WANT.includes(failure?.cause?.kind)) return false;
  return (
    settings.memoryBytes > had.memoryBytes ||
    settings.diskBytes > had.diskBytes ||
    settings.timeoutMs > had.timeoutMs ||
    settings.cpuMillis > had.cpuMillis ||
    (settings.retryOnOom && !had.retryOnOom)
  );
}
