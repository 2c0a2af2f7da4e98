/** Reads a JSON body: bounded in size, in time and in depth, whole or not at all. */
import type { Readable } from "node:stream";
import { HoldfastError, invalidArgument } from "@holdfast/protocol";

export interface JsonBodyLimits {
  readonly maxBytes: number;
  readonly timeoutMs: number;
  /** The length that the request's head speaks of, if it does: too much is refused before a byte is read. */
  readonly announcedBytes?: number | undefined;
}

/** Nobody nests deeper by intent, and what walks a value later may do so by recursion. */
const MAX_DEPTH = 64;

const QUOTE = 0x22;
const BACKSLASH = 0x5c;
const OPENING: ReadonlySet<number> = new Set([0x5b, 0x7b]);
const CLOSING: ReadonlySet<number> = new Set([0x5d, 0x7d]);

function isTooDeep(bytes: Uint8Array): boolean {
  let depth = 0;
  let inText = false;
  for (let index = 0; index < bytes.length; index += 1) {
    const byte = bytes[index] ?? 0;
    if (inText) {
      if (byte === BACKSLASH) index += 1;
      else if (byte === QUOTE) inText = false;
    } else if (byte === QUOTE) inText = true;
    else if (OPENING.has(byte)) depth += 1;
    else if (CLOSING.has(byte)) depth -= 1;
    if (depth > MAX_DEPTH) return true;
  }
  return false;
}

/** Keys that change what an object is, wherever they stand. */
function refusePrototypeKeys(key: string, value: unknown): unknown {
  if (key === "__proto__") throw invalidArgument("body", key, "no field of this name");
  if (key === "constructor" && typeof value === "object" && value !== null && Object.hasOwn(value, "prototype")) {
    throw invalidArgument("body", "constructor.prototype", "no field of this name");
  }
  return value;
}

/** An empty body is undefined: whether that will do is for the route to say. */
function parseJsonBody(bytes: Uint8Array): unknown {
  if (bytes.length === 0) return undefined;
  if (isTooDeep(bytes)) {
    throw new HoldfastError("invalid_argument", `body: expected at most ${MAX_DEPTH} levels of nesting, got more`, {
      details: { field: "body" },
    });
  }
  let text: string;
  try {
    text = new TextDecoder("utf-8", { fatal: true }).decode(bytes);
  } catch (reason) {
    throw new HoldfastError("invalid_argument", "body: expected JSON in UTF-8, got bytes that are not UTF-8", {
      details: { field: "body" },
      cause: reason,
    });
  }
  try {
    return JSON.parse(text, refusePrototypeKeys);
  } catch (reason) {
    if (reason instanceof HoldfastError) throw reason;
    throw new HoldfastError("invalid_argument", "body: expected JSON, got something that does not parse as JSON", {
      details: { field: "body" },
      cause: reason,
    });
  }
}

function tooLarge(maxBytes: number): HoldfastError {
  return new HoldfastError("request_too_large", `body: expected at most ${maxBytes} bytes, got more`, {
    details: { field: "body", maxBytes },
  });
}

function readBody(payload: Readable, limits: JsonBodyLimits): Promise<Buffer> {
  return new Promise((resolve, reject) => {
    const chunks: Buffer[] = [];
    let received = 0;
    const timer = setTimeout(() => {
      const seconds = Math.round(limits.timeoutMs / 1000);
      settle(new HoldfastError("request_too_slow", `body: expected the whole of it within ${seconds} s, got a part`));
    }, limits.timeoutMs);
    const onData = (chunk: Buffer): void => {
      received += chunk.length;
      if (received > limits.maxBytes) settle(tooLarge(limits.maxBytes));
      else chunks.push(chunk);
    };
    const onEnd = (): void => settle(undefined);
    const onBroken = (): void => settle(new HoldfastError("canceled", "the request broke off in its body"));

    function settle(failure: HoldfastError | undefined): void {
      clearTimeout(timer);
      payload.off("data", onData).off("end", onEnd).off("close", onBroken);
      if (failure === undefined) {
        payload.off("error", onBroken);
        resolve(Buffer.concat(chunks, received));
        return;
      }
      // The listener for errors stays: a connection that breaks after a refusal must not become an uncaught error.
      payload.pause();
      reject(failure);
    }

    payload.on("data", onData).on("end", onEnd).on("close", onBroken).on("error", onBroken);
  });
}

/** What comes after a refusal is not read: the caller closes the connection. */
export async function readJsonBody(payload: Readable, limits: JsonBodyLimits): Promise<unknown> {
  if ((limits.announcedBytes ?? 0) > limits.maxBytes) throw tooLarge(limits.maxBytes);
  return parseJsonBody(await readBody(payload, limits));
}
