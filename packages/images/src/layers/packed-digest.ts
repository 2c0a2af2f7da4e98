/**
 * What layers come to when they are packed. An imported layer's `diffId` is that of the archive it came in, which we do not
 * have any more: packed again, the same files make other bytes. Layers never change, so it is found out once and kept. Only
 * ever a saving of work: whoever finds nothing here packs the layer.
 */
import { existsSync, mkdirSync, readdirSync, readFileSync, renameSync, rmSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import type { LayerId } from "@holdfast/engine";
import type { ImagesContext } from "../context.js";
import { isTagOfLiving, tagOfUniqueName, uniqueName } from "../store/process-tag.js";
import { isDigest } from "./digest.js";
import { type Packed, packChunks } from "./pack-layer.js";
import { type OnProgress, ProgressCounter } from "./progress.js";
import { drain } from "./pump.js";

type StoreContext = Pick<ImagesContext, "store" | "engine">;

const directoryOf = ({ store }: StoreContext): string => join(store.directory, "packed");

export function knownPacked(context: StoreContext, id: LayerId): Packed | undefined {
  try {
    const text = readFileSync(join(directoryOf(context), `${id}.json`), "utf8");
    const { diffId, sizeBytes } = JSON.parse(text) as Record<string, unknown>;
    return isDigest(diffId) && Number.isSafeInteger(sizeBytes) ? { diffId, sizeBytes: sizeBytes as number } : undefined;
  } catch {
    // Not there, or not readable: the same as not known.
    return undefined;
  }
}

/** Also as the layer's `diffId`, if it has none yet. */
export function rememberPacked(context: StoreContext, id: LayerId, { diffId, sizeBytes }: Packed): void {
  const { store } = context;
  const directory = directoryOf(context);
  const known = knownPacked(context, id);
  if (known?.diffId !== diffId) {
    try {
      mkdirSync(directory, { recursive: true, mode: 0o700 });
      forgetGone(context);
      const fresh = join(directory, `${uniqueName()}.tmp`);
      writeFileSync(fresh, JSON.stringify({ diffId, sizeBytes }), { mode: 0o600 });
      renameSync(fresh, join(directory, `${id}.json`));
    } catch {
      // A disk that is full now is the trouble of those who must write.
    }
  }
  const record = store.layer(id);
  if (record?.diffId === null) store.putLayer({ ...record, diffId });
}

function forgetGone(context: StoreContext): void {
  const directory = directoryOf(context);
  if (!existsSync(directory)) return;
  for (const name of readdirSync(directory)) {
    const [, base = "", ending] = /^(.*)\.(json|tmp)$/.exec(name) ?? [];
    const isKept =
      ending === "tmp"
        ? isTagOfLiving(tagOfUniqueName(base) ?? "")
        : /^l[a-z0-9]{20}$/.test(base) && context.engine.layers.has(base as LayerId);
    if (!isKept) rmSync(join(directory, name), { force: true });
  }
}

/** Known already, or found out by packing it to nowhere. */
export async function packedDigest(
  context: ImagesContext,
  id: LayerId,
  options: { readonly signal?: AbortSignal | undefined; readonly onProgress?: OnProgress | undefined } = {},
): Promise<Packed> {
  const known = knownPacked(context, id);
  if (known !== undefined) return known;
  const counter = new ProgressCounter({ onProgress: options.onProgress, phase: "pack", what: id, totalBytes: null });
  const { chunks, result } = packChunks(context, id, options);
  await drain(chunks, (chunk) => counter.add(chunk.length));
  const packed = await result;
  counter.end();
  rememberPacked(context, id, packed);
  return packed;
}
