/**
 * Temporary files: each job has a directory of its own below the scratch directory, whose name says which process it is, so
 * that what a killed one left can be removed.
 */
import { accessSync, constants, lstatSync, readdirSync, rmSync } from "node:fs";
import { mkdir, rm } from "node:fs/promises";
import { isAbsolute, join } from "node:path";
import { HoldfastError } from "@holdfast/protocol";
import { isTagOfLiving, tagOfUniqueName, uniqueName } from "../store/process-tag.js";
import { checkFreeSpace } from "./free-space.js";

const PREFIX = "holdfast-scratch.";

export interface Scratch {
  readonly directory: string;
  /** A file or directory in it. */
  path(name: string): string;
  /** Removes it and all that is in it. */
  close(): Promise<void>;
  [Symbol.asyncDispose](): Promise<void>;
}

/** Refused before anything is read or written: what is wrong with it would show late, in the middle of the job. */
export function checkScratchDirectory(directory: string): void {
  let problem: string | undefined;
  if (!isAbsolute(directory)) {
    problem = "is not an absolute path";
  } else {
    try {
      if (lstatSync(`${directory}/.`).isDirectory()) accessSync(directory, constants.W_OK | constants.X_OK);
    } catch (error) {
      const { code } = error as NodeJS.ErrnoException;
      problem =
        { ENOENT: "does not exist", ENOTDIR: "is not a directory", EROFS: "is read-only" }[code ?? ""] ??
        `is not writable (${code})`;
    }
  }
  if (problem === undefined) return;
  throw new HoldfastError("invalid_argument", `the scratch directory ${directory} ${problem}`, {
    hint: "Make it, or choose another one for temporary files with --scratch or HOLDFAST_SCRATCH_DIR.",
    details: { field: "HOLDFAST_SCRATCH_DIR", directory },
  });
}

export async function openScratch(
  context: { readonly scratchDirectory: string },
  /** `what`: for a person, who reads `… needs 4 GiB and /tmp has 1 GiB free`. */
  options: { readonly what: string; readonly neededBytes?: number | undefined },
): Promise<Scratch> {
  const { scratchDirectory } = context;
  checkScratchDirectory(scratchDirectory);
  if (options.neededBytes !== undefined) checkFreeSpace(scratchDirectory, options.neededBytes, options.what);
  const directory = join(scratchDirectory, `${PREFIX}${uniqueName()}`);
  try {
    await mkdir(directory, { mode: 0o700 });
  } catch (error) {
    const { code, message } = error as NodeJS.ErrnoException;
    const isFull = code === "ENOSPC" || code === "EDQUOT";
    throw new HoldfastError(isFull ? "no_space" : "engine_fault", `${options.what}: ${message}`, { cause: error });
  }
  const close = () => rm(directory, { recursive: true, force: true });
  return { directory, path: (name) => join(directory, name), close, [Symbol.asyncDispose]: close };
}

/** Removes the directories of processes that are gone. */
export function sweepScratch(scratchDirectory: string): void {
  let names: string[];
  try {
    names = readdirSync(scratchDirectory);
  } catch {
    // It was never made, or is somebody else's mistake; whoever needs it will say so.
    return;
  }
  for (const name of names) {
    if (!name.startsWith(PREFIX)) continue;
    const tag = tagOfUniqueName(name.slice(PREFIX.length));
    const path = join(scratchDirectory, name);
    // The scratch directory may be everybody's, as /tmp is: a directory of somebody else's could be exchanged under our hands.
    const stats = lstatSync(path, { throwIfNoEntry: false });
    if (tag === undefined || stats?.uid !== process.geteuid?.() || !stats?.isDirectory()) continue;
    if (!isTagOfLiving(tag)) rmSync(path, { recursive: true, force: true });
  }
}
