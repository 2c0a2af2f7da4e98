/** A builder over the images of a test, and short words for what tests say again and again. */
import { createHash } from "node:crypto";
import { readdirSync } from "node:fs";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import type { Sandbox } from "@holdfast/engine";
import {
  type BaseResolver,
  type Build,
  type Builder,
  type BuildLogEntry,
  type BuildRequest,
  type ImageRecord,
  type ImagesContext,
  planSandbox,
} from "@holdfast/images";
import { HoldfastError } from "@holdfast/protocol";
import { canonicalJson, type Digest, type Recipe, type RecipeStep, type TreeEntry } from "@holdfast/recipe";
import { afterEach, beforeEach, expect } from "vitest";
import { type CreateBuilderOptions, createBuilder } from "../../packages/images/src/build/builder.js";
import { patienceMs } from "../helpers/scale.js";
import { type RunResult, shell } from "../helpers/use-engine.js";
import { type ImagesInUse, useImages } from "../helpers/use-images.js";

export const MIB = 1024 * 1024;
const TAR_PROGRAM = fileURLToPath(new URL("../../guest/build/holdfast-tar", import.meta.url));

/** Small, so that what is to hit a limit hits it soon. */
export const SMALL_BUILDER = { memoryMb: 256, diskMb: 200, runtimeMemoryMb: 64, network: "off", timeoutS: 60 } as const;

export function recipe(steps: readonly RecipeStep[], rest: Partial<Recipe> = {}): Recipe {
  return { version: 1, base: { kind: "image", name: "tiny" }, steps, stages: [], start: null, ...rest };
}

export const run = (command: string): RecipeStep => ({ kind: "run", command });

export function imagesContext(inUse: Pick<ImagesInUse, "engine" | "store" | "stateDirectory">): ImagesContext {
  return {
    engine: inUse.engine,
    store: inUse.store,
    stateDirectory: inUse.stateDirectory,
    scratchDirectory: join(inUse.stateDirectory, "images", "scratch"),
    tarProgram: TAR_PROGRAM,
    log: { info: () => {}, warn: (facts, message) => console.warn(message, facts) },
  };
}

/** Images of the store by name, which is all that these tests start from. */
export function localBases({ store }: Pick<ImagesInUse, "store">): BaseResolver {
  return {
    async resolve(base, { owner }) {
      if (base.kind === "image") return store.require(base.name, owner);
      throw new HoldfastError("image_not_found", `no ${base.kind} in this test`);
    },
  };
}

export interface BuildsInUse extends ImagesInUse {
  readonly builder: Builder;
  readonly tiny: ImageRecord;
  /** Another one on the same files, which is closed with the test. */
  open(options?: CreateBuilderOptions): Builder;
  start(steps: readonly RecipeStep[], request?: Partial<BuildRequest>): Promise<Build>;
  /** To its end. */
  build(steps: readonly RecipeStep[], request?: Partial<BuildRequest>): Promise<ImageRecord>;
  /** A sandbox of it, for a script. */
  inside(image: ImageRecord, script: string, options?: { user?: string }): Promise<RunResult>;
  create(spec?: Parameters<ImagesInUse["create"]>[0]): Promise<Sandbox>;
  addBlob(content: string | Buffer): Promise<Digest>;
  /** Of files by path; a mode or a link's target beside the content. */
  addTree(files: Readonly<Record<string, TreeFile>>): Promise<Digest>;
}

export type TreeFile = string | { readonly content?: string; readonly mode?: number; readonly target?: string };

export function useBuilds(options: CreateBuilderOptions & { readonly pool?: "btrfs" | "dir" } = {}): BuildsInUse {
  const { pool, ...own } = options;
  const inUse = useImages({ ...(pool === undefined ? {} : { pool }), store: { graceMs: 0 } }) as BuildsInUse;
  let builders: Builder[];
  beforeEach(async () => {
    builders = [];
    const open = (more: CreateBuilderOptions = own): Builder => {
      const builder = createBuilder(imagesContext(inUse), localBases(inUse), more);
      builders.push(builder);
      return builder;
    };
    const tiny = await inUse.addTinyImage();
    inUse.store.setName({ owner: null, name: "tiny", tag: "latest" }, tiny.id);
    const builder = open();
    const start: BuildsInUse["start"] = (steps, request = {}) =>
      builder.start({ recipe: recipe(steps), owner: null, builder: SMALL_BUILDER, ...request });
    const addBlob = async (content: string | Buffer): Promise<Digest> => {
      const added = await inUse.store.blobs.add(
        (async function* () {
          yield Buffer.from(content);
        })(),
      );
      return added.digest;
    };
    Object.assign(inUse, {
      builder,
      open,
      tiny,
      start,
      addBlob,
      build: async (...args: Parameters<BuildsInUse["start"]>) => (await start(...args)).image,
      inside: async (image: ImageRecord, script: string, { user }: { user?: string } = {}) => {
        const sandbox = await inUse.engine.create({ ...planSandbox(image).spec });
        try {
          return await shell(sandbox, script, user === undefined ? {} : { user });
        } finally {
          await sandbox.kill("the test");
        }
      },
      addTree: (files: Parameters<BuildsInUse["addTree"]>[0]) => addTree(inUse, addBlob, files),
    });
  }, patienceMs(30_000));
  afterEach(async () => {
    await Promise.all(builders.map((builder) => builder.close()));
    await expectNothingLeft(inUse);
  }, patienceMs(30_000));
  return inUse;
}

/** Without its images a builder has left nothing that is not in a build's own directory. */
export async function expectNothingLeft({ store, engine }: Pick<ImagesInUse, "store" | "engine">): Promise<void> {
  expect(engine.list()).toEqual([]);
  expect(engine.stopped()).toEqual([]);
  expect(readdirSync(join(store.directory, "builds", "by-hash"))).toEqual([]);
  expect(readdirSync(join(store.directory, "builds", "fresh"))).toEqual([]);
  for (const { name } of store.names()) store.removeName(name);
  await store.prune({ all: true, unusedForMs: 0 });
  expect(store.list()).toEqual([]);
  expect(engine.layers.list()).toEqual([]);
}

async function addTree(
  inUse: ImagesInUse,
  addBlob: (content: string) => Promise<Digest>,
  files: Readonly<Record<string, TreeFile>>,
): Promise<Digest> {
  const entries: TreeEntry[] = [];
  for (const path of Object.keys(files).sort()) {
    const given = files[path] ?? "";
    const file = typeof given === "string" ? { content: given } : given;
    if (file.target !== undefined) entries.push({ path, type: "symlink", mode: 0o777, target: file.target });
    else if (file.content === undefined) entries.push({ path, type: "directory", mode: file.mode ?? 0o755 });
    else {
      const sizeBytes = Buffer.byteLength(file.content);
      entries.push({ path, type: "file", mode: file.mode ?? 0o644, sizeBytes, digest: await addBlob(file.content) });
    }
  }
  const text = canonicalJson({ version: 1, entries });
  const digest = `sha256:${createHash("sha256").update(text).digest("hex")}` as const;
  await inUse.store.blobs.put(
    digest,
    (async function* () {
      yield Buffer.from(text);
    })(),
  );
  return digest;
}

export async function logOf(build: Build): Promise<BuildLogEntry[]> {
  const entries: BuildLogEntry[] = [];
  for await (const entry of build.log()) entries.push(entry);
  return entries;
}

/** What the steps themselves have written. */
export async function outputOf(build: Build): Promise<string[]> {
  return (await logOf(build)).filter(({ stream }) => stream !== "info").map(({ text }) => text);
}
