/**
 * What a stack of layers shows at a path, without mounting it. Layers are hostile: links lead anywhere, and are followed by
 * hand so that none leads out. Opaque directories are taken for transparent (Node cannot read their mark): what lies below
 * them may be found although it is hidden, never the other way round.
 */
import { lstatSync, readlinkSync, type Stats } from "node:fs";
import { join } from "node:path";

const MOST_LINKS = 40;
const LONGEST_NAME_BYTES = 255;
const LONGEST_PATH_BYTES = 1024;

export type LayerEntry =
  | { readonly kind: "directory" }
  | { readonly kind: "link"; readonly target: string }
  | { readonly kind: "other" }
  | { readonly kind: "missing" };

/** `layers` are directories, uppermost first; none of the names may be a link on the way, or nothing is found. */
export function lookUp(layers: readonly string[], names: readonly string[]): LayerEntry {
  let visible = layers;
  for (const [depth, name] of names.entries()) {
    const path = join(...names.slice(0, depth), name);
    const below: string[] = [];
    for (const layer of visible) {
      const info = statOrNothing(join(layer, path));
      if (info === undefined) continue;
      if (info.isDirectory()) {
        below.push(layer);
        continue;
      }
      if (below.length > 0) break;
      if (depth < names.length - 1 || isWhiteout(info)) return { kind: "missing" };
      return info.isSymbolicLink() ? { kind: "link", target: readlinkSync(join(layer, path)) } : { kind: "other" };
    }
    if (below.length === 0) return { kind: "missing" };
    visible = below;
  }
  return { kind: "directory" };
}

/** Where a path leads, as names below /; undefined if it cannot be or become a directory. */
export function resolveDirectory(layers: readonly string[], path: string): string[] | undefined {
  const left = splitPath(path);
  const found: string[] = [];
  for (let links = 0; left.length > 0; ) {
    const name = left.shift() as string;
    if (name === "..") {
      found.pop();
      continue;
    }
    if (Buffer.byteLength(name) > LONGEST_NAME_BYTES) return undefined;
    if (Buffer.byteLength(join("/", ...found, name)) > LONGEST_PATH_BYTES) return undefined;
    const entry = lookUp(layers, [...found, name]);
    if (entry.kind === "other") return undefined;
    if (entry.kind !== "link") {
      found.push(name);
      continue;
    }
    if (++links > MOST_LINKS) return undefined;
    if (entry.target.startsWith("/")) found.length = 0;
    left.unshift(...splitPath(entry.target));
  }
  return found;
}

/** The first link on the way to a path, or at it; undefined if there is none. */
export function firstLink(layers: readonly string[], path: string): string | undefined {
  const names = splitPath(path);
  for (let depth = 1; depth <= names.length; depth++) {
    const entry = lookUp(layers, names.slice(0, depth));
    if (entry.kind === "link") return join("/", ...names.slice(0, depth));
    if (entry.kind !== "directory") return undefined;
  }
  return undefined;
}

const splitPath = (path: string): string[] => path.split("/").filter((name) => name !== "" && name !== ".");

function statOrNothing(path: string): Stats | undefined {
  try {
    return lstatSync(path, { throwIfNoEntry: false });
  } catch {
    // Too long, or a file where a directory would have to be.
    return undefined;
  }
}

const isWhiteout = (info: Stats): boolean => info.isCharacterDevice() && info.rdev === 0;
