/** What lies below a directory, in order, links not followed. */
import { isUtf8 } from "node:buffer";
import type { Stats } from "node:fs";
import { lstat, readdir, readlink } from "node:fs/promises";
import { join } from "node:path";
import { HoldfastError } from "@holdfast/protocol";
import type { IgnoreRules, RuleMatches } from "../ignore-rules.js";
import { localFault } from "./local-fault.js";

export interface FoundEntry {
  /** Relative to the top, with `/`. */
  readonly path: string;
  /** Where it lies. */
  readonly source: string;
  readonly type: "file" | "directory" | "symlink";
  readonly mode: number;
  readonly uid: number;
  readonly gid: number;
  readonly sizeBytes: number;
  readonly target?: string | undefined;
}

export interface WalkOptions {
  readonly rules: IgnoreRules;
  /** Where the directory lies below the one that the rules are for: `""` if it is that one. */
  readonly rulePath: string;
}

export interface FoundName {
  /** With place-holders in it if it is not UTF-8: good enough to be ignored by, and for nothing else. */
  readonly text: string;
  readonly isUtf8: boolean;
}

const NAMES = new TextDecoder("utf-8", { ignoreBOM: true });

function nameFrom(bytes: Uint8Array): FoundName {
  return { text: NAMES.decode(bytes), isUtf8: isUtf8(bytes) };
}

export function requireUtf8(name: FoundName, directory: string): string {
  if (name.isUtf8) return name.text;
  throw new HoldfastError("invalid_argument", `${join(directory, name.text)}: the name is not UTF-8`, {
    hint: "Rename it, or name it in the ignore file, with ? for what is no character.",
  });
}

/** Sorted by code units, as trees are. */
export async function readNames(directory: string): Promise<FoundName[]> {
  try {
    const names = await readdir(directory, { encoding: "buffer" });
    return names.map(nameFrom).sort((one, other) => (one.text < other.text ? -1 : one.text > other.text ? 1 : 0));
  } catch (error) {
    throw localFault(directory, error);
  }
}

export function entryFrom(path: string, source: string, stats: Stats): Omit<FoundEntry, "type" | "target"> {
  return { path, source, mode: stats.mode & 0o7777, uid: stats.uid, gid: stats.gid, sizeBytes: stats.size };
}

export async function walk(top: string, options: WalkOptions): Promise<FoundEntry[]> {
  const found: FoundEntry[] = [];
  await visit("", undefined);
  return found;

  async function visit(directory: string, above: RuleMatches | undefined): Promise<void> {
    for (const name of await readNames(join(top, directory))) {
      await look(directory, name, above);
    }
  }

  async function look(directory: string, name: FoundName, above: RuleMatches | undefined): Promise<void> {
    const { rules, rulePath } = options;
    const path = directory === "" ? name.text : `${directory}/${name.text}`;
    const matches = rules.match(rulePath === "" ? path : `${rulePath}/${path}`, above ?? matchesAbove(rules, rulePath));
    const ignored = rules.ignores(matches);
    if (ignored && (!rules.canKeepBelow || !name.isUtf8)) return;
    requireUtf8(name, join(top, directory));
    const source = join(top, path);
    const stats = await lstat(source).catch((error: unknown) => {
      throw localFault(source, error);
    });
    const entry = entryFrom(path, source, stats);
    if (stats.isDirectory()) {
      const place = found.length;
      await visit(path, matches);
      // An ignored directory is needed all the same if something below it is kept.
      if (!ignored || found.length > place) found.splice(place, 0, { ...entry, type: "directory" });
    } else if (!ignored) {
      found.push(await readLeaf(entry, stats));
    }
  }
}

function matchesAbove(rules: IgnoreRules, rulePath: string): RuleMatches | undefined {
  let matches: RuleMatches | undefined;
  const names = rulePath === "" ? [] : rulePath.split("/");
  for (const index of names.keys()) matches = rules.match(names.slice(0, index + 1).join("/"), matches);
  return matches;
}

async function readLeaf(entry: Omit<FoundEntry, "type" | "target">, stats: Stats): Promise<FoundEntry> {
  if (stats.isFile()) return { ...entry, type: "file" };
  if (stats.isSymbolicLink()) {
    const target = await readlink(entry.source, { encoding: "buffer" }).catch((error: unknown) => {
      throw localFault(entry.source, error);
    });
    return { ...entry, type: "symlink", mode: 0o777, target: requireUtf8(nameFrom(target), entry.source) };
  }
  throw new HoldfastError("invalid_argument", `${entry.source} is ${kindOf(stats)}, which an image cannot be given`, {
    details: { path: entry.source },
    hint: "Only files, directories and links can be added. Name it in the ignore file to leave it out.",
  });
}

export function kindOf(stats: Stats): string {
  if (stats.isSocket()) return "a socket";
  if (stats.isFIFO()) return "a named pipe";
  if (stats.isBlockDevice() || stats.isCharacterDevice()) return "a device";
  return stats.isDirectory() ? "a directory" : "not a file";
}
