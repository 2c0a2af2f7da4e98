/** From this machine into a sandbox. */
import { type ChildProcessByStdio, spawn } from "node:child_process";
import { once } from "node:events";
import { createReadStream, type Stats, statSync } from "node:fs";
import { Readable } from "node:stream";
import { type CommandEnding, HoldfastError, invalidArgument } from "@holdfast/protocol";
import type { StreamedCommand } from "@holdfast/sdk";
import { type Inside, isDirectoryInside, startTar, TarNotes, tarExitCode } from "./inside.js";
import { destinationOf, type HostSide, type SandboxSide } from "./places.js";

function statHost(path: string): Stats {
  const facts = statSync(path, { throwIfNoEntry: false });
  if (facts === undefined) throw invalidArgument("SRC", path, "a file or directory that exists");
  return facts;
}

function webStream(stream: Readable): ReadableStream<Uint8Array> {
  return Readable.toWeb(stream) as ReadableStream<Uint8Array>;
}

export async function copyIn(from: HostSide, to: SandboxSide, inside: Inside): Promise<number> {
  const facts = from.kind === "host" ? statHost(from.path) : undefined;
  const sourceIsDirectory = facts?.isDirectory() === true;
  const destinationIsDirectory = await isDirectoryInside(inside, to.path);
  const path = destinationOf(from, to.path, { sourceIsDirectory, destinationIsDirectory });
  if (from.kind === "host" && sourceIsDirectory) return sendTree(from.path, path, inside);
  const content = from.kind === "host" ? createReadStream(from.path) : process.stdin;
  // What was executable stays so; who may do what else is the sandbox's affair.
  const mode = facts === undefined ? undefined : facts.mode & 0o777;
  await inside.sandbox.files.write(path, webStream(content), { mode, user: inside.user });
  return 0;
}

/** tar(1) of this machine packs, that of the sandbox unpacks; nothing of it is kept in between. */
async function sendTree(directory: string, path: string, inside: Inside): Promise<number> {
  const leaving = new AbortController();
  let packer: ChildProcessByStdio<null, Readable, null> | undefined;
  try {
    await inside.sandbox.files.makeDirectory(path, { user: inside.user });
    const unpacker = await startTar(inside, ["-x", "-o", "-f", "-", "-C", path], {
      stdin: "open",
      signal: leaving.signal,
    });
    // Last: what a program has said and nobody reads by the time of its exit is thrown away by Node.
    packer = await startPacker(directory);
    const exited = once(packer, "exit");
    const ending = await feed(unpacker, packer.stdout, leaving.signal);
    packer.stdout.destroy();
    const [code] = (await exited) as [number | null];
    return code === 0 ? tarExitCode(ending) : 1;
  } finally {
    leaving.abort();
    packer?.kill();
  }
}

async function startPacker(directory: string): Promise<ChildProcessByStdio<null, Readable, null>> {
  const packer = spawn("tar", ["-c", "-f", "-", "-C", directory, "."], { stdio: ["ignore", "pipe", "inherit"] });
  try {
    await once(packer, "spawn");
    return packer;
  } catch (error) {
    throw new HoldfastError("host_unsupported", "there is no tar on this machine, which directories are copied with", {
      hint: "Install tar.",
      cause: error,
    });
  }
}

/** Sends the archive and waits for the end of the command that takes it. */
async function feed(
  { command, output }: StreamedCommand,
  archive: Readable,
  signal: AbortSignal,
): Promise<CommandEnding> {
  let failure: unknown;
  command.stdin.write(webStream(archive), { close: true, signal }).catch((reason: unknown) => {
    failure = reason;
    // It may have ended by itself, which is why it takes no more; else it would wait for the rest for ever.
    command.cancel().catch(() => {});
  });
  const ending = await readNotes(output);
  if (ending.cause.kind === "canceled" && failure !== undefined) throw HoldfastError.from(failure);
  return ending;
}

async function readNotes(output: StreamedCommand["output"]): Promise<CommandEnding> {
  const notes = new TarNotes();
  for (;;) {
    const { done, value } = await output.next();
    if (done === true) {
      notes.finish();
      return value;
    }
    if (value.type === "data") notes.add(value.bytes);
  }
}
