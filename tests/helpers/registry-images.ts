/** Images for registries: made by hand as OCI layouts, moved by skopeo, and a context for moving them ourselves. */
import { execFile, execFileSync } from "node:child_process";
import { createHash, randomBytes } from "node:crypto";
import { existsSync, mkdirSync, readdirSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { promisify } from "node:util";
import { gzipSync } from "node:zlib";
import type { ImagesContext } from "@holdfast/images";
import { afterEach, expect } from "vitest";
import { type ImagesInUse, temporaryDirectory, tinyRootfs, useImages } from "./use-images.js";

export const MIB = 1024 * 1024;
export const TAR_PROGRAM = fileURLToPath(new URL("../../guest/build/holdfast-tar", import.meta.url));

export function contextOf(inUse: Pick<ImagesInUse, "engine" | "store" | "stateDirectory">): ImagesContext {
  return {
    engine: inUse.engine,
    store: inUse.store,
    stateDirectory: inUse.stateDirectory,
    scratchDirectory: join(inUse.store.directory, "scratch"),
    tarProgram: TAR_PROGRAM,
    log: { info: () => {}, warn: () => {} },
  };
}

/** As `useImages`, and the images go with the test. */
export function useRegistryImages(): ImagesInUse {
  const inUse = useImages({ pool: "dir", store: { graceMs: 0 } });
  afterEach(async () => {
    expectNoOrphans(inUse);
    for (const { id } of inUse.store.list()) await inUse.store.remove(id);
  });
  return inUse;
}

/** Whatever failed: a layer is there because an image needs it. */
function expectNoOrphans({ engine, store }: Pick<ImagesInUse, "engine" | "store">): void {
  const needed = new Set(store.list().flatMap((image) => [...image.layers, image.disk]));
  expect(engine.layers.list().filter((layer) => !needed.has(layer))).toEqual([]);
}

/** Nothing temporary is left, neither files nor claims. */
export function expectNothingLeft(inUse: Pick<ImagesInUse, "engine" | "store">): void {
  expectNoOrphans(inUse);
  for (const name of ["scratch", "claims", "tmp"]) {
    const directory = join(inUse.store.directory, name);
    expect({ name, left: existsSync(directory) ? readdirSync(directory) : [] }).toEqual({ name, left: [] });
  }
}

export interface MadeLayer {
  readonly tar: Buffer;
}

/** A layer of files, by name; names ending with `/` are directories. */
export function makeLayer(files: Readonly<Record<string, string | Buffer>>): MadeLayer {
  const directory = temporaryDirectory();
  for (const [name, content] of Object.entries(files)) {
    const path = join(directory, name);
    mkdirSync(join(path, ".."), { recursive: true });
    if (name.endsWith("/")) mkdirSync(path);
    else writeFileSync(path, content, { mode: 0o755 });
  }
  return { tar: tarOf(directory) };
}

let tinyTar: Buffer | undefined;

/** Busybox and its applets: what sandboxes can run on. */
export function tinyLayer(): MadeLayer {
  tinyTar ??= tarOf(tinyRootfs());
  return { tar: tinyTar };
}

export function randomLayer(sizeBytes: number, name = "data"): MadeLayer {
  return makeLayer({ [name]: randomBytes(sizeBytes) });
}

function tarOf(directory: string): Buffer {
  return execFileSync("tar", ["--sort=name", "--mtime=@0", "--numeric-owner", "-C", directory, "-c", "."], {
    maxBuffer: 1024 * MIB,
  });
}

export function sha256(content: Uint8Array): `sha256:${string}` {
  return `sha256:${createHash("sha256").update(content).digest("hex")}`;
}

export interface MadeImage {
  readonly directory: string;
  readonly manifest: Buffer;
  readonly manifestDigest: `sha256:${string}`;
  readonly config: Buffer;
  /** Lowest first, as they are in the layout. */
  readonly blobs: readonly { readonly digest: `sha256:${string}`; readonly content: Buffer }[];
}

const hostArchitecture = process.arch === "x64" ? "amd64" : process.arch;

/** An OCI layout with one image, called `latest`. */
export function makeImage(
  layers: readonly MadeLayer[],
  options: {
    readonly architecture?: string;
    readonly compression?: "none" | "gzip";
    readonly env?: readonly string[];
    readonly cmd?: readonly string[];
  } = {},
): MadeImage {
  const directory = temporaryDirectory();
  mkdirSync(join(directory, "blobs/sha256"), { recursive: true });
  const put = (content: Buffer) => {
    const digest = sha256(content);
    writeFileSync(join(directory, "blobs/sha256", digest.slice(7)), content);
    return { digest, size: content.length };
  };
  const gzip = options.compression === "gzip";
  const blobs = layers.map(({ tar }) => (gzip ? gzipSync(tar, { level: 1 }) : tar));
  const config = Buffer.from(
    JSON.stringify({
      created: "2026-01-01T00:00:00Z",
      architecture: options.architecture ?? hostArchitecture,
      os: "linux",
      config: { Env: options.env ?? ["PATH=/bin"], Cmd: options.cmd ?? ["/bin/sh"] },
      rootfs: { type: "layers", diff_ids: layers.map(({ tar }) => sha256(tar)) },
    }),
  );
  const manifest = Buffer.from(
    JSON.stringify({
      schemaVersion: 2,
      mediaType: "application/vnd.oci.image.manifest.v1+json",
      config: { mediaType: "application/vnd.oci.image.config.v1+json", ...put(config) },
      layers: blobs.map((blob) => ({
        mediaType: `application/vnd.oci.image.layer.v1.tar${gzip ? "+gzip" : ""}`,
        ...put(blob),
      })),
    }),
  );
  const entry = { mediaType: "application/vnd.oci.image.manifest.v1+json", ...put(manifest) };
  const index = {
    schemaVersion: 2,
    manifests: [{ ...entry, annotations: { "org.opencontainers.image.ref.name": "latest" } }],
  };
  writeFileSync(join(directory, "oci-layout"), '{"imageLayoutVersion":"1.0.0"}');
  writeFileSync(join(directory, "index.json"), JSON.stringify(index));
  return {
    directory,
    manifest,
    manifestDigest: sha256(manifest),
    config,
    blobs: blobs.map((content) => ({ digest: sha256(content), content })),
  };
}

/** Skopeo, quietly; its output. Not in our own thread, which may be serving what it asks for. */
export async function skopeo(...args: readonly string[]): Promise<string> {
  const { stdout } = await promisify(execFile)("skopeo", ["--insecure-policy", ...args], {
    encoding: "utf8",
    timeout: 60_000,
    maxBuffer: 64 * MIB,
  });
  return stdout;
}

export async function skopeoPush(image: MadeImage, reference: string, ...more: readonly string[]): Promise<void> {
  await skopeo(
    "copy",
    "-q",
    "--dest-tls-verify=false",
    ...more,
    `oci:${image.directory}:latest`,
    `docker://${reference}`,
  );
}
