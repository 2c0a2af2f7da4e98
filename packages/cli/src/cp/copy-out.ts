/** From a sandbox to this machine. Everything that comes is hostile: names, links, modes, sizes. */
import { randomBytes } from "node:crypto";
import { constants, createWriteStream, type Stats, statSync } from "node:fs";
import { type FileHandle, open, rename, rm, writeFile } from "node:fs/promises";
import { Readable, type Writable } from "node:stream";
import { pipeline } from "node:stream/promises";
import { type CommandEnding, type FileInfo, HoldfastError, invalidArgument } from "@holdfast/protocol";
import type { StreamedCommand } from "@holdfast/sdk";
import { EXIT } from "../run/exit-code.js";
import { note } from "../text/notes.js";
import { type Inside, infoOf, isDirectoryInside, startTar, TarNotes, tarExitCode } from "./inside.js";
import { destinationOf, type HostSide, type SandboxSide } from "./places.js";
import { receiveTree } from "./receive-tree.js";

const { O_WRONLY, O_CREAT, O_EXCL, O_NOFOLLOW } = constants;

function statHost(path: string): Stats | undefined {
  return statSync(path, { throwIfNoEntry: false });
}

export async function copyOut(from: SandboxSide, to: HostSide, inside: Inside): Promise<number> {
  const info = await infoOf(inside, from.path);
  if (info === undefined) throw invalidArgument("SRC", `${from.sandbox}:${from.path}`, "something that is there");
  const sourceIsDirectory = info.type === "directory" || (await isDirectoryInside(inside, from.path));
  if (to.kind === "stream") {
    if (sourceIsDirectory) refuseDirectory(from);
    return sendToStdout(await contentOf(from, inside));
  }
  const existing = statHost(to.path);
  const path = destinationOf(from, to.path, {
    sourceIsDirectory,
    destinationIsDirectory: existing?.isDirectory() === true,
  });
  if (sourceIsDirectory) return receiveDirectory(from, path, inside);
  await receiveFile(await contentOf(from, inside), path, info);
  return 0;
}

function refuseDirectory(from: SandboxSide): never {
  throw new HoldfastError("file_wrong_type", `SRC: ${from.path} is a directory, and - takes one file`, {
    hint: `For an archive: holdfast exec ${from.sandbox} -- tar -c ${from.path}`,
    details: { field: "SRC" },
  });
}

async function contentOf(from: SandboxSide, { sandbox, user }: Inside): Promise<Readable> {
  return Readable.fromWeb((await sandbox.files.read(from.path, { as: "stream", user })) as never);
}

async function sendToStdout(content: Readable): Promise<number> {
  try {
    await pipeline(content, process.stdout, { end: false });
    return 0;
  } catch (error) {
    // `| head` has seen enough.
    if ((error as NodeJS.ErrnoException).code === "EPIPE") return EXIT.readerGone;
    throw error;
  }
}

/** Beside its place first: what is there is replaced as a whole, a link included, or not at all. */
async function receiveFile(content: Readable, path: string, info: FileInfo): Promise<void> {
  const existing = statHost(path);
  if (existing !== undefined && !existing.isFile() && !existing.isDirectory()) {
    // A pipe, a terminal, /dev/null: these are written to, not replaced.
    await pipeline(content, createWriteStream(path) as Writable);
    return;
  }
  const fresh = `${path}.${randomBytes(6).toString("hex")}.new`;
  let file: FileHandle;
  try {
    file = await open(fresh, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW, 0o600);
  } catch (error) {
    content.destroy();
    throw invalidArgument("DST", path, `a file in a directory that we may write to (${(error as Error).message})`);
  }
  try {
    await writeFile(file, content);
    // No set-id bits: they would make a program of the sandbox's run as whoever copies it.
    if (info.type === "file") await file.chmod(info.mode & 0o777);
    else await file.chmod(0o644);
    const modified = new Date(info.modifiedAt);
    if (!Number.isNaN(modified.getTime())) await file.utimes(modified, modified);
    await rename(fresh, path);
  } catch (error) {
    await rm(fresh, { force: true });
    throw error;
  } finally {
    await file.close();
  }
}

async function receiveDirectory(from: SandboxSide, path: string, inside: Inside): Promise<number> {
  if (statHost(path)?.isDirectory() === false) throw invalidArgument("DST", path, "a directory, or nothing yet");
  const leaving = new AbortController();
  const packer = await startTar(inside, ["-c", "-f", "-", "-C", from.path, "."], {
    stdin: "closed",
    signal: leaving.signal,
  });
  const archive = new Archive(packer);
  let skipped: number;
  try {
    ({ skipped } = await receiveTree(archive.bytes(), path, (name, why) => note(`left out ${name}: ${why}`)));
  } catch (error) {
    await packer.command.cancel({ graceMs: 0 }).catch(() => {});
    // If tar itself was ended, that is why the archive broke off.
    if (archive.ending !== undefined) tarExitCode(archive.ending);
    throw error;
  } finally {
    leaving.abort();
  }
  const code = archive.ending === undefined ? 1 : tarExitCode(archive.ending);
  return skipped > 0 ? 1 : code;
}

/** The output of tar inside: what it packs, and how it ended once all of it was read. */
class Archive {
  readonly #output: StreamedCommand["output"];
  readonly #notes = new TarNotes();
  ending: CommandEnding | undefined;

  constructor({ output }: StreamedCommand) {
    this.#output = output;
  }

  async *bytes(): AsyncGenerator<Uint8Array> {
    try {
      for (;;) {
        const { done, value } = await this.#output.next();
        if (done === true) {
          this.ending = value;
          return;
        }
        if (value.stream === "stderr") {
          if (value.type === "data") this.#notes.add(value.bytes);
        } else if (value.type === "data") yield value.bytes;
        else throw new HoldfastError("guest_fault", `${value.length} bytes of the archive were lost; try again`);
      }
    } finally {
      this.#notes.finish();
      void this.#output.return(undefined as never).catch(() => {});
    }
  }
}
