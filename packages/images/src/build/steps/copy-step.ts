/** Steps that copy files in, as a stream that is unpacked inside: links of the image are followed where they lead there. */
import { createReadStream } from "node:fs";
import { open } from "node:fs/promises";
import { posix } from "node:path";
import type { FileEntry, Sandbox } from "@holdfast/engine";
import { HoldfastError } from "@holdfast/protocol";
import { type CopyOptions, type Digest, hasWildcard, type RecipeStep, type TreeEntry } from "@holdfast/recipe";
import { decompressed, SNIFF_BYTES, sniffCompression } from "../../layers/compression.js";
import { insidePath } from "../apply-step.js";
import { readTree } from "../build-order.js";
import { runCommand } from "../run-command.js";
import { failureOf, StepError } from "../step-failure.js";
import { writeTar } from "../tar-writer.js";
import { ROOT, type StepJob } from "./step-job.js";

/** The engine shows it in every sandbox. */
export const TAR_INSIDE = "/usr/lib/holdfast/tar";
const CHUNK_BYTES = 256 * 1024;

export async function runCopyStep(job: StepJob, step: Extract<RecipeStep, { kind: "copy" }>): Promise<void> {
  const { entries } = readTree(job.blobs, step.tree);
  const to = insidePath(job.config, step.to);
  const single = entries.length === 1 && entries[0]?.path === "" ? entries[0] : undefined;
  const target = single === undefined ? { into: to, entries } : await placeFile(job, single, { to, name: step.name });
  const tar = writeTar(target.entries, {
    open: (entry: TreeEntry) => readBlob(job, entry.digest),
    modifiedAt: new Date(),
  });
  await unpack(job, tar, { into: target.into, copy: step });
}

async function placeFile(
  job: StepJob,
  file: TreeEntry,
  { to, name }: { readonly to: string; readonly name: string | undefined },
): Promise<{ readonly into: string; readonly entries: readonly TreeEntry[] }> {
  if (!to.endsWith("/") && !(await isDirectory(job.sandbox, to))) {
    return { into: posix.dirname(to), entries: [{ ...file, path: posix.basename(to) }] };
  }
  if (name === undefined) {
    throw new StepError({
      message: `${job.failing.what} failed: ${to} is a directory, and the file has no name to be called by in it`,
    });
  }
  return { into: to, entries: [{ ...file, path: name }] };
}

export async function runCopyArchiveStep(
  job: StepJob,
  step: Extract<RecipeStep, { kind: "copy-archive" }>,
): Promise<void> {
  const to = insidePath(job.config, step.to);
  const path = job.blobs.path(step.archive);
  const file = await open(path, "r");
  const { buffer, bytesRead } = await file
    .read(Buffer.alloc(SNIFF_BYTES), 0, SNIFF_BYTES, 0)
    .finally(() => file.close());
  const kind = sniffCompression(buffer.subarray(0, bytesRead));
  const tar = decompressed(createReadStream(path, { highWaterMark: CHUNK_BYTES }), kind, {
    what: `the archive ${step.archive}`,
    signal: job.run.signal,
  });
  // What it selects is known only inside: one file becomes the destination itself, and a directory's content goes into it.
  const named = !to.endsWith("/") && !hasWildcard(step.from);
  await unpack(job, tar, {
    into: named ? posix.dirname(to) : to,
    select: step.from,
    as: named ? posix.basename(to) : undefined,
    // Some tools leave the marker at the end out. Of ours it is the proof that nothing was cut off.
    lenientEnd: true,
    copy: step,
  });
}

interface Unpacking {
  readonly into: string;
  readonly select?: string | undefined;
  readonly as?: string | undefined;
  readonly lenientEnd?: boolean | undefined;
  readonly copy: CopyOptions;
}

export async function unpack(job: StepJob, tar: AsyncIterable<Uint8Array>, options: Unpacking): Promise<void> {
  const { owner, mode } = options.copy;
  const argv = [
    TAR_INSIDE,
    "unpack",
    ...["--root", "/", "--into", options.into, "--make", "--merge"],
    ...(options.lenientEnd === true ? ["--lenient-end"] : []),
    ...(owner === "keep" ? [] : ["--owner", owner ?? "0:0"]),
    ...(mode === undefined ? [] : ["--mode", mode.toString(8)]),
    ...(options.select === undefined ? [] : ["--select", options.select]),
    ...(options.as === undefined ? [] : ["--as", options.as]),
  ];
  const said: string[] = [];
  const ending = await runCommand(
    job.sandbox,
    { argv, user: ROOT, cwd: "/" },
    { ...job.run, onLine: (stream, text) => said.push(`${stream} ${text}`), input: tar },
  );
  const failure = failureOf(ending, job.failing);
  if (failure !== undefined) throw explained(failure, said, job);
  job.onEnding(ending);
}

/** Its last words are a line of JSON. */
export function explained(failure: StepError, said: readonly string[], job: StepJob): StepError {
  for (const line of said) if (line.startsWith("stderr ")) job.run.onLine("stderr", line.slice("stderr ".length));
  if (failure.facts.cause?.kind !== "exited") return failure;
  const why = reasonIn(said.at(-1)?.slice("stderr ".length) ?? "");
  return why === undefined
    ? failure
    : new StepError({ ...failure.facts, message: `${job.failing.what} failed: ${why}` }, { cause: failure });
}

function reasonIn(line: string): string | undefined {
  try {
    const { error, entry } = JSON.parse(line) as { readonly error?: unknown; readonly entry?: unknown };
    if (typeof error !== "string") return undefined;
    return typeof entry === "string" ? `${JSON.stringify(entry)}: ${error}` : error;
  } catch {
    return undefined;
  }
}

function readBlob(job: StepJob, digest: Digest | undefined): AsyncIterable<Uint8Array> {
  if (digest === undefined) throw new HoldfastError("engine_fault", "a file of a tree has no content");
  return createReadStream(job.blobs.path(digest), { highWaterMark: CHUNK_BYTES });
}

export async function isDirectory(sandbox: Sandbox, path: string): Promise<boolean> {
  try {
    return leadsToDirectory(await sandbox.files.stat(path, { user: "root" }));
  } catch (reason) {
    const { code } = HoldfastError.from(reason);
    if (code === "file_not_found" || code === "file_wrong_type") return false;
    throw reason;
  }
}

export function leadsToDirectory(entry: FileEntry): boolean {
  return entry.type === "directory" || (entry.type === "symlink" && entry.link?.targetType === "directory");
}
