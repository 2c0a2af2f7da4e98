/** `holdfast image ls`, `inspect`, `history` and `log`: nothing is changed by them. */
import { existsSync } from "node:fs";
import { join, resolve } from "node:path";
import { printable } from "@holdfast/protocol";
import { coloursFor } from "../text/colours.js";
import { note } from "../text/notes.js";
import { plainText } from "../text/plain-text.js";
import { shortSize } from "../text/sizes.js";
import { formatTable } from "../text/table.js";
import { localTime } from "../text/times.js";
import { imageTable } from "./image-table.js";
import { type ImageHostFlags, isServerNamed } from "./open-host.js";
import { withHost } from "./with-host.js";

export interface LookFlags extends ImageHostFlags {
  readonly json?: boolean;
  readonly quiet?: boolean;
}

/** Opening the engine would make a pool; where nothing was ever made there is nothing to list. */
async function wasEverUsed(flags: ImageHostFlags): Promise<boolean> {
  if (isServerNamed(flags, process.env)) return true;
  const { DEFAULT_STATE_DIRECTORY } = await import("@holdfast/engine");
  const directory = flags.stateDir ?? process.env.HOLDFAST_STATE_DIR ?? DEFAULT_STATE_DIRECTORY;
  return existsSync(join(resolve(directory), "images"));
}

export async function listImages(flags: LookFlags): Promise<void> {
  const images = (await wasEverUsed(flags)) ? await withHost(flags, (host) => host.list()) : [];
  const newestFirst = [...images].sort((one, other) => (one.createdAt < other.createdAt ? 1 : -1));
  if (flags.json === true) process.stdout.write(`${JSON.stringify(newestFirst)}\n`);
  else if (flags.quiet === true) process.stdout.write(newestFirst.map(({ id }) => `${id}\n`).join(""));
  else if (newestFirst.length > 0) {
    const width = process.stdout.isTTY ? process.stdout.columns : undefined;
    process.stdout.write(imageTable(newestFirst, { colours: coloursFor(process.stdout), now: Date.now(), width }));
  } else {
    note("there are no images; `holdfast build`, `holdfast image import` and `holdfast image pull` make some");
  }
}

export async function inspectImage(name: string, flags: LookFlags): Promise<void> {
  const info = await withHost(flags, (host) => host.get(name));
  process.stdout.write(`${JSON.stringify(info, undefined, 2)}\n`);
}

export async function imageHistory(name: string, flags: LookFlags): Promise<void> {
  const layers = await withHost(flags, (host) => host.history(name));
  if (flags.json === true) {
    process.stdout.write(`${JSON.stringify(layers)}\n`);
    return;
  }
  const { bold } = coloursFor(process.stdout);
  const rows = layers.map(({ id, sizeBytes, createdAt, from }) => [
    id,
    sizeBytes === null ? "?" : shortSize(sizeBytes),
    createdAt === null ? "?" : localTime(createdAt),
    printable(from),
  ]);
  process.stdout.write(formatTable([["LAYER", "SIZE", "MADE", "FROM"].map(bold), ...rows]));
}

export async function imageLog(name: string, flags: LookFlags): Promise<void> {
  await withHost(flags, async (host, { signal }) => {
    for await (const line of host.log(name, { signal })) {
      const text = flags.json === true ? JSON.stringify(line) : `${line.at} ${line.step} ${plainText(line.text)}`;
      process.stdout.write(`${text}\n`);
    }
  });
}
