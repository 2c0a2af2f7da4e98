/** Refusals that say where: `Dockerfile:7: HEALTHCHECK is not supported`. */
import { HoldfastError } from "@holdfast/protocol";

export interface Place {
  readonly file: string;
  readonly line: number;
}

export function dockerfileFault({ file, line }: Place, message: string, hint?: string, cause?: unknown): HoldfastError {
  return new HoldfastError("invalid_argument", `${file}:${line}: ${message}`, { hint, details: { file, line }, cause });
}
