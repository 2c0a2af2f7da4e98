/** A file's type and mode as text, in the form of Go's `FileMode.String`: "-rw-r--r--", "dtrwxrwxrwx", "Lrwxrwxrwx". */
import type { FileEntry } from "@holdfast/engine";

/** A pipe, a socket or a device: the engine does not say which, and "?" claims none of them. */
const TYPE_LETTERS: Readonly<Record<FileEntry["type"], string>> = {
  file: "",
  directory: "d",
  symlink: "L",
  other: "?",
};
const SET_UID = 0o4000;
const SET_GID = 0o2000;
const STICKY = 0o1000;

/** Go writes the letters in this order, with the one for an irregular file last. */
export function permissionsText(type: FileEntry["type"], mode: number): string {
  const letter = TYPE_LETTERS[type];
  const special = `${mode & SET_UID ? "u" : ""}${mode & SET_GID ? "g" : ""}${mode & STICKY ? "t" : ""}`;
  const head = type === "other" ? `${special}${letter}` : `${letter}${special}`;
  const bits = [..."rwxrwxrwx"].map((bit, index) => (mode & (0o400 >> index) ? bit : "-")).join("");
  return `${head === "" ? "-" : head}${bits}`;
}
