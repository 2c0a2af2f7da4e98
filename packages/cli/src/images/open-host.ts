/** Which images are meant: a server's if one is named, else those of this machine. */
import { accessSync, constants, statSync } from "node:fs";
import { resolve } from "node:path";
import { HoldfastError, invalidArgument } from "@holdfast/protocol";
import { findServer, type ServerFlags } from "../client/find-server.js";
import type { EngineFlags } from "../engine-options.js";
import type { ImageHost } from "./image-host.js";
import type { LocalImagesOptions } from "./open-local-images.js";

export interface ImageHostFlags extends ServerFlags, EngineFlags {
  readonly scratch?: string;
}

/** Only by an address or a key. The server of this machine need not be asked: its images are files that can be shared. */
export function isServerNamed(flags: ServerFlags, env: Readonly<Record<string, string | undefined>>): boolean {
  return findServer(flags, env).kind === "url";
}

export interface OpenHostOptions extends Omit<LocalImagesOptions, "scratchDirectory"> {
  /** Whether temporary files are written here also when the images are a server's. */
  readonly alwaysNeedsScratch?: boolean | undefined;
}

export async function openHost(flags: ImageHostFlags, options: OpenHostOptions = {}): Promise<ImageHost> {
  const scratchDirectory = flags.scratch === undefined ? undefined : checkScratch(flags.scratch);
  if (!isServerNamed(flags, process.env)) {
    const { LocalHost } = await import("./local-host.js");
    return LocalHost.open(flags, { onBaseProgress: options.onBaseProgress, scratchDirectory });
  }
  if (flags.pool !== undefined) throw serversOwn("--pool");
  if (flags.scratch !== undefined && options.alwaysNeedsScratch !== true) throw serversOwn("--scratch");
  const { ServerClient } = await import("../client/server-client.js");
  const { ServerHost } = await import("./server-host.js");
  return new ServerHost((await ServerClient.open(flags)).images, { scratchDirectory });
}

function serversOwn(flag: string): HoldfastError {
  return new HoldfastError("invalid_argument", `${flag}: has no use with a server, which has its own`, {
    hint: "A server is meant because --url, --api-key, HOLDFAST_URL or HOLDFAST_API_KEY is given.",
    details: { field: flag },
  });
}

function checkScratch(given: string): string {
  const path = resolve(given);
  if (statSync(path, { throwIfNoEntry: false })?.isDirectory() !== true) {
    throw invalidArgument("--scratch", given, "a directory that exists");
  }
  try {
    accessSync(path, constants.W_OK | constants.X_OK);
  } catch {
    throw invalidArgument("--scratch", given, "a directory that can be written to");
  }
  return path;
}
