/** Docker's own way to put files into a container: its API over its socket. */
import { type ClientRequest, type IncomingMessage, request } from "node:http";
import { HoldfastError, invalidArgument } from "@holdfast/protocol";
import { type OnProgress, ProgressCounter } from "../layers/progress.js";
import { pump } from "../layers/pump.js";
import type { WrappedTar } from "./wrap-as-tar.js";

const DEFAULT_SOCKET = "/var/run/docker.sock";
const MAX_ANSWER_BYTES = 64 * 1024;
/** How long after the last byte it may take to unpack. */
const ANSWER_MS = 10 * 60 * 1000;

export interface ContainerTarget {
  /** Its name or id. It may run or not. */
  readonly container: string;
  /** A directory in it. */
  readonly path: string;
  readonly socketPath?: string | undefined;
}

export async function deliverToContainer(
  tar: WrappedTar,
  options: ContainerTarget & {
    readonly signal?: AbortSignal | undefined;
    readonly onProgress?: OnProgress | undefined;
  },
): Promise<void> {
  const { container, path, signal } = options;
  try {
    if (!/^[a-zA-Z0-9][a-zA-Z0-9_.-]{0,254}$/.test(container)) {
      throw invalidArgument("container", container, "a container's name or id");
    }
    if (!path.startsWith("/") || path.includes("\0")) throw invalidArgument("path", path, "an absolute path");
    const query = new URLSearchParams({ path });
    const call = request({
      socketPath: options.socketPath ?? DEFAULT_SOCKET,
      method: "PUT",
      path: `/containers/${container}/archive?${query}`,
      headers: { host: "docker", "content-type": "application/x-tar", "content-length": tar.sizeBytes },
      signal,
    });
    await send(call, tar, options);
  } catch (error) {
    throw signal?.aborted === true ? HoldfastError.from(signal.reason, "canceled") : error;
  } finally {
    await tar.close();
  }
}

async function send(
  call: ClientRequest,
  tar: WrappedTar,
  options: ContainerTarget & {
    readonly signal?: AbortSignal | undefined;
    readonly onProgress?: OnProgress | undefined;
  },
): Promise<void> {
  const counter = new ProgressCounter({
    onProgress: options.onProgress,
    phase: "deliver",
    what: `${options.container}:${options.path}`,
    totalBytes: tar.sizeBytes,
  });
  const answered = new Promise<void>((resolve, reject) => {
    call.on("error", (error: NodeJS.ErrnoException) => reject(unreachable(error, options)));
    call.on("response", (response) => {
      readAnswer(response).then((text) => {
        if (response.statusCode === 200) resolve();
        else reject(refused(response.statusCode ?? 0, text, options));
      }, reject);
    });
  });
  // Docker refuses before it has read everything: then what it says counts, not that the rest could not be sent.
  answered.catch(() => call.destroy());
  try {
    await pump(tar.stream, call, { signal: options.signal, onChunk: (chunk) => counter.add(chunk.length) });
  } catch (error) {
    call.destroy(error as Error);
    await answered;
    // It is content with the last byte, and may say so before we know that it went out.
    if (counter.doneBytes < tar.sizeBytes) throw error;
  }
  call.setTimeout(ANSWER_MS, () => call.destroy(new Error("no answer")));
  await answered;
  counter.end();
}

async function readAnswer(response: IncomingMessage): Promise<string> {
  let text = "";
  response.setEncoding("utf8");
  for await (const part of response as AsyncIterable<string>) if (text.length < MAX_ANSWER_BYTES) text += part;
  return text;
}

function refused(status: number, text: string, { container, path }: ContainerTarget): HoldfastError {
  let message = text.trim().slice(0, 1000);
  try {
    message = String((JSON.parse(text) as { message?: unknown }).message ?? message);
  } catch {
    // Then it is plain text.
  }
  const code = status === 404 ? "file_not_found" : status === 403 ? "file_access_denied" : "engine_fault";
  return new HoldfastError(
    code,
    `docker did not take the files into ${container}:${path}: ${message || `status ${status}`}`,
    {
      details: { status },
      ...(status === 404 ? { hint: "The container and the directory in it must exist." } : {}),
    },
  );
}

function unreachable(error: NodeJS.ErrnoException, { socketPath = DEFAULT_SOCKET }: ContainerTarget): HoldfastError {
  return new HoldfastError("server_unreachable", `cannot talk to docker at ${socketPath}: ${error.message}`, {
    cause: error,
    hint: "Is docker running, and may this user use its socket?",
  });
}
