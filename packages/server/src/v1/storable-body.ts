/** Bodies that are kept as files: as long as there is room for them, and some left for everybody else. */
import { statfsSync } from "node:fs";
import { formatBytes, HoldfastError } from "@holdfast/protocol";
import type { FastifyRequest } from "fastify";
import { bodyChunks } from "./raw-body.js";

const LOOK_EVERY_BYTES = 64 * 1024 * 1024;
/** Of the file system, which the server's own files are on, too. */
const RESERVED_SHARE = 0.02;

/** Refuses with `no_space` and both numbers: one whose length is known, before its first byte. */
export async function* storableBody(request: FastifyRequest, directory: string): AsyncGenerator<Buffer> {
  const announced = Number(request.headers["content-length"] ?? 0);
  requireRoom(directory, announced);
  let lookedAt = 0;
  let received = 0;
  for await (const chunk of bodyChunks(request)) {
    received += chunk.length;
    if (received - lookedAt >= LOOK_EVERY_BYTES) {
      requireRoom(directory, Math.max(0, announced - received));
      lookedAt = received;
    }
    yield chunk;
  }
}

function requireRoom(directory: string, neededBytes: number): void {
  const { bavail, bsize, blocks } = statfsSync(directory);
  const freeBytes = Math.max(0, Math.floor((bavail - blocks * RESERVED_SHARE) * bsize));
  if (neededBytes <= freeBytes && freeBytes > 0) return;
  throw new HoldfastError(
    "no_space",
    `this needs ${formatBytes(neededBytes)} (${neededBytes} bytes), and ${formatBytes(freeBytes)} (${freeBytes} bytes) of the server's disk are free for it`,
    {
      hint: "Remove images that nobody needs, or ask the operator to prune.",
      details: { neededBytes, freeBytes },
    },
  );
}
