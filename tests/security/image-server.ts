/** A server with one small image of the operator's, and two keys that know nothing of each other. */
import { execFileSync } from "node:child_process";
import { createHash } from "node:crypto";
import { existsSync, mkdtempSync, readdirSync, rmSync } from "node:fs";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { type BuildInfo, type BuildLogLine, Holdfast, HoldfastError } from "@holdfast/sdk";
import { beforeAll, expect } from "vitest";
import { writeTinyArchive } from "../e2e/tiny-archive.js";
import { OUR_DIRECTORIES } from "../helpers/leaks.js";
import { patienceMs } from "../helpers/scale.js";
import { type ServerInUse, type ServerOptions, useServer } from "../helpers/use-server.js";
import { createKey } from "./server-client.js";

const CLI = fileURLToPath(new URL("../../packages/cli/dist/main.js", import.meta.url));

export const SMALL_BUILDER = { memoryMb: 128, diskMb: 64, runtimeMemoryMb: 32, timeoutS: 60 } as const;
export const OFFLINE = { ...SMALL_BUILDER, network: "off" } as const;

export interface Key {
  readonly id: string;
  readonly secret: string;
  readonly sdk: Holdfast;
}

export interface ImageServer {
  readonly server: ServerInUse;
  readonly a: Key;
  readonly b: Key;
  /** As the operator, on the server's own machine. */
  cli(...args: readonly string[]): string;
  /** Starts a build with a recipe as it is, and gives how it ended and what its steps wrote. */
  build(key: Key, recipe: unknown, builder?: object): Promise<{ readonly build: BuildInfo; readonly output: string[] }>;
  addBlob(key: Key, content: string | Buffer): Promise<string>;
  /** Everything that lies in the store's directories: what a failure must not add to. */
  stored(): string[];
}

export const recipe = (steps: readonly unknown[], rest: object = {}) => ({
  version: 1,
  base: { kind: "image", name: "tiny" },
  steps,
  stages: [],
  start: null,
  ...rest,
});
export const run = (command: string, rest: object = {}) => ({ kind: "run", command, ...rest });
export const digestOf = (content: string | Buffer): string =>
  `sha256:${createHash("sha256").update(content).digest("hex")}`;

export function useImageServer(options: ServerOptions = {}): ImageServer {
  const server = useServer(options);
  const filled = { server } as { -readonly [K in keyof ImageServer]: ImageServer[K] };
  const newKey = (name: string): Key => {
    const { id, key: secret } = createKey(server, name);
    return { id, secret, sdk: new Holdfast({ url: server.url, apiKey: secret }) };
  };
  filled.cli = (...args) =>
    execFileSync(process.execPath, [CLI, ...args, "--state-dir", server.stateDirectory], {
      encoding: "utf8",
      stdio: ["ignore", "pipe", "pipe"],
    });
  filled.addBlob = async ({ secret }, content) => {
    const digest = digestOf(content);
    const answer = await fetch(`${server.url}/v1/images/blobs/${digest}`, {
      method: "PUT",
      headers: { "X-API-Key": secret },
      body: content,
    });
    expect(answer.status, await answer.text()).toBe(204);
    return digest;
  };
  filled.build = async (key, given, builder = OFFLINE) => {
    const answer = await fetch(`${server.url}/v1/images/builds`, {
      method: "POST",
      headers: { "X-API-Key": key.secret, "Content-Type": "application/json" },
      body: JSON.stringify({ recipe: given, builder }),
    });
    const started = (await answer.json()) as BuildInfo & { readonly code?: never; readonly message: string };
    if (answer.status !== 202) throw new HoldfastError(started.code ?? "engine_fault", started.message);
    const lines: BuildLogLine[] = [];
    for await (const line of key.sdk.images.buildLog(started.id)) lines.push(line);
    const build = (await key.sdk.images.builds()).find(({ id }) => id === started.id);
    if (build === undefined) throw new Error(`the build ${started.id} is not listed`);
    return { build, output: lines.filter(({ stream }) => stream !== "info").map(({ text }) => text) };
  };
  filled.stored = () => {
    const images = join(server.stateDirectory, "images");
    return ["blobs/sha256", "records", "layers", "tmp", "scratch"].flatMap((name) => {
      const directory = join(images, name);
      return existsSync(directory) ? readdirSync(directory).map((file) => `${name}/${file}`) : [];
    });
  };
  beforeAll(async () => {
    const directory = mkdtempSync(OUR_DIRECTORIES);
    try {
      const path = join(directory, "tiny.tar");
      writeTinyArchive(path);
      filled.cli("image", "import", path, "-t", "tiny");
    } finally {
      rmSync(directory, { recursive: true, force: true });
    }
    filled.a = newKey("a");
    filled.b = newKey("b");
  }, patienceMs(60_000));
  return filled;
}
