/** An image of busybox, for servers under test: everybody may use it as `tiny`. */
import { createReadStream, mkdtempSync, rmSync } from "node:fs";
import { join } from "node:path";
import { Readable } from "node:stream";
import { Holdfast } from "@holdfast/sdk";
import { writeTinyArchive } from "../e2e/tiny-archive.js";
import { OUR_DIRECTORIES } from "./leaks.js";
import type { ServerInUse } from "./use-server.js";

export async function importTiny({ url, apiKey }: Pick<ServerInUse, "url" | "apiKey">): Promise<void> {
  const directory = mkdtempSync(OUR_DIRECTORIES);
  try {
    const path = join(directory, "tiny.tar");
    writeTinyArchive(path);
    const archive = Readable.toWeb(createReadStream(path)) as ReadableStream<Uint8Array>;
    await new Holdfast({ url, apiKey }).images.import(archive, { name: "tiny" });
  } finally {
    rmSync(directory, { recursive: true, force: true });
  }
}
