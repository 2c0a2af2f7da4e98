/** A Dockerfile and its context from local files. */
import { open, realpath } from "node:fs/promises";
import { dirname, join } from "node:path";
import { HoldfastError } from "@holdfast/protocol";
import type { BlobList } from "../blob-list.js";
import { convertDockerfile } from "../dockerfile/convert.js";
import type { DockerfileOptions } from "../draft.js";
import { IgnoreRules } from "../ignore-rules.js";
import type { Recipe } from "../recipe.js";
import { DockerContext } from "./docker-context.js";
import { localFault } from "./local-fault.js";
import { readIgnoreLines } from "./local-steps.js";

const MAX_DOCKERFILE_BYTES = 4 * 1024 * 1024;

export interface ReadDockerfileOptions extends DockerfileOptions {
  /** Where the files that it copies are added. */
  readonly blobs: BlobList;
}

export async function readDockerfile(path: string, options: ReadDockerfileOptions): Promise<Recipe> {
  const text = await readSmallFile(path);
  const given = options.context ?? dirname(path);
  const directory = await realpath(given).catch((error: unknown) => {
    throw localFault(given, error);
  });
  const ignoreFiles = [`${path}.dockerignore`, join(directory, ".holdfastignore"), join(directory, ".dockerignore")];
  const rules = new IgnoreRules(await readIgnoreLines(ignoreFiles));
  return convertDockerfile(text, {
    file: path,
    target: options.target,
    args: options.args,
    platform: hostPlatform(),
    context: new DockerContext(directory, rules, options.blobs),
  });
}

/** As docker names it. Images run on the CPU of the host they are built on. */
function hostPlatform(): string {
  return `linux/${process.arch === "x64" ? "amd64" : process.arch}`;
}

async function readSmallFile(path: string): Promise<string> {
  const handle = await open(path).catch((error: unknown) => {
    throw localFault(path, error);
  });
  try {
    const { size } = await handle.stat();
    if (size > MAX_DOCKERFILE_BYTES) {
      throw new HoldfastError("invalid_argument", `${path} has ${size} bytes, more than ${MAX_DOCKERFILE_BYTES}`);
    }
    return new TextDecoder("utf-8", { fatal: true }).decode(await handle.readFile());
  } catch (error) {
    throw localFault(path, error);
  } finally {
    await handle.close();
  }
}
