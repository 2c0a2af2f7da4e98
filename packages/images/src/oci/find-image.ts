/** Which image of an archive is meant, and which of its files it is made of. */
import type { Digest } from "@holdfast/recipe";
import { assertDigest, digestOf, hexOf, shortDigest } from "../layers/digest.js";
import { type ArchiveFiles, missingFile, readRequired } from "./archive-files.js";
import { parseConfig } from "./config.js";
import { parseManifest } from "./parse-manifest.js";
import { choosePlatform, formatPlatform, hostPlatform, isAttestation, isSamePlatform } from "./platform.js";
import {
  imageInvalid,
  isAbsent,
  parseJson,
  readArray,
  readObject,
  readOptionalStrings,
  readString,
} from "./read-json.js";
import {
  CONTAINERD_NAME,
  type Descriptor,
  INDEX_MEDIA_TYPES,
  MANIFEST_MEDIA_TYPES,
  MAX_CONFIG_BYTES,
  MAX_LAYERS,
  MAX_MANIFEST_BYTES,
  MEDIA_TYPES,
  type OciConfig,
  type Platform,
  REF_NAME,
} from "./types.js";

const MAX_IMAGES = 1024;
const MAX_NAMES = 1024;
const MAX_NESTING = 4;
const MAX_LISTED = 10;

export interface FoundLayer {
  /** Its name in the archive. */
  readonly file: string;
  /** Of the file as it is, where the archive promises one. */
  readonly digest: Digest | null;
  readonly sizeBytes: number;
  readonly diffId: Digest;
}

export interface FoundImage {
  readonly configDigest: Digest;
  readonly config: OciConfig;
  /** Lowest first. */
  readonly layers: readonly FoundLayer[];
  /** What the archive calls it. */
  readonly names: readonly string[];
}

export interface FindImageOptions {
  /** A name, or a digest's first digits, for an archive of several images. */
  readonly reference?: string | undefined;
  readonly platform?: Platform | undefined;
}

interface Candidate {
  readonly names: string[];
  readonly digests: readonly Digest[];
  resolve(): Promise<Omit<FoundImage, "names">>;
}

export async function findImage(files: ArchiveFiles, options: FindImageOptions = {}): Promise<FoundImage> {
  const index = await files.read("index.json", { maxBytes: MAX_MANIFEST_BYTES });
  const docker = await files.read("manifest.json", { maxBytes: MAX_MANIFEST_BYTES });
  const dockerImages = docker === undefined ? [] : parseDockerManifest(docker);
  let candidates: Candidate[];
  // An archive of both kinds says more as an OCI layout: digests of every blob, and platforms.
  if (index !== undefined) candidates = ociCandidates(files, index, options);
  else if (docker !== undefined) candidates = dockerImages.map((image) => dockerCandidate(files, image));
  else throw await notAnImage(files);
  const candidate = choose(candidates, options.reference);
  const found = await candidate.resolve();
  const alsoCalled = dockerImages
    .filter(({ config }) => promisedDigest(config) === found.configDigest)
    .flatMap(({ names }) => names);
  assertPlatform(found.config, options.platform);
  return { ...found, names: [...new Set([...candidate.names, ...alsoCalled].filter(isFullName).map(normalizeName))] };
}

async function notAnImage(files: ArchiveFiles) {
  if ((await files.sizeBytes("repositories")) !== undefined) {
    return imageInvalid("the archive was written by a Docker older than 1.10", "Save it again with a current one.");
  }
  return imageInvalid(
    "there is no image in it: neither index.json nor manifest.json",
    "An image comes as an OCI layout or as what `docker save` writes. What `docker export` writes is a container's files.",
  );
}

/** A `ref.name` may be a tag alone, which helps to choose an image and names none. */
function isFullName(name: string): boolean {
  return /[:/]/.test(name);
}

/** As people write them: Docker Hub is left out, the tag is not. */
export function normalizeName(name: string): string {
  const bare = name.replace(/^(?:index\.)?docker\.io\/(?:library\/)?/, "");
  return bare.includes("@") || bare.lastIndexOf(":") > bare.lastIndexOf("/") ? bare : `${bare}:latest`;
}

function choose(candidates: readonly Candidate[], reference: string | undefined): Candidate {
  const list = candidates
    .slice(0, MAX_LISTED)
    .map(
      ({ names, digests }) =>
        names.map(normalizeName).join(", ") || digests.map(shortDigest).join(", ") || "one without a name",
    )
    .join("; ");
  const details = { images: candidates.slice(0, MAX_LISTED).map(({ names }) => names) };
  const wanted = reference === undefined ? candidates : candidates.filter((candidate) => isMeant(candidate, reference));
  const only = wanted[0];
  if (only !== undefined && wanted.length === 1) return only;
  if (candidates.length === 0) throw imageInvalid("there is no image in it");
  if (reference !== undefined) {
    throw imageInvalid(
      `${wanted.length === 0 ? "no image" : "more than one image"} in it is called ${JSON.stringify(reference.slice(0, 200))}`,
      `There is: ${list}.`,
      details,
    );
  }
  throw imageInvalid(`there are ${candidates.length} images in it`, `Say which one: ${list}.`, details);
}

function isMeant({ names, digests }: Candidate, reference: string): boolean {
  const digits = reference.replace(/^sha256:/, "");
  if (/^[0-9a-f]{12,64}$/.test(digits) && digests.some((digest) => hexOf(digest).startsWith(digits))) return true;
  return names.some((name) => name === reference || normalizeName(name) === normalizeName(reference));
}

function assertPlatform(config: OciConfig, wanted: Platform | undefined): void {
  if (isSamePlatform(config, wanted ?? hostPlatform())) return;
  throw imageInvalid(
    `the image is for ${formatPlatform(config)}, not for ${formatPlatform(wanted ?? hostPlatform())}`,
    `Import it with --platform ${formatPlatform(config)} to have it all the same.`,
    { platform: formatPlatform(config) },
  );
}

// Docker's own archives.

interface DockerImage {
  readonly config: string;
  readonly names: readonly string[];
  readonly layers: readonly string[];
}

function parseDockerManifest(bytes: Buffer): DockerImage[] {
  return readArray(parseJson(bytes, "manifest.json"), "manifest.json", MAX_IMAGES).map((entry, index) => {
    const where = `manifest.json[${index}]`;
    const object = readObject(entry, where);
    return {
      config: readString(object.Config, `${where}.Config`),
      names: readOptionalStrings(object.RepoTags, `${where}.RepoTags`, MAX_NAMES) ?? [],
      layers: isAbsent(object.Layers)
        ? []
        : readArray(object.Layers, `${where}.Layers`, MAX_LAYERS).map((layer, at) =>
            readString(layer, `${where}.Layers[${at}]`),
          ),
    };
  });
}

/** What a config's or blob's file name promises of its content: `<hex>.json`, `blobs/sha256/<hex>`, `sha256:<hex>`. */
function promisedDigest(name: string): Digest | undefined {
  const hex = /(?:^|\/|^sha256:)([0-9a-f]{64})(?:\.json)?$/.exec(name)?.[1];
  return hex === undefined ? undefined : `sha256:${hex}`;
}

function dockerCandidate(files: ArchiveFiles, image: DockerImage): Candidate {
  const promised = promisedDigest(image.config);
  return {
    names: [...image.names],
    digests: promised === undefined ? [] : [promised],
    async resolve() {
      const bytes = await readRequired(files, image.config, MAX_CONFIG_BYTES);
      const configDigest = digestOf(bytes);
      if (promised !== undefined) assertDigest(configDigest, promised, "the image's config");
      const config = parseConfig(bytes);
      const layers = await matchLayers(
        files,
        config,
        image.layers.map((file) => ({
          file,
          digest: file.startsWith("blobs/sha256/") ? (promisedDigest(file) ?? null) : null,
          sizeBytes: undefined,
        })),
      );
      return { configDigest, config, layers };
    },
  };
}

async function matchLayers(
  files: ArchiveFiles,
  config: OciConfig,
  layers: readonly { readonly file: string; readonly digest: Digest | null; readonly sizeBytes: number | undefined }[],
): Promise<FoundLayer[]> {
  const diffIds = config.rootfs.diff_ids;
  if (diffIds.length !== layers.length) {
    throw imageInvalid(`the image has ${layers.length} layers, but its config speaks of ${diffIds.length}`);
  }
  const found: FoundLayer[] = [];
  for (const [index, { file, digest, sizeBytes: promised }] of layers.entries()) {
    const sizeBytes = await files.sizeBytes(file);
    if (sizeBytes === undefined) throw missingFile(file);
    if (promised !== undefined && promised !== sizeBytes) {
      throw imageInvalid(
        `layers[${index}]: ${sizeBytes} bytes, but its manifest promises ${promised}`,
        "Fetch it again.",
      );
    }
    found.push({ file, digest, sizeBytes, diffId: diffIds[index] as Digest });
  }
  return found;
}

// OCI layouts.

function blobFile(digest: Digest): string {
  return `blobs/sha256/${hexOf(digest)}`;
}

async function readBlob(files: ArchiveFiles, descriptor: Descriptor, maxBytes: number, what: string): Promise<Buffer> {
  const bytes = await readRequired(files, blobFile(descriptor.digest), maxBytes);
  if (bytes.length !== descriptor.size) {
    throw imageInvalid(`${what}: expected ${descriptor.size} bytes, got ${bytes.length}`, "Fetch it again.");
  }
  assertDigest(digestOf(bytes), descriptor.digest, what);
  return bytes;
}

function ociCandidates(files: ArchiveFiles, bytes: Buffer, options: FindImageOptions): Candidate[] {
  const parsed = parseManifest(bytes, { what: "index.json", mediaType: MEDIA_TYPES.ociIndex });
  if (parsed.kind !== "index") throw imageInvalid("index.json: expected an index, got an image's manifest");
  const groups = new Map<string, { names: Set<string>; descriptors: Map<Digest, Descriptor> }>();
  for (const descriptor of parsed.index.manifests) {
    if (isAttestation(descriptor) || !isImage(descriptor)) continue;
    const names = namesOf(descriptor);
    // The same image under two names is one; so are those of one name, or of none, that differ in their platform.
    const same = [...groups.values()].find(({ descriptors }) => descriptors.has(descriptor.digest));
    const key = names.join(" ") || (descriptor.platform === undefined ? descriptor.digest : "");
    const group = same ?? groups.get(key) ?? { names: new Set(), descriptors: new Map() };
    for (const name of names) group.names.add(name);
    group.descriptors.set(descriptor.digest, descriptor);
    groups.set(key, group);
  }
  return [...new Set(groups.values())].map(({ names, descriptors }) => ({
    names: [...names],
    digests: [...descriptors.keys()],
    resolve: () => resolveDescriptors(files, [...descriptors.values()], options),
  }));
}

function isImage({ mediaType }: Descriptor): boolean {
  return (
    INDEX_MEDIA_TYPES.includes(mediaType) ||
    MANIFEST_MEDIA_TYPES.includes(mediaType) ||
    mediaType.includes("distribution.manifest.v1+")
  );
}

function namesOf({ annotations }: Descriptor): string[] {
  const full = annotations?.[CONTAINERD_NAME];
  if (full !== undefined) return [full];
  const name = annotations?.[REF_NAME];
  return name === undefined ? [] : [name];
}

async function resolveDescriptors(
  files: ArchiveFiles,
  descriptors: readonly Descriptor[],
  { platform }: FindImageOptions,
): Promise<Omit<FoundImage, "names">> {
  let descriptor = descriptors.length === 1 ? descriptors[0] : undefined;
  descriptor ??= choosePlatform(descriptors, { wanted: platform, what: "index.json" });
  for (let depth = 0; depth < MAX_NESTING; depth++) {
    const what = `manifest ${shortDigest(descriptor.digest)}`;
    const bytes = await readBlob(files, descriptor, MAX_MANIFEST_BYTES, what);
    const parsed = parseManifest(bytes, { what, mediaType: descriptor.mediaType });
    if (parsed.kind === "index") {
      descriptor = choosePlatform(parsed.index.manifests, { wanted: platform, what });
      continue;
    }
    const { manifest } = parsed;
    const config = parseConfig(await readBlob(files, manifest.config, MAX_CONFIG_BYTES, "the image's config"));
    const layers = await matchLayers(
      files,
      config,
      manifest.layers.map(({ digest, size }) => ({ file: blobFile(digest), digest, sizeBytes: size })),
    );
    return { configDigest: manifest.config.digest, config, layers };
  }
  throw imageInvalid(`an index of indexes, more than ${MAX_NESTING} deep`);
}
