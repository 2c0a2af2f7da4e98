/** An engine and the images of its state directory for each test, and nothing left of either after it. */
import { execFileSync } from "node:child_process";
import {
  chmodSync,
  chownSync,
  copyFileSync,
  existsSync,
  mkdirSync,
  mkdtempSync,
  rmSync,
  symlinkSync,
  writeFileSync,
} from "node:fs";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { createLayerId, type Engine, type LayerId } from "@holdfast/engine";
import type { ImageConfig, ImageRecord } from "@holdfast/images";
import { afterEach, beforeEach, onTestFinished } from "vitest";
import { createImageId } from "../../packages/images/src/store/ids.js";
import { type FileImageStore, openImageStore } from "../../packages/images/src/store/open-image-store.js";
import type { ImageStoreOptions } from "../../packages/images/src/store/parts.js";
import { OUR_DIRECTORIES } from "./leaks.js";
import { type EngineInUse, useEngine } from "./use-engine.js";

const BUSYBOX = "/bin/busybox";

export const PLAIN_CONFIG: ImageConfig = {
  env: { PATH: "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin" },
  workdir: null,
  user: null,
  entrypoint: null,
  cmd: null,
  exposedPorts: [],
  labels: {},
  start: null,
  architecture: process.arch === "x64" ? "amd64" : process.arch,
  os: "linux",
};

export type ImageParts = Partial<ImageRecord> & Pick<ImageRecord, "layers">;

/** A record that is right in every field; what the test is about is given. */
export function imageRecord(parts: ImageParts): ImageRecord {
  const id = parts.id ?? createImageId();
  return {
    version: 1,
    id,
    kind: "imported",
    digest: `sha256:${Buffer.from(id).toString("hex").padEnd(64, "0")}`,
    owner: null,
    createdAt: new Date().toISOString(),
    below: null,
    disk: null,
    config: PLAIN_CONFIG,
    floor: null,
    parent: null,
    fromSandbox: null,
    buildId: null,
    limits: {},
    ...parts,
  };
}

/** Images over an engine, and a quick way to make some. */
export interface TestImages {
  readonly store: FileImageStore;
  /** The same images, as another process would open them. */
  reopen(options?: Partial<ImageStoreOptions>): FileImageStore;
  /** A layer that `fill` puts files into; a small file if absent. */
  addLayer(fill?: (directory: string) => void): Promise<LayerId>;
  /** An image, whose layer is made unless it is given. */
  addImage(parts?: Partial<ImageRecord>): Promise<ImageRecord>;
  /** An image that sandboxes can run: `tinyRootfs` as its one layer. */
  addTinyImage(parts?: Partial<ImageRecord>): Promise<ImageRecord>;
}

export interface ImagesInUse extends EngineInUse, TestImages {}

export function openTestImages(
  engine: Engine,
  stateDirectory: string,
  options: Partial<ImageStoreOptions> = {},
): TestImages {
  const { layers } = engine;
  const reopen: TestImages["reopen"] = (more = {}) => openImageStore({ stateDirectory, layers, ...options, ...more });
  const store = reopen();
  const addLayer: TestImages["addLayer"] = async (fill = fillWithFile) => {
    const draft = await layers.draft(createLayerId());
    fill(draft.directory);
    await draft.commit();
    return draft.id;
  };
  const addImage: TestImages["addImage"] = async (parts = {}) => {
    const record = imageRecord({ ...parts, layers: parts.layers ?? [await addLayer()] });
    store.put(record);
    return record;
  };
  const addTinyImage: TestImages["addTinyImage"] = async (parts = {}) =>
    addImage({ layers: [await addLayer((directory) => void tinyRootfs(directory))], ...parts });
  return { store, reopen, addLayer, addImage, addTinyImage };
}

function fillWithFile(directory: string): void {
  writeFileSync(join(directory, "file"), "content");
}

/** Call it at the top of a describe block; the returned object is filled before each test. */
export function useImages(
  options: { readonly pool?: "btrfs" | "dir"; readonly store?: Partial<ImageStoreOptions> } = {},
): ImagesInUse {
  const inUse = useEngine(options.pool === undefined ? {} : { pool: options.pool });
  beforeEach(() => {
    Object.assign(inUse, openTestImages(inUse.engine, inUse.stateDirectory, options.store));
  });
  // Images outlive whoever made them; what they stand on has to go before the engine counts its layers.
  afterEach(async () => {
    const { engine } = inUse;
    await Promise.all(engine.list().map((sandbox) => sandbox.kill("the end of the test")));
    for (const layer of engine.layers.list()) await engine.layers.remove(layer);
  });
  return inUse as ImagesInUse;
}

/** A directory that goes with the test. */
export function temporaryDirectory(): string {
  const directory = mkdtempSync(OUR_DIRECTORIES);
  onTestFinished(() => rmSync(directory, { recursive: true, force: true }));
  return directory;
}

/** A root file system of 2 MB: busybox with its applets, root and user. Into the directory given, or one for this test. */
export function tinyRootfs(directory: string = temporaryDirectory()): string {
  chmodSync(directory, 0o755);
  for (const name of ["bin", "dev", "etc", "home", "home/user", "proc", "root", "run", "sys", "tmp", "usr", "var"]) {
    mkdirSync(join(directory, name), { recursive: true, mode: 0o755 });
  }
  chmodSync(join(directory, "root"), 0o700);
  chmodSync(join(directory, "tmp"), 0o1777);
  chownSync(join(directory, "home/user"), 1000, 1000);
  copyFileSync(BUSYBOX, join(directory, "bin/busybox"));
  chmodSync(join(directory, "bin/busybox"), 0o755);
  for (const applet of appletNames()) symlinkSync("busybox", join(directory, "bin", applet));
  // Scripts name their interpreters there.
  symlinkSync("../bin", join(directory, "usr/bin"));
  symlinkSync("bin", join(directory, "sbin"));
  writeFileSync(
    join(directory, "etc/passwd"),
    "root:x:0:0:root:/root:/bin/sh\nuser:x:1000:1000:user:/home/user:/bin/sh\n",
  );
  writeFileSync(join(directory, "etc/group"), "root:x:0:\nuser:x:1000:\n");
  return directory;
}

let applets: readonly string[] | undefined;

function appletNames(): readonly string[] {
  applets ??= execFileSync(BUSYBOX, ["--list"], { encoding: "utf8" })
    .split("\n")
    .filter((name) => name !== "" && name !== "busybox");
  return applets;
}

/** For scripts of tests/fixtures that work on images in a process of their own. Up to date in any case. */
export function buildImages(): void {
  const root = fileURLToPath(new URL("../..", import.meta.url));
  try {
    execFileSync(process.execPath, [`${root}node_modules/typescript/bin/tsc`, "-b", "packages/images"], { cwd: root });
  } catch (error) {
    // Type errors are the type check's business; what matters here is that there is something to run.
    if (!existsSync(`${root}packages/images/dist/store/open-image-store.js`)) throw error;
  }
}
