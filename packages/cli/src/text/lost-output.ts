/** What we print may not arrive: a reader that has seen enough is one thing, a full disk is another. */
import { HoldfastError } from "@holdfast/protocol";

let lost: HoldfastError | undefined;

/** Undefined if a reader has gone away, which is no failure. */
export function lostOutputError(error: NodeJS.ErrnoException): HoldfastError | undefined {
  if (error.code === "EPIPE") return undefined;
  const isFull = error.code === "ENOSPC" || error.code === "EDQUOT";
  return new HoldfastError(isFull ? "no_space" : "engine_fault", `the output cannot be written: ${error.message}`, {
    cause: error,
  });
}

/** Call it once: whoever writes to stdout need not look after it then. */
export function watchOutput(): void {
  process.stdout.on("error", (error: NodeJS.ErrnoException) => {
    lost ??= lostOutputError(error);
  });
  process.stderr.on("error", () => {});
}

/** After everything was handed over: what has become of it. */
export async function outputFailure(): Promise<HoldfastError | undefined> {
  await new Promise<void>((resolve) => process.stdout.write("", () => resolve()));
  // A file is written at once, but that it could not be is only said a turn later.
  await new Promise((resolve) => setImmediate(resolve));
  return lost;
}
