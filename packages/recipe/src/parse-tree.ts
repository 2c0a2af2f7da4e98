/** Trees from values that nobody vouches for: every entry has one place, and no entry lies behind a link or a file. */
import { defined, readList, readNumber, readObject, readText, refuse } from "./fields.js";
import { readDigest, readMode } from "./parse-step.js";
import type { Tree, TreeEntry } from "./tree.js";

export const MAX_TREE_ENTRIES = 1_000_000;
const MAX_PATH_BYTES = 4096;
const MAX_NAME_BYTES = 255;
const MAX_ID = 2 ** 32 - 2;

const FIELDS = {
  file: ["sizeBytes", "digest"],
  directory: [],
  symlink: ["target"],
} as const;

export function parseTree(value: unknown, field = ""): Tree {
  const members = readObject(value, field, ["version", "entries"]);
  if (members.get("version") !== 1) throw refuse(members.at("version"), members.get("version"), "1");
  const entries = readList(members.get("entries"), members.at("entries"), parseEntry, {
    maxItems: MAX_TREE_ENTRIES,
    mayBeEmpty: true,
  });
  const types = new Map<string, TreeEntry["type"]>();
  let previous: string | undefined;
  for (const [index, { path, type }] of entries.entries()) {
    const at = `${members.at("entries")}[${index}].path`;
    if (path === "" && (entries.length > 1 || type !== "file")) {
      throw refuse(at, path, "a path that is not empty, unless the tree is one single file");
    }
    if (previous !== undefined && path <= previous) throw refuse(at, path, "paths in order, each of them once");
    requireDirectories(path, types, at);
    types.set(path, type);
    previous = path;
  }
  return { version: 1, entries };
}

function requireDirectories(path: string, types: ReadonlyMap<string, string>, field: string): void {
  for (let slash = path.indexOf("/"); slash !== -1; slash = path.indexOf("/", slash + 1)) {
    const above = types.get(path.slice(0, slash));
    if (above !== undefined && above !== "directory")
      throw refuse(field, path, `a path that leads through no ${above}`);
  }
}

function parseEntry(value: unknown, field: string): TreeEntry {
  const every = ["path", "type", "mode", "uid", "gid"];
  const type = readObject(value, field, [...every, ...Object.values(FIELDS).flat()]).get("type");
  if (type !== "file" && type !== "directory" && type !== "symlink") {
    throw refuse(`${field}.type`, type, "file, directory or symlink");
  }
  const members = readObject(value, field, [...every, ...FIELDS[type]]);
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
  for (const name of path.split("/")) {
    if (name === "" || name === "." || name === "..") throw refuse(field, path, expected);
    readText(name, field, { maxBytes: MAX_NAME_BYTES, expected: "a name in the path" });
  }
  return path;
}
