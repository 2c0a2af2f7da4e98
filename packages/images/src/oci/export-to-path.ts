/** A file or directory that is there whole or not at all: made beside its place, synced, renamed. */
import { lstatSync, readdirSync, rmSync } from "node:fs";
import { mkdir, open, rename, rm, stat } from "node:fs/promises";
import { basename, dirname, join, resolve } from "node:path";
import { HoldfastError } from "@holdfast/protocol";
import { checkFreeSpace } from "../scratch/free-space.js";
import { errorFromFile } from "../store/file-error.js";
import { isTagOfLiving, tagOfUniqueName, uniqueName } from "../store/process-tag.js";
import { syncDirectory } from "../store/whole-files.js";
import { DirectoryWriter, TarFileWriter } from "./blob-writers.js";

const PREFIX = ".holdfast-export.";

export interface PathOptions {
  readonly path: string;
  readonly neededBytes: number;
  /** It goes again soon, and its content need never reach the disk. Of a file. */
  readonly isTemporary?: boolean | undefined;
}

type Outcome<T> = T & { readonly sizeBytes: number };

function prepare({ path, neededBytes }: PathOptions): { parent: string; fresh: string; what: string } {
  const parent = dirname(resolve(path));
  const what = `writing ${path}`;
  try {
    sweep(parent);
    checkFreeSpace(parent, neededBytes, what);
  } catch (error) {
    if (!(error instanceof HoldfastError)) {
      const { code, message } = error as NodeJS.ErrnoException;
      throw new HoldfastError(
        code === "ENOENT" || code === "ENOTDIR" ? "file_not_found" : "file_access_denied",
        `${what}: ${code === "ENOENT" ? `there is no directory ${parent}` : message}`,
        { cause: error },
      );
    }
    throw new HoldfastError(error.code, error.message, {
      cause: error,
      details: error.details,
      hint: "Free some space, or write it somewhere else.",
    });
  }
  return { parent, fresh: join(parent, `${PREFIX}${uniqueName()}`), what };
}

/** What processes that were killed have left there. */
function sweep(directory: string): void {
  for (const name of readdirSync(directory)) {
    if (!name.startsWith(PREFIX)) continue;
    const tag = tagOfUniqueName(name.slice(PREFIX.length));
    const path = join(directory, name);
    // What somebody else has made in a directory like /tmp could be exchanged under our hands.
    if (lstatSync(path, { throwIfNoEntry: false })?.uid !== process.geteuid?.()) continue;
    if (tag !== undefined && !isTagOfLiving(tag)) rmSync(path, { recursive: true, force: true });
  }
}

export async function writeToFile<T extends object>(
  options: PathOptions,
  write: (writer: TarFileWriter) => Promise<T>,
): Promise<Outcome<T>> {
  const { parent, fresh, what } = prepare(options);
  const file = await open(fresh, "wx+").catch((error: unknown) => {
    throw errorFromFile(error, what);
  });
  try {
    const { isTemporary = false } = options;
    const writer = new TarFileWriter(file, { path: fresh, what, isTemporary });
    let outcome: Outcome<T>;
    try {
      outcome = { ...(await write(writer)), sizeBytes: writer.sizeBytes };
      if (!isTemporary) await file.sync();
    } finally {
      await writer.settle();
      await file.close();
    }
    await rename(fresh, options.path);
    if (!isTemporary) syncDirectory(parent);
    return outcome;
  } catch (error) {
    await rm(fresh, { force: true });
    throw isFileError(error) ? errorFromFile(error, what) : error;
  }
}

export async function writeToDirectory<T extends object>(
  options: PathOptions,
  write: (writer: DirectoryWriter) => Promise<T>,
): Promise<Outcome<T>> {
  const { parent, fresh, what } = prepare(options);
  const there = await stat(options.path).catch(() => undefined);
  if (there !== undefined && (!there.isDirectory() || readdirSync(options.path).length > 0)) {
    throw new HoldfastError(
      "file_exists",
      `${what}: ${basename(options.path)} is there already and not an empty directory`,
      {
        hint: "Remove it, or write to another place.",
      },
    );
  }
  try {
    await mkdir(fresh);
    const writer = new DirectoryWriter(fresh, what);
    const outcome = await write(writer);
    await rename(fresh, options.path);
    syncDirectory(parent);
    return { ...outcome, sizeBytes: writer.sizeBytes };
  } catch (error) {
    await rm(fresh, { recursive: true, force: true });
    throw isFileError(error) ? errorFromFile(error, what) : error;
  }
}

function isFileError(error: unknown): boolean {
  return !(error instanceof HoldfastError) && typeof (error as NodeJS.ErrnoException).syscall === "string";
}
