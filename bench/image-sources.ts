/** One image in all the forms that it is moved in, and the bytes in them told to leave memory. */
import { execFile } from "node:child_process";
import { createHash } from "node:crypto";
import { mkdirSync, renameSync, rmSync, statfsSync, statSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { promisify } from "node:util";
import { hostArchitecture } from "@holdfast/images";
import { findProgram, spawnAndWait } from "./processes.js";

const run = promisify(execFile);
const FILES = 4;
/** The layout, two archives, a registry's copy, a layer of ours, one result, and what peers keep meanwhile. */
const COPIES = 9;
export const SKOPEO = ["skopeo", "--insecure-policy"];

export interface ImageSources {
  /** Of the layer's tar, which is nearly all there is. */
  readonly sizeBytes: number;
  readonly layerDigest: string;
  /** An OCI layout as a directory, for skopeo: `oci:DIRECTORY:bench`. */
  readonly layout: string;
  /** As `docker save` wrote them for years: one tar per layer, and manifest.json. */
  readonly dockerArchive: string;
  readonly ociArchive: string;
}

/** Random files, so that nothing on the way can save itself work. */
export async function makeSources(directory: string, gib: number): Promise<ImageSources> {
  if (findProgram("skopeo") === undefined) throw new Error("skopeo is not installed, which makes the archives");
  mkdirSync(directory);
  const bytes = Math.round(gib * 1024 ** 3);
  const { bavail, bsize } = statfsSync(directory);
  if (bavail * bsize < COPIES * bytes) {
    const needed = `${Math.ceil((COPIES * bytes) / 1024 ** 3)} GiB`;
    throw new Error(
      `${needed} of disk are needed below ${directory}; choose another TMPDIR or less HOLDFAST_BENCH_GIB`,
    );
  }
  const root = join(directory, "root");
  mkdirSync(root);
  for (let number = 0; number < FILES; number++) {
    const script = 'head -c "$1" /dev/urandom > "$2"';
    await spawnAndWait(["sh", "-euc", script, "fill", String(Math.floor(bytes / FILES)), join(root, `data-${number}`)]);
  }
  const tar = join(directory, "layer.tar");
  await spawnAndWait(["tar", "--remove-files", "-C", directory, "-cf", tar, "--transform=s,^root,.,", "root"]);
  const layout = join(directory, "layout");
  const blob = await makeLayout(layout, tar);
  const image = `oci:${layout}:bench`;
  const dockerArchive = join(directory, "docker.tar");
  const ociArchive = join(directory, "oci.tar");
  await spawnAndWait([...SKOPEO, "copy", "-q", image, `docker-archive:${dockerArchive}:bench:latest`]);
  await spawnAndWait(["tar", "-C", layout, "-cf", ociArchive, "."]);
  return { sizeBytes: blob.size, layerDigest: blob.digest, layout, dockerArchive, ociArchive };
}

/** Takes the tar over. */
async function makeLayout(layout: string, tar: string): Promise<{ digest: string; size: number }> {
  const blobs = join(layout, "blobs/sha256");
  mkdirSync(blobs, { recursive: true });
  const { stdout } = await run("sha256sum", [tar]);
  const hex = stdout.split(" ")[0] ?? "";
  const layer = { digest: `sha256:${hex}`, size: statSync(tar).size };
  renameSync(tar, join(blobs, hex));
  const put = (value: unknown) => {
    const text = JSON.stringify(value);
    const name = createHash("sha256").update(text).digest("hex");
    writeFileSync(join(blobs, name), text);
    return { digest: `sha256:${name}`, size: Buffer.byteLength(text) };
  };
  const type = "application/vnd.oci.image";
  const rootfs = { type: "layers", diff_ids: [layer.digest] };
  const config = put({ architecture: hostArchitecture(), os: "linux", config: { Cmd: ["/bin/sh"] }, rootfs });
  const manifest = put({
    schemaVersion: 2,
    mediaType: `${type}.manifest.v1+json`,
    config: { mediaType: `${type}.config.v1+json`, ...config },
    layers: [{ mediaType: `${type}.layer.v1.tar`, ...layer }],
  });
  const annotations = { "org.opencontainers.image.ref.name": "bench" };
  const manifests = [{ mediaType: `${type}.manifest.v1+json`, ...manifest, annotations }];
  writeFileSync(join(layout, "index.json"), JSON.stringify({ schemaVersion: 2, manifests }));
  writeFileSync(join(layout, "oci-layout"), JSON.stringify({ imageLayoutVersion: "1.0.0" }));
  return layer;
}

/** Everything on this file system is on its disk. */
export async function sync(path: string): Promise<void> {
  await spawnAndWait(["sync", "-f", path]);
}

/** What is read from now on comes from the disk, as it would on the day after. Nobody else's files leave memory. */
export async function forget(...paths: readonly string[]): Promise<void> {
  for (const path of paths) {
    await sync(path);
    await spawnAndWait(["dd", `if=${path}`, "iflag=nocache", "count=0", "status=none"]);
  }
}

/** The yardstick: the same bytes read and written once. */
export async function cat(sources: readonly string[], to: string): Promise<void> {
  await spawnAndWait(["sh", "-euc", 'to=$1; shift; cat "$@" > "$to"', "cat", to, ...sources]);
}

export function remove(path: string): void {
  rmSync(path, { recursive: true, force: true });
}
