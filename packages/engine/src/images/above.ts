/**
 * The layer of ours that lies above any image but the host's: the places that every sandbox needs, sudo, the program that
 * copies files in, and where programs look which sandbox they are in. It must not hide a link of the image by a directory of
 * its own: where /usr/bin or /usr/lib are links, our programs go where those lead.
 */
import { createHash } from "node:crypto";
import {
  chmodSync,
  chownSync,
  copyFileSync,
  existsSync,
  linkSync,
  lstatSync,
  mkdirSync,
  renameSync,
  rmSync,
  symlinkSync,
  writeFileSync,
} from "node:fs";
import { dirname, join } from "node:path";
import { resolveDirectory } from "./layer-lookup.js";

const PLACES: ReadonlyArray<readonly [path: string, mode: number]> = [
  ["dev", 0o755],
  ["proc", 0o755],
  ["sys", 0o755],
  ["tmp", 0o1777],
];
const USUAL = { bin: "usr/bin", lib: "usr/lib", run: { mode: 0o755, uid: 0, gid: 0 } } as const;
const USUAL_SHAPE = JSON.stringify([USUAL.bin, USUAL.lib, USUAL.run]);
const RUN = "run";
/** In the directory of what is said to programs inside, see LaunchPlan.insidePath. */
export const SANDBOX_ID_PATH = "/dev/holdfast/sandbox-id";

/** A directory shows the rights of the uppermost layer: ours has to have those of the image's. */
interface Rights {
  readonly mode: number;
  readonly uid: number;
  readonly gid: number;
}

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
  buildIdentity(directory);
}

/** Where programs that were written for E2B look whether they are in a sandbox, and in which. */
export function buildIdentity(root: string, rights: Rights = USUAL.run): void {
  const run = join(root, RUN);
  const directory = join(run, "e2b");
  mkdirSync(directory, { recursive: true, mode: 0o755 });
  chmodSync(run, rights.mode);
  chownSync(run, rights.uid, rights.gid);
  writeFileSync(join(directory, ".E2B_SANDBOX"), "true", { mode: 0o444 });
  symlinkSync(SANDBOX_ID_PATH, join(directory, ".E2B_SANDBOX_ID"));
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
  const run = rightsOfRun(layers);
  const shape = JSON.stringify([bin, lib, run]);
  if (shape === USUAL_SHAPE) return usual;
  const hash = createHash("sha256").update(shape).digest("hex").slice(0, 16);
  const directory = join(skeleton, `above-${hash}`);
  if (existsSync(directory)) return directory;
  const fresh = `${directory}.${process.pid}.${process.hrtime.bigint()}`;
  buildPlaces(fresh);
  if (bin !== undefined) place(join(usual, USUAL.bin, "sudo"), join(fresh, bin, "sudo"), linkSync);
  if (lib !== undefined) place(join(usual, USUAL.lib, "holdfast/tar"), join(fresh, lib, "holdfast/tar"), linkSync);
  if (run !== undefined) buildIdentity(fresh, run);
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

/** Undefined if /run is a link: then nothing is put there. */
function rightsOfRun(layers: readonly string[]): Rights | undefined {
  if (placeFor(layers, RUN) !== RUN) return undefined;
  for (const layer of layers) {
    const info = lstatSync(join(layer, RUN), { throwIfNoEntry: false });
    if (info === undefined) continue;
    return info.isDirectory() ? { mode: info.mode & 0o7777, uid: info.uid, gid: info.gid } : USUAL.run;
  }
  return USUAL.run;
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
