/** Paths as a request gives them. The guest resolves them; here only what it could not even be asked is refused. */
import { HoldfastError, invalidArgument } from "@holdfast/protocol";

const LONGEST_PATH_BYTES = 4095;
const SHOWN_CHARACTERS = 100;

/** Something must be named: an empty path would be the home directory, which nobody means to remove or to move. */
export function checkPath(field: string, path: string): string {
  if (path === "") throw invalidArgument(field, path, "a path, not an empty one");
  if (path.includes("\0")) throw invalidArgument(field, shorten(path), "a path without NUL");
  if (/\p{Cs}/u.test(path)) throw invalidArgument(field, shorten(path), "a path of valid Unicode");
  if (Buffer.byteLength(path) > LONGEST_PATH_BYTES) {
    throw new HoldfastError("invalid_argument", `${field}: expected a path of at most ${LONGEST_PATH_BYTES} bytes`, {
      details: { field },
    });
  }
  return path;
}

/** For looking only: an empty path is the user's home. */
export function checkPathOrHome(field: string, path: string): string {
  return path === "" ? "~" : checkPath(field, path);
}

/** A path below a directory, both as the guest gave them. */
export function joinPath(directory: string, name: string): string {
  if (name === "") return directory;
  return directory.endsWith("/") ? `${directory}${name}` : `${directory}/${name}`;
}

function shorten(text: string): string {
  return text.length > SHOWN_CHARACTERS ? `${text.slice(0, SHOWN_CHARACTERS)}…` : text;
}
