/** Trees from values that nobody vouches for: every entry has one place, and no entry lies behind a link or a file. */
import { defined, readList, readNumber, readObject, readText, refuse } from "./fields.js";
import { readDigest, readMode } from "./parse-step.js";
import type { Tree, TreeEntry } from "./tree.js";

export const MAX_TREE_ENTRIES = 1_000_000;
const MAX_PATH_BYTES = 4096;
const MAX_NAME_BYTES = 255;
const MAX_ID = 2 ** 32 - 2;
const WRONG_PATH = /(^|\/)\.{0,2}(\/|$)/;

const EVERY_FIELD = ["path", "type", "mode", "uid", "gid"];
const FIELDS = {
  file: [...EVERY_FIELD, "sizeBytes", "digest"],
  directory: EVERY_FIELD,
  symlink: [...EVERY_FIELD, "target"],
};
const ALL_FIELDS = [...new Set(Object.values(FIELDS).flat())];

export function parseTree(value: unknown, field = ""): Tree {
  const members = readObject(value, field, ["version", "entries"]);
  if (members.get("version") !== 1) throw refuse(members.at("version"), members.get("version"), "1");
  const entries = readList(members.get("entries"), members.at("entries"), parseEntry, {
    maxItems: MAX_TREE_ENTRIES,
    mayBeEmpty: true,
  });
  let previous: string | undefined;
  for (const [index, { path, type }] of entries.entries()) {
    const at = `${members.at("entries")}[${index}].path`;
    if (path === "" && (entries.length > 1 || type !== "file")) {
      throw refuse(at, path, "a path that is not empty, unless the tree is one single file");
    }
    if (previous !== undefined && path <= previous) throw refuse(at, path, "paths in order, each of them once");
    previous = path;
  }
  requireDirectories(entries, members.at("entries"));
  return { version: 1, entries };
}

/** By looking for what lies below each that is none: a path may have thousands of directories above it. */
function requireDirectories(entries: readonly TreeEntry[], field: string): void {
  for (const { path, type } of entries) {
    if (type === "directory") continue;
    const below = `${path}/`;
    const index = firstFrom(entries, below);
    const found = entries[index]?.path ?? "";
    if (found.startsWith(below)) throw refuse(`${field}[${index}].path`, found, `a path that leads through no ${type}`);
  }
}

/** The first that does not come before it, of entries in order. */
function firstFrom(entries: readonly TreeEntry[], path: string): number {
  let [low, high] = [0, entries.length];
  while (low < high) {
    const middle = (low + high) >>> 1;
    if ((entries[middle] as TreeEntry).path < path) low = middle + 1;
    else high = middle;
  }
  return low;
}

function parseEntry(value: unknown, field: string): TreeEntry {
  const type: unknown = typeof value === "object" && value !== null && "type" in value ? value.type : undefined;
  if (type !== "file" && type !== "directory" && type !== "symlink") {
    readObject(value, field, ALL_FIELDS);
    throw refuse(`${field}.type`, type, "file, directory or symlink");
  }
  const members = readObject(value, field, FIELDS[type]);
  const path = readEntryPath(members.get("path"), members.at("path"));
  const mode = readMode(members.get("mode"), members.at("mode"));
  const owner = readOwner(members.get("uid"), members.get("gid"), field);
  switch (type) {
    case "directory":
      return defined({ path, type, mode, ...owner });
    case "file":
      return defined({
        path,
        type,
        mode,
        ...owner,
        sizeBytes: readNumber(members.get("sizeBytes"), members.at("sizeBytes"), {
          min: 0,
          max: 2 ** 50,
          unit: "bytes",
        }),
        digest: readDigest(members.get("digest"), members.at("digest")),
      });
    case "symlink":
      if (mode !== 0o777) throw refuse(members.at("mode"), mode, "0o777, which is every link's");
      return defined({
        path,
        type,
        mode,
        ...owner,
        target: readText(members.get("target"), members.at("target"), { maxBytes: 4095, expected: "a link's target" }),
      });
  }
}

function readOwner(uid: unknown, gid: unknown, field: string): Pick<TreeEntry, "uid" | "gid"> {
  if (uid === undefined && gid === undefined) return {};
  return {
    uid: readNumber(uid, `${field}.uid`, { min: 0, max: MAX_ID }),
    gid: readNumber(gid, `${field}.gid`, { min: 0, max: MAX_ID }),
  };
}

function readEntryPath(value: unknown, field: string): string {
  const expected = 'a relative path without ".", ".." and doubled slashes';
  const path = readText(value, field, { maxBytes: MAX_PATH_BYTES, mayBeEmpty: true, expected });
  if (path === "") return path;
  if (WRONG_PATH.test(path)) throw refuse(field, path, expected);
  // Most paths are shorter than any name may be.
  if (path.length * 3 <= MAX_NAME_BYTES) return path;
  for (const name of path.split("/")) {
    readText(name, field, { maxBytes: MAX_NAME_BYTES, expected: "a name in the path" });
  }
  return path;
}
