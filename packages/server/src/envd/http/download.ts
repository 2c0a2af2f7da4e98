/** GET and HEAD /files: the bytes of one file. */
import type { IncomingMessage, ServerResponse } from "node:http";
import { pipeline, type Readable } from "node:stream";
import { createGzip } from "node:zlib";
import type { FileEntry, SandboxFiles } from "@holdfast/engine";
import { checkPathOrHome } from "../paths.js";
import { checkUserName } from "../users.js";
import { acceptsIdentity, type ContentCoding, chooseCoding } from "./accept-encoding.js";
import { type ByteRange, parseRange } from "./byte-range.js";
import { contentDisposition, lastModified, mediaTypeOf } from "./file-headers.js";
import type { FileQuery } from "./query.js";

/** Speed over size: whoever wants the last percent compresses inside. */
const GZIP_LEVEL = 1;
const GZIP_CHUNK_BYTES = 64 * 1024;

interface Wanted {
  readonly path: string;
  readonly options: { readonly user?: string };
}

function wantedOf({ path, username }: FileQuery): Wanted {
  const user = checkUserName(username);
  // An empty path is the home directory, which is then refused for being one.
  return { path: checkPathOrHome("path", path ?? ""), options: user === undefined ? {} : { user } };
}

/** What only HTTP knows to be wrong. */
class DownloadRefusal extends Error {
  readonly statusCode: number;

  constructor(statusCode: number, message: string) {
    super(message);
    this.statusCode = statusCode;
  }
}

function codingFor(request: IncomingMessage): ContentCoding {
  const { range, "if-modified-since": since, "accept-encoding": accepted } = request.headers;
  const coding = range === undefined && since === undefined ? chooseCoding(accepted) : undefined;
  if (coding !== undefined) return coding;
  if ((range !== undefined || since !== undefined) && acceptsIdentity(accepted)) return "identity";
  throw new DownloadRefusal(406, "no acceptable encoding found, supported: [gzip identity]");
}

async function look(files: SandboxFiles, { path, options }: Wanted): Promise<FileEntry> {
  const { entry, content } = await files.read(path, { ...options, length: 0 });
  content.destroy();
  return entry;
}

function describe(response: ServerResponse, entry: FileEntry, coding: ContentCoding): void {
  response.setHeader("Vary", "Accept-Encoding");
  response.setHeader("Content-Type", mediaTypeOf(entry.name));
  response.setHeader("Content-Disposition", contentDisposition(entry.name));
  response.setHeader("Last-Modified", lastModified(entry).toUTCString());
  response.setHeader("X-Content-Type-Options", "nosniff");
  if (coding === "gzip") response.setHeader("Content-Encoding", "gzip");
  else response.setHeader("Accept-Ranges", "bytes");
}

/** Exactly so many bytes if they are announced: a file that grows meanwhile is cut, one that shrinks breaks the answer. */
function send(content: Readable, response: ServerResponse, announcedBytes: number | undefined): Promise<void> {
  return new Promise((resolve) => {
    let left = announcedBytes ?? Number.POSITIVE_INFINITY;
    const finish = () => {
      if (announcedBytes !== undefined && left > 0) response.socket?.destroy();
      else response.end();
    };
    content.on("data", (chunk: Buffer) => {
      const piece = chunk.length > left ? chunk.subarray(0, left) : chunk;
      left -= piece.length;
      if (piece.length > 0 && !response.write(piece)) content.pause();
      if (left === 0) {
        content.destroy();
        finish();
      }
    });
    content.once("end", finish);
    content.once("error", () => response.socket?.destroy());
    response.on("drain", () => content.resume());
    response.once("close", () => {
      content.destroy();
      resolve();
    });
    if (left === 0) {
      content.destroy();
      finish();
    }
  });
}

function notModified(request: IncomingMessage, entry: FileEntry): boolean {
  const since = Date.parse(request.headers["if-modified-since"] ?? "");
  return lastModified(entry).getTime() <= since;
}

/** A range counts only if the file is still the one the client has the rest of. */
function rangeFor(request: IncomingMessage, entry: FileEntry): ByteRange | "unsatisfiable" | undefined {
  const condition = request.headers["if-range"];
  if (condition !== undefined && condition !== lastModified(entry).toUTCString()) return undefined;
  return parseRange(request.headers.range, entry.sizeBytes);
}

async function sendWhole(
  files: SandboxFiles,
  wanted: Wanted,
  response: ServerResponse,
  coding: ContentCoding,
): Promise<void> {
  const { entry, content } = await files.read(wanted.path, wanted.options);
  if (response.destroyed) {
    content.destroy();
    return;
  }
  describe(response, entry, coding);
  if (coding === "gzip") {
    const packed = createGzip({ level: GZIP_LEVEL, chunkSize: GZIP_CHUNK_BYTES });
    pipeline(content, packed, () => {}); // An error of the file ends the packer with the same error.
    await send(packed, response, undefined);
    return;
  }
  // The kernel's own files (/proc) claim to be empty and are not; for an empty one Node itself says that it is.
  const announced = entry.sizeBytes === 0 ? undefined : entry.sizeBytes;
  if (announced !== undefined) response.setHeader("Content-Length", announced);
  await send(content, response, announced);
}

async function sendRange(
  files: SandboxFiles,
  wanted: Wanted,
  response: ServerResponse,
  range: ByteRange,
  sizeBytes: number,
): Promise<void> {
  const { entry, content } = await files.read(wanted.path, { ...wanted.options, ...range });
  if (response.destroyed) {
    content.destroy();
    return;
  }
  describe(response, entry, "identity");
  response.statusCode = 206;
  response.setHeader("Content-Range", `bytes ${range.offset}-${range.offset + range.length - 1}/${sizeBytes}`);
  response.setHeader("Content-Length", range.length);
  await send(content, response, range.length);
}

/** Resolves when the answer is over. Throws only as long as nothing of it has been sent. */
export async function serveDownload(
  files: SandboxFiles,
  query: FileQuery,
  request: IncomingMessage,
  response: ServerResponse,
): Promise<void> {
  const coding = codingFor(request);
  const wanted = wantedOf(query);
  const isHead = request.method === "HEAD";
  const { range: rangeHeader, "if-modified-since": since } = request.headers;
  if (!isHead && rangeHeader === undefined && since === undefined) {
    await sendWhole(files, wanted, response, coding);
    return;
  }
  const entry = await look(files, wanted);
  const range = rangeFor(request, entry);
  if (since !== undefined && rangeHeader === undefined && notModified(request, entry)) {
    describe(response, entry, coding);
    response.writeHead(304).end();
    return;
  }
  if (range === "unsatisfiable") {
    response.setHeader("Content-Range", `bytes */${entry.sizeBytes}`);
    throw new DownloadRefusal(416, "invalid range: beyond the end of the file");
  }
  if (isHead) {
    describe(response, entry, coding);
    if (coding === "identity") response.setHeader("Content-Length", range?.length ?? entry.sizeBytes);
    response.statusCode = range === undefined ? 200 : 206;
    response.end();
    return;
  }
  if (range === undefined) await sendWhole(files, wanted, response, coding);
  else await sendRange(files, wanted, response, range, entry.sizeBytes);
}
