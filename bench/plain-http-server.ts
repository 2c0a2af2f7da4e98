/** Takes in bytes and gives out bytes, over Node's HTTP and nothing else: nothing built on it can be faster. */
import { createServer } from "node:http";
import { pipeline, Readable } from "node:stream";

const CHUNK = Buffer.alloc(64 * 1024, "holdfast ");

function* chunks(bytes: number): Generator<Buffer> {
  for (let left = bytes; left > 0; left -= CHUNK.length) yield CHUNK.subarray(0, Math.min(left, CHUNK.length));
}

const server = createServer((request, response) => {
  if (request.method === "GET") {
    const bytes = Number(request.headers["x-bytes"]);
    response.setHeader("Content-Length", bytes);
    pipeline(Readable.from(chunks(bytes)), response, () => {});
    return;
  }
  request.resume().on("end", () => response.end());
});
server.listen(0, "127.0.0.1", () => process.send?.(server.address()));
