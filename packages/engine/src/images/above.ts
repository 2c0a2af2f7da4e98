/**
 * The layer of ours that lies above any image but the host's: the places that every sandbox needs, sudo, and the program
 * that copies files in. It must not hide a link of the image by a directory of its own: where /usr/bin or /usr/lib are
 * links, our programs go where those lead.
 */
import { createHash } from "node:crypto";
import { chmodSync, copyFileSync, existsSync, linkSync, mkdirSync, renameSync, rmSync, writeFileSync } from "node:fs";
import { dirname, join } from "node:path";
import { resolveDirectory } from "./layer-lookup.js";

const PLACES: ReadonlyArray<readonly [path: string, mode: number]> = [
  ["dev", 0o755],
  ["proc", 0o755],
  ["sys", 0o755],
  ["tmp", 0o1777],
];
const USUAL = { bin: "usr/bin", lib: "usr/lib" } as const;

/** Of the host; `tar` need not be there. */
export interface OurPrograms {
  readonly sudo: string;
  readonly tar: string;
}

type Put = (source: string, target: string) => void;

/** Puts our programs into a /usr. */
export function buildPrograms(usr: string, programs: OurPrograms): void {
  place(programs.sudo, join(usr, "bin/sudo"), copyFileSync);
  place(programs.tar, join(usr, "lib/holdfast/tar"), copyFileSync);
}

/** The one that fits most images; the others are made of it when they are needed. */
export function buildAbove(directory: string, programs: OurPrograms): void {
  buildPlaces(directory);
  buildPrograms(join(directory, "usr"), programs);
}

/** Places for the guest to show how many CPUs there are; there is no other sysfs inside. */
export function buildCpuFiles(root: string): void {
  const directory = join(root, "sys/devices/system/cpu");
  mkdirSync(directory, { recursive: true });
  for (const name of ["online", "possible", "present"]) writeFileSync(join(directory, name), "0\n", { mode: 0o444 });
}

/** Where the layer is that fits above these. `layers` are directories, uppermost first. */
export function prepareAbove(skeleton: string, layers: readonly string[]): string {
  const usual = join(skeleton, "above");
  const bin = placeFor(layers, USUAL.bin);
  const lib = placeFor(layers, USUAL.lib);
  if (bin === USUAL.bin && lib === USUAL.lib) return usual;
  const hash = createHash("sha256")
    .update(JSON.stringify([bin, lib]))
    .digest("hex")
    .slice(0, 16);
  const directory = join(skeleton, `above-${hash}`);
  if (existsSync(directory)) return directory;
  const fresh = `${directory}.${process.pid}.${process.hrtime.bigint()}`;
  buildPlaces(fresh);
  if (bin !== undefined) place(join(usual, USUAL.bin, "sudo"), join(fresh, bin, "sudo"), linkSync);
  if (lib !== undefined) place(join(usual, USUAL.lib, "holdfast/tar"), join(fresh, lib, "holdfast/tar"), linkSync);
  try {
    renameSync(fresh, directory);
  } catch {
    // Another process was quicker; its layer is the same.
    rmSync(fresh, { recursive: true, force: true });
  }
  return directory;
}

/** Undefined if there is no place for it that the image would show. */
function placeFor(layers: readonly string[], path: string): string | undefined {
  const names = resolveDirectory(layers, path);
  const first = names?.[0];
  // Right below / it would be in nobody's way, but nobody would look there.
  if (names === undefined || first === undefined || PLACES.some(([place]) => place === first)) return undefined;
  return names.join("/");
}

function buildPlaces(directory: string): void {
  for (const [path, mode] of PLACES) {
    mkdirSync(join(directory, path), { recursive: true });
    chmodSync(join(directory, path), mode);
  }
  buildCpuFiles(directory);
}

function place(source: string, target: string, put: Put): void {
  if (!existsSync(source)) return;
  mkdirSync(dirname(target), { recursive: true, mode: 0o755 });
  put(source, target);
  chmodSync(target, 0o755);
}
