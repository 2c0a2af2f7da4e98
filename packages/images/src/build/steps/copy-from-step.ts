/** Copies from another stage or image: packed in a sandbox that stands on it, unpacked in the step's own. */
import { posix } from "node:path";
import type { FileEntry, Sandbox } from "@holdfast/engine";
import { HoldfastError } from "@holdfast/protocol";
import { type GlobPattern, globPattern, hasWildcard, type RecipeStep } from "@holdfast/recipe";
import { insidePath } from "../apply-step.js";
import { ByteChannel } from "../byte-channel.js";
import { runCommand } from "../run-command.js";
import { failureOf, StepError } from "../step-failure.js";
import { writeTar } from "../tar-writer.js";
import { explained, isDirectory, leadsToDirectory, TAR_INSIDE, unpack } from "./copy-step.js";
import { ROOT, type StepJob } from "./step-job.js";

type CopyFromStep = Extract<RecipeStep, { kind: "copy-from" }>;

interface Found {
  /** As it was asked for, links and all. */
  readonly path: string;
  readonly entry: FileEntry;
}

export async function runCopyFromStep(job: StepJob, step: CopyFromStep): Promise<void> {
  const to = insidePath(job.config, step.to);
  await job.withSource(step.source, async (source) => {
    const found: Found[] = [];
    for (const pattern of step.paths) {
      const matches = await findAll(source, pattern);
      if (matches.length === 0) {
        throw new StepError({ message: `${job.failing.what} failed: there is no ${pattern} to copy` });
      }
      found.push(...matches);
    }
    const [only] = found;
    const isPlace =
      found.length === 1 && only !== undefined && !leadsToDirectory(only.entry) && !to.endsWith("/")
        ? !(await isDirectory(job.sandbox, to))
        : false;
    for (const { path, entry } of found) {
      if (leadsToDirectory(entry)) await copyDirectory(job, source, { path, to, step });
      else await copyFile(job, source, { path, to: isPlace ? to : posix.join(to, posix.basename(path)), step });
    }
  });
}

interface Copying {
  readonly path: string;
  readonly to: string;
  readonly step: CopyFromStep;
}

async function copyDirectory(job: StepJob, source: Sandbox, { path, to, step }: Copying): Promise<void> {
  const channel = new ByteChannel();
  const said: string[] = [];
  const real = await realPath(source, path);
  const packing = runCommand(
    source,
    { argv: [TAR_INSIDE, "pack", "--from", real], user: ROOT, cwd: "/" },
    { ...job.run, onLine: (stream, text) => said.push(`${stream} ${text}`), onStdout: (bytes) => channel.write(bytes) },
  ).then(
    (ending) => {
      const failure = failureOf(ending, job.failing);
      if (failure === undefined) channel.end();
      else channel.fail(explained(failure, said, job));
    },
    (error: unknown) => channel.fail(error),
  );
  try {
    await unpack(job, channel, { into: to, copy: step });
  } finally {
    channel.close();
    await packing;
  }
}

async function copyFile(job: StepJob, source: Sandbox, { path, to, step }: Copying): Promise<void> {
  const { entry, content } = await source.files.read(path, { user: "root" });
  const file = {
    path: posix.basename(to),
    type: "file",
    mode: entry.mode & 0o7777,
    uid: entry.uid,
    gid: entry.gid,
    sizeBytes: entry.sizeBytes,
  } as const;
  const modifiedAt = new Date(Number(entry.modifiedNs / 1_000_000n));
  try {
    await unpack(job, writeTar([file], { open: () => content as AsyncIterable<Uint8Array>, modifiedAt }), {
      into: posix.dirname(to),
      copy: step,
    });
  } finally {
    content.destroy();
  }
}

/** Each name of the pattern by itself: a wildcard never spans a slash. */
async function findAll(source: Sandbox, pattern: string): Promise<Found[]> {
  let places = ["/"];
  for (const name of pattern.split("/").filter((part) => part !== "")) {
    const next: string[] = [];
    for (const place of places) {
      if (hasWildcard(name)) next.push(...(await matchesIn(source, place, globPattern(name))));
      else next.push(posix.join(place, name));
    }
    places = next;
  }
  const found: Found[] = [];
  for (const path of places) {
    const entry = await unlessMissing(source.files.stat(path, { user: "root" }));
    if (entry !== undefined) found.push({ path, entry });
  }
  return found;
}

async function matchesIn(source: Sandbox, directory: string, pattern: GlobPattern): Promise<string[]> {
  if (!(await isDirectory(source, directory))) return [];
  const names: string[] = [];
  for await (const entry of source.files.list(directory, { user: "root", depth: 1 })) {
    if (pattern.test(entry.name)) names.push(posix.join(directory, entry.name));
  }
  return names.sort();
}

async function unlessMissing<T>(looking: Promise<T>): Promise<T | undefined> {
  try {
    return await looking;
  } catch (reason) {
    const { code } = HoldfastError.from(reason);
    if (code === "file_not_found" || code === "file_wrong_type") return undefined;
    throw reason;
  }
}

/** The packer takes directories, not links to them. */
async function realPath(source: Sandbox, path: string): Promise<string> {
  const entry = await source.files.stat(path, { user: "root" });
  return entry.type === "symlink" ? (entry.link?.resolved ?? path) : path;
}
