import { setFlagsFromString } from "node:v8";
import { runInNewContext } from "node:vm";

const COLLECT_EVERY_BYTES = 8 * 1024 * 1024;

type Collect = (options: { readonly type: "minor" }) => void;
let collect: Collect | undefined;

/** V8 has it in new contexts only, and only if asked for. */
function findCollect(): Collect {
  if (collect !== undefined) return collect;
  setFlagsFromString("--expose-gc");
  const found: unknown = runInNewContext("typeof gc === 'function' ? gc : undefined");
  setFlagsFromString("--no-expose-gc");
  collect = typeof found === "function" ? (found as Collect) : () => undefined;
  return collect;
}

/**
 * Node makes two buffers of every piece of an answer, and V8 sees two small objects: it would let more than 64 MiB of dead
 * ones pile up before it looks for them. Whoever receives a lot counts it here, and they go every few megabytes; that takes
 * less time than the large collections would that come otherwise.
 */
export class YoungBuffers {
  #bytes = 0;

  add(bytes: number): void {
    this.#bytes += bytes;
    if (this.#bytes < COLLECT_EVERY_BYTES) return;
    this.#bytes = 0;
    findCollect()({ type: "minor" });
  }
}
