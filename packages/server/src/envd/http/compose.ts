/** POST /files/compose: several files become one, in order. The sources stay. */
import { Readable } from "node:stream";
import type { SandboxFiles } from "@holdfast/engine";
import { z } from "zod";
import { validate } from "../../http/validate.js";
import { checkPath } from "../paths.js";
import { checkUserName } from "../users.js";
import { type WrittenFile, writtenFile } from "./upload.js";

const MAX_SOURCES = 1000;
const composeBody = z.strictObject({
  source_paths: z.array(z.string()).min(1).max(MAX_SOURCES),
  destination: z.string(),
  username: z.string().optional(),
});

async function* concatenate(
  files: SandboxFiles,
  sources: readonly string[],
  options: { user?: string },
): AsyncGenerator<Buffer> {
  for (const source of sources) {
    const { content } = await files.read(source, options);
    yield* content as AsyncIterable<Buffer>;
  }
}

export async function composeFiles(files: SandboxFiles, body: unknown): Promise<WrittenFile> {
  const { source_paths: sources, destination, username } = validate(composeBody, body, "body");
  const user = checkUserName(username);
  const options = user === undefined ? {} : { user };
  for (const [index, source] of sources.entries()) checkPath(`source_paths[${index}]`, source);
  checkPath("destination", destination);
  const content = Readable.from(concatenate(files, sources, options), { objectMode: false });
  return writtenFile(await files.write(destination, content, options));
}
