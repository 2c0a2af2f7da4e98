import { lostOutputError } from "../text/lost-output.js";

/** What goes on until somebody has seen enough: Ctrl-C, SIGTERM, or a reader that goes away (`| head`). */
export function untilInterrupted(): { readonly signal: AbortSignal; release(): void } {
  const controller = new AbortController();
  const stop = (): void => controller.abort();
  process.once("SIGINT", stop);
  process.once("SIGTERM", stop);
  const onLost = (error: NodeJS.ErrnoException): void => controller.abort(lostOutputError(error));
  process.stdout.once("error", onLost);
  return {
    signal: controller.signal,
    release: () => {
      process.off("SIGINT", stop);
      process.off("SIGTERM", stop);
      process.stdout.off("error", onLost);
    },
  };
}
