/** Paths inside an image, in the one form that each of them has: no `.`, no `..`, no doubled slashes. */
import { byteLength, readText, refuse } from "./fields.js";

const MAX_PATH_BYTES = 4096;
const MAX_NAME_BYTES = 255;

interface CleanPath {
  readonly absolute: boolean;
  /** How many `..` are left in front of a relative path. */
  readonly up: number;
  readonly names: readonly string[];
  /** It can only be a directory: it ends with a slash, or with `.` or `..`. */
  readonly isDirectory: boolean;
}

/** Lexically, as a Dockerfile's paths are cleaned: `..` takes the name before it away, and above the root there is nothing. */
export function cleanPath(text: string): CleanPath {
  const absolute = text.startsWith("/");
  const names: string[] = [];
  let up = 0;
  const parts = text.split("/");
  for (const part of parts) {
    if (part === "" || part === ".") continue;
    if (part !== "..") names.push(part);
    else if (names.length > 0) names.pop();
    else if (!absolute) up += 1;
  }
  return { absolute, up, names, isDirectory: ["", ".", ".."].includes(parts.at(-1) ?? "") };
}

function readPath(value: unknown, field: string): CleanPath {
  const text = readText(value, field, { maxBytes: MAX_PATH_BYTES, expected: "a path" });
  const path = cleanPath(text);
  for (const name of path.names) {
    if (name.length * 3 > MAX_NAME_BYTES && byteLength(name) > MAX_NAME_BYTES) {
      throw refuse(field, text, `a path whose names have at most ${MAX_NAME_BYTES} bytes`);
    }
  }
  return path;
}

function requireInside(path: CleanPath, value: unknown, field: string): void {
  if (path.up > 0) {
    throw refuse(field, value, "a path that does not lead out of the work directory", "Give an absolute path.");
  }
}

/** Where something is copied to: `/a/b`, `/a/b/` (a directory), `a/b`, or `./` for the work directory itself. */
export function readTarget(value: unknown, field: string): string {
  const path = readPath(value, field);
  requireInside(path, value, field);
  const joined = path.names.join("/");
  if (path.absolute) return joined === "" ? "/" : `/${joined}${path.isDirectory ? "/" : ""}`;
  return joined === "" ? "./" : `${joined}${path.isDirectory ? "/" : ""}`;
}

/** `/a/b`, or `a/b` (from the work directory in force), or `.` for that directory itself. */
export function readWorkdir(value: unknown, field: string): string {
  const path = readPath(value, field);
  requireInside(path, value, field);
  const joined = path.names.join("/");
  if (path.absolute) return `/${joined}`;
  return joined === "" ? "." : joined;
}

/** `/a/b`; relative ones start at the root. */
export function readAbsolute(value: unknown, field: string): string {
  const path = readPath(value, field);
  if (path.up > 0) throw refuse(field, value, "a path inside the image");
  return `/${path.names.join("/")}`;
}
