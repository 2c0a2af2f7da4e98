/** Starts what a sandbox's image is there to run, as a command that the server keeps account of. */
import { withLinkedSignal } from "@holdfast/engine";
import { startImage } from "@holdfast/images";
import { HoldfastError } from "@holdfast/protocol";
import type { StartCommand } from "@holdfast/recipe";
import type { LiveSandbox } from "./types.js";

export interface ImageStart {
  readonly start: StartCommand;
  /** Whether something listened when it was built and had been waited for; undefined if nobody knows. */
  readonly listens: boolean | undefined;
}

/** `closing`: the server is being stopped, and waits for nothing that may take minutes. */
export async function startCommandIn(
  live: LiveSandbox,
  { start, listens }: ImageStart,
  closing: AbortSignal,
): Promise<void> {
  try {
    await withLinkedSignal([live.gone, closing], (signal) =>
      startImage(live.sandbox, start, {
        signal,
        launch: (spec) => live.commands.start(spec),
        // What never listens gives no sign to wait for.
        untilListening: listens === false ? "never" : true,
      }),
    );
  } catch (reason) {
    const error = HoldfastError.from(reason);
    if (error.code === "canceled" && live.gone.aborted) {
      throw new HoldfastError("sandbox_ended", "it was ended or paused before what it is there to run was ready", {
        cause: error,
      });
    }
    if (error.code !== "build_failed") throw error;
    throw new HoldfastError("command_failed_to_start", error.message, {
      hint: error.hint,
      details: error.details,
      cause: error,
    });
  }
}
