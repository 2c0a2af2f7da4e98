/** POST /files: one file as it is, or any number of them in a form. */
import type { IncomingMessage } from "node:http";
import { basename } from "node:path/posix";
import { pipeline, type Readable } from "node:stream";
import { createGunzip } from "node:zlib";
import type { FileEntry, SandboxFiles } from "@holdfast/engine";
import { HoldfastError, invalidArgument } from "@holdfast/protocol";
import { checkPath } from "../paths.js";
import { checkUserName } from "../users.js";
import { takeForm } from "./form.js";
import { attributesFromHeaders, metadataOf } from "./metadata.js";
import type { FileQuery } from "./query.js";
import { bodyOf } from "./request-body.js";

const UNPACKED_CHUNK_BYTES = 64 * 1024;

export interface WrittenFile {
  readonly path: string;
  readonly name: string;
  readonly type: "file";
  readonly metadata?: Readonly<Record<string, string>>;
}

export function writtenFile(entry: FileEntry): WrittenFile {
  const metadata = metadataOf(entry);
  return {
    path: entry.path,
    name: entry.name === "" ? basename(entry.path) : entry.name,
    type: "file",
    ...(metadata === undefined ? {} : { metadata }),
  };
}

/** What it unpacks to streams on to the disk of the sandbox, whose limit is the bound. */
function unpack(body: Readable, encoding: string | undefined): Readable {
  const coding = encoding?.trim().toLowerCase();
  if (coding === undefined || coding === "" || coding === "identity") return body;
  if (coding !== "gzip" && coding !== "x-gzip") throw invalidArgument("Content-Encoding", encoding, "gzip or identity");
  const unpacked = createGunzip({ chunkSize: UNPACKED_CHUNK_BYTES });
  pipeline(body, unpacked, () => {}); // Whichever fails, the reader of the end sees it.
  return unpacked;
}

/** What the libraries throw about a body that is not what it claims to be. */
function asRefusal(error: unknown): unknown {
  if (error instanceof HoldfastError || !(error instanceof Error)) return error;
  const { code } = error as NodeJS.ErrnoException;
  if (code?.startsWith("Z_") === true) {
    return new HoldfastError("invalid_argument", `body: expected gzip, got something else (${error.message})`, {
      cause: error,
    });
  }
  return error;
}

export async function takeUpload(
  files: SandboxFiles,
  query: FileQuery,
  request: IncomingMessage,
): Promise<WrittenFile[]> {
  const attributes = attributesFromHeaders(request.headers);
  const { path } = query;
  const user = checkUserName(query.username);
  const options = { attributes, ...(user === undefined ? {} : { user }) };
  const write = async (target: string, content: Readable | Buffer) =>
    writtenFile(await files.write(checkPath("path", target), content, options));
  const type = (request.headers["content-type"] ?? "").split(";", 1)[0]?.trim().toLowerCase();
  if (type !== "application/octet-stream" && type !== "multipart/form-data") {
    throw invalidArgument("Content-Type", type, "multipart/form-data or application/octet-stream");
  }
  if (type === "application/octet-stream" && (path === undefined || path === "")) {
    throw invalidArgument("path", path ?? "nothing", "the path of the file, in the query");
  }
  const body = bodyOf(request);
  try {
    const content = unpack(body, request.headers["content-encoding"]);
    if (type === "multipart/form-data") {
      return await takeForm(content, request.headers, { path: path === "" ? undefined : path, write });
    }
    return [await write(path ?? "", content)];
  } catch (error) {
    throw asRefusal(error);
  } finally {
    body.destroy();
  }
}
