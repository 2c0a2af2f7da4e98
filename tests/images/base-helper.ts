/** The real base image for the tests of a file, built once, and nothing left of anything that was made on it. */
import { existsSync, mkdtempSync, readdirSync, renameSync, rmSync } from "node:fs";
import { dirname, join } from "node:path";
import { BubblewrapEngine, type Sandbox, withHostLock } from "@holdfast/engine";
import {
  type Build,
  type BuildRequest,
  exportImage,
  type ImageRecord,
  type ImageSandboxRequest,
  type Images,
  importImage,
  type OpenImagesOptions,
  openImages,
  planSandbox,
} from "@holdfast/images";
import type { Recipe, RecipeStep } from "@holdfast/recipe";
import { afterAll, afterEach, beforeAll, beforeEach, expect } from "vitest";
import { assertNoLeaks, type Inventory, OUR_DIRECTORIES, takeInventory } from "../helpers/leaks.js";
import { patienceMs } from "../helpers/scale.js";

export const BASE_MS = patienceMs(300_000);
const BASE_NAME = { owner: null, name: "base", tag: "latest" } as const;
/** The runner of all tests makes a directory for each run and removes it at its end: the files of one run share the base. */
const RUN_DIRECTORY =
  process.env.HOLDFAST_TEST_TOTALS === undefined ? undefined : dirname(process.env.HOLDFAST_TEST_TOTALS);

export interface BaseInUse {
  readonly engine: BubblewrapEngine;
  readonly stateDirectory: string;
  readonly images: Images;
  readonly base: ImageRecord;
  start(
    steps: readonly RecipeStep[],
    request?: Partial<BuildRequest> & { readonly more?: Partial<Recipe> },
  ): Promise<Build>;
  /** A sandbox of an image, which goes with the test. */
  create(image: ImageRecord, request?: ImageSandboxRequest): Promise<Sandbox>;
}

/** Call it at the top of a describe block; the returned object is filled before its tests. */
export function useBase(options: () => Pick<OpenImagesOptions, "builds"> = () => ({})): BaseInUse {
  const inUse = {} as { -readonly [K in keyof BaseInUse]: BaseInUse[K] };
  let beforeAnything: Inventory;
  let beforeTest: Inventory;
  beforeAll(async () => {
    beforeAnything = takeInventory();
    inUse.stateDirectory = mkdtempSync(OUR_DIRECTORIES);
    inUse.engine = await BubblewrapEngine.open({ stateDirectory: inUse.stateDirectory });
    const { engine, stateDirectory } = inUse;
    inUse.images = await openImages({ engine, stateDirectory, ...options() });
    inUse.base = await provideBase(inUse.images);
    inUse.start = (steps, { more, ...request } = {}) =>
      inUse.images.builder.start({
        recipe: { version: 1, base: { kind: "base" }, steps, stages: [], start: null, ...more },
        owner: null,
        ...request,
      });
    inUse.create = (image, request = {}) =>
      engine.create({ ...planSandbox(image, request).spec, whenOwnerDies: "end" });
  }, BASE_MS);
  beforeEach(() => {
    beforeTest = takeInventory();
  });
  afterEach(async () => {
    const { engine, images } = inUse;
    await Promise.all(engine.list().map((sandbox) => sandbox.kill("the end of the test")));
    expect(engine.stopped()).toEqual([]);
    expect(readdirSync(join(images.store.directory, "builds", "by-hash"))).toEqual([]);
    await assertNoLeaks(beforeTest);
  }, patienceMs(30_000));
  afterAll(async () => {
    const { engine, images, stateDirectory } = inUse;
    await images?.close();
    await engine?.close({ sandboxes: "kill" });
    rmSync(stateDirectory, { recursive: true, force: true });
    await assertNoLeaks(beforeAnything);
  }, patienceMs(60_000));
  return inUse;
}

/** From what another file of this run has built, else built here. */
async function provideBase(images: Images): Promise<ImageRecord> {
  if (RUN_DIRECTORY === undefined) return buildBase(images);
  const archive = join(RUN_DIRECTORY, "base.tar");
  return withHostLock(join(RUN_DIRECTORY, "base.lock"), async () => {
    if (existsSync(archive)) return importImage(images.context, { path: archive }, { owner: null, names: [BASE_NAME] });
    const base = await buildBase(images);
    await shareBase(images, base);
    return base;
  });
}

/** For the other files of this run. */
export async function shareBase(images: Images, base: ImageRecord): Promise<void> {
  if (RUN_DIRECTORY === undefined) return;
  const path = join(RUN_DIRECTORY, "base.tar");
  await exportImage(images.context, base, { format: "oci", to: { path: `${path}.new` } });
  renameSync(`${path}.new`, path);
}

async function buildBase({ bases }: Images): Promise<ImageRecord> {
  return bases.resolve({ kind: "base" }, { owner: null, onLine: () => {}, signal: new AbortController().signal });
}
