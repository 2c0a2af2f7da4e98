/**
 * The body of a request, as a stream that may be given up. Destroying a request destroys its connection, and with it the
 * answer that says what was wrong; destroying this leaves the request paused, and its connection whole.
 */
import type { IncomingMessage } from "node:http";
import { Readable } from "node:stream";
import { HoldfastError } from "@holdfast/protocol";

/** A chunk of the connection: more would only be put together again by whoever reads it. */
const BUFFER_BYTES = 64 * 1024;

export function bodyOf(request: IncomingMessage): Readable {
  const onData = (chunk: Buffer) => {
    if (!body.push(chunk)) request.pause();
  };
  const onEnd = () => body.push(null);
  const onBroken = () => body.destroy(new HoldfastError("canceled", "the client went away in the middle of the body"));
  const onClose = () => {
    if (!request.complete) onBroken();
  };
  let started = false;
  const body = new Readable({
    highWaterMark: BUFFER_BYTES,
    read() {
      if (!started) {
        started = true;
        request.on("data", onData).on("end", onEnd);
      }
      request.resume();
    },
    destroy(error, callback) {
      request.off("data", onData).off("end", onEnd).off("close", onClose);
      if (!request.complete) request.pause();
      callback(error);
    },
  });
  request.on("error", onBroken).on("close", onClose);
  if (request.destroyed) onClose();
  // Whoever reads it learns of the error; whoever gave it up does not want to.
  body.on("error", () => {});
  return body;
}
