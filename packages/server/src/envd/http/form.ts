/** The files of a form. Each is written as it comes in, one after the other. */
import type { IncomingHttpHeaders } from "node:http";
import { pipeline, type Readable } from "node:stream";
import { HoldfastError, invalidArgument } from "@holdfast/protocol";
import createParser, { type Busboy } from "busboy";

const FILE_FIELD = "file";
const BUFFER_BYTES = 256 * 1024;
/** A part without a file name comes in one piece; with one it streams, however large. */
const MAX_FIELD_BYTES = 8 * 1024 * 1024;
const MAX_PARTS = 10_000;

export interface FormTarget<Written> {
  /** Where the file goes, whatever its part is called. */
  readonly path: string | undefined;
  write(path: string, content: Readable | Buffer): Promise<Written>;
}

function createFormParser(headers: IncomingHttpHeaders): Busboy {
  try {
    return createParser({
      headers,
      preservePath: true,
      defParamCharset: "utf8",
      // Byte for byte: a part without a file name is content too, and need not be text.
      defCharset: "latin1",
      highWaterMark: BUFFER_BYTES,
      fileHwm: BUFFER_BYTES,
      limits: { fieldSize: MAX_FIELD_BYTES, fieldNameSize: 1024, parts: MAX_PARTS, headerPairs: 100 },
    });
  } catch (error) {
    throw formError(error);
  }
}

function formError(error: unknown): HoldfastError {
  const why = error instanceof Error ? error.message : String(error);
  return new HoldfastError("invalid_argument", `body: expected multipart/form-data, got something else (${why})`, {
    cause: error,
  });
}

/** The parser's own complaints have no code; what comes from the body below it has, or is ours. */
function asFormError(error: Error): Error {
  return error instanceof HoldfastError || "code" in error ? error : formError(error);
}

export function takeForm<Written>(
  body: Readable,
  headers: IncomingHttpHeaders,
  { path, write }: FormTarget<Written>,
): Promise<Written[]> {
  const parser = createFormParser(headers);
  return new Promise((resolve, reject) => {
    const writes: Promise<Written>[] = [];
    const targets = new Set<string>();
    let failed = false;
    const fail = (error: Error) => {
      if (failed) return;
      failed = true;
      parser.destroy(error);
      // Nothing is under way any more when the caller hears of it.
      void Promise.allSettled(writes).then(() => reject(error));
    };
    const take = (name: string | undefined, content: Readable | Buffer) => {
      const target = path ?? name ?? "";
      if (target === "") {
        fail(invalidArgument("path", "nothing", "a path in the query, or a file name in the part"));
      } else if (targets.has(target)) {
        const message = `you cannot upload multiple files to the same path '${target}', only the first specified file was uploaded`;
        fail(new HoldfastError("invalid_argument", message, { details: { field: "path" } }));
      } else {
        targets.add(target);
        const writing = write(target, content);
        writes.push(writing);
        writing.catch(fail);
      }
    };
    parser.on("file", (field, content, { filename }) => {
      // Its failure reaches the write that reads it, or nobody.
      content.on("error", () => {});
      if (field !== FILE_FIELD || failed) content.resume();
      else take(filename, content);
    });
    parser.on("field", (field, value, { valueTruncated }) => {
      if (field !== FILE_FIELD || failed) return;
      if (valueTruncated) {
        const message = `file: expected at most ${MAX_FIELD_BYTES} bytes in a part without a file name, got more`;
        fail(new HoldfastError("request_too_large", message, { hint: "Give the part a file name." }));
      } else take(undefined, Buffer.from(value, "latin1"));
    });
    parser.on("partsLimit", () => {
      fail(new HoldfastError("request_too_large", `body: expected at most ${MAX_PARTS} parts, got more`));
    });
    pipeline(body, parser, (error) => {
      if (error) fail(asFormError(error));
      else if (writes.length === 0) fail(invalidArgument("file", "no such part", "at least one part of this name"));
      else void Promise.all(writes).then(resolve, fail);
    });
  });
}
