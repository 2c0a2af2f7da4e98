import { parseDigest } from "../layers/digest.js";
import {
  imageInvalid,
  isAbsent,
  type JsonObject,
  parseJson,
  readArray,
  readObject,
  readOptionalString,
  readOptionalStringMap,
  readSize,
  readString,
} from "./read-json.js";
import {
  CONFIG_MEDIA_TYPES,
  type Descriptor,
  INDEX_MEDIA_TYPES,
  LAYER_COMPRESSIONS,
  MANIFEST_MEDIA_TYPES,
  MAX_CONFIG_BYTES,
  MAX_LAYERS,
  MAX_MANIFEST_BYTES,
  MEDIA_TYPES,
  type OciIndex,
  type OciManifest,
  type Platform,
} from "./types.js";

const MAX_INDEX_ENTRIES = 4096;
const MAX_ANNOTATIONS = 1024;

export type ParsedManifest =
  | { readonly kind: "manifest"; readonly manifest: OciManifest }
  | { readonly kind: "index"; readonly index: OciIndex };

/** `mediaType`: what whoever gave it to us called it, if they did; what it says itself must agree. */
export function parseManifest(
  bytes: Uint8Array,
  options: { readonly what: string; readonly mediaType?: string | undefined },
): ParsedManifest {
  const { what } = options;
  if (bytes.length > MAX_MANIFEST_BYTES) {
    throw imageInvalid(`${what}: ${bytes.length} bytes, at most ${MAX_MANIFEST_BYTES} are allowed`);
  }
  const document = readObject(parseJson(bytes, what), what);
  const own = readOptionalString(document.mediaType, `${what}: mediaType`);
  const promised = options.mediaType?.split(";")[0]?.trim();
  refuseSchema1(document, own ?? promised, what);
  if (document.schemaVersion !== 2) {
    throw imageInvalid(`${what}: schemaVersion: expected 2, got ${String(document.schemaVersion).slice(0, 50)}`);
  }
  // One document read as two different things is how a digest comes to vouch for what nobody looked at.
  if (own !== undefined && isKnown(promised) && own !== promised) {
    throw imageInvalid(`${what}: it says that it is ${own}, but it came as ${promised}`);
  }
  const mediaType = own ?? (isKnown(promised) ? promised : guess(document, what));
  if (INDEX_MEDIA_TYPES.includes(mediaType)) {
    if (!isAbsent(document.layers)) throw imageInvalid(`${what}: an index with layers`);
    return { kind: "index", index: parseIndex(document, mediaType, what) };
  }
  if (MANIFEST_MEDIA_TYPES.includes(mediaType)) {
    if (!isAbsent(document.manifests)) throw imageInvalid(`${what}: a manifest with manifests`);
    return { kind: "manifest", manifest: parseImageManifest(document, mediaType, what) };
  }
  throw imageInvalid(`${what}: unknown kind of manifest ${JSON.stringify(mediaType.slice(0, 200))}`);
}

function isKnown(mediaType: string | undefined): mediaType is string {
  return mediaType !== undefined && (INDEX_MEDIA_TYPES.includes(mediaType) || MANIFEST_MEDIA_TYPES.includes(mediaType));
}

/** OCI lets both leave out their media type. */
function guess(document: JsonObject, what: string): string {
  if (!isAbsent(document.manifests)) return MEDIA_TYPES.ociIndex;
  if (!isAbsent(document.config)) return MEDIA_TYPES.ociManifest;
  throw imageInvalid(`${what}: neither an image's manifest nor an index of some`);
}

function refuseSchema1(document: JsonObject, mediaType: string | undefined, what: string): void {
  if (document.schemaVersion !== 1 && mediaType?.includes("distribution.manifest.v1+") !== true) return;
  throw imageInvalid(
    `${what}: Docker's manifest schema 1 is not supported`,
    "Push the image again with a current tool, or copy it with skopeo: --format v2s2.",
  );
}

function parseIndex(document: JsonObject, mediaType: string, what: string): OciIndex {
  const manifests = readArray(document.manifests, `${what}: manifests`, MAX_INDEX_ENTRIES).map((entry, index) =>
    parseDescriptor(entry, `${what}: manifests[${index}]`),
  );
  return {
    schemaVersion: 2,
    mediaType,
    manifests,
    annotations: readOptionalStringMap(document.annotations, `${what}: annotations`, MAX_ANNOTATIONS),
  };
}

function parseImageManifest(document: JsonObject, mediaType: string, what: string): OciManifest {
  const config = parseDescriptor(document.config, `${what}: config`);
  if (!CONFIG_MEDIA_TYPES.includes(config.mediaType)) {
    throw imageInvalid(
      `${what}: config: ${JSON.stringify(config.mediaType.slice(0, 200))} is not an image's`,
      "This is some other artifact that is kept where images are, such as a chart or a signature.",
    );
  }
  if (config.size > MAX_CONFIG_BYTES) {
    throw imageInvalid(`${what}: config: ${config.size} bytes, at most ${MAX_CONFIG_BYTES} are allowed`);
  }
  const layers = readArray(document.layers, `${what}: layers`, MAX_LAYERS).map((entry, index) => {
    const where = `${what}: layers[${index}]`;
    const layer = parseDescriptor(entry, where);
    assertLayerMediaType(layer.mediaType, where);
    return layer;
  });
  return {
    schemaVersion: 2,
    mediaType,
    config,
    layers,
    annotations: readOptionalStringMap(document.annotations, `${what}: annotations`, MAX_ANNOTATIONS),
  };
}

function assertLayerMediaType(mediaType: string, where: string): void {
  if (Object.hasOwn(LAYER_COMPRESSIONS, mediaType)) return;
  if (mediaType.includes("encrypted")) throw imageInvalid(`${where}: encrypted layers are not supported`);
  if (mediaType.includes("foreign") || mediaType.includes("nondistributable")) {
    throw imageInvalid(
      `${where}: foreign layers, whose content is kept elsewhere, are not supported`,
      "Such images are usually Windows'.",
    );
  }
  throw imageInvalid(`${where}: unknown kind of layer ${JSON.stringify(mediaType.slice(0, 200))}`);
}

export function parseDescriptor(value: unknown, where: string): Descriptor {
  const object = readObject(value, where);
  return {
    mediaType: readString(object.mediaType, `${where}.mediaType`),
    digest: parseDigest(object.digest, `${where}.digest`),
    size: readSize(object.size, `${where}.size`),
    platform: isAbsent(object.platform) ? undefined : parsePlatformObject(object.platform, `${where}.platform`),
    annotations: readOptionalStringMap(object.annotations, `${where}.annotations`, MAX_ANNOTATIONS),
  };
}

function parsePlatformObject(value: unknown, where: string): Platform {
  const object = readObject(value, where);
  return {
    os: readString(object.os, `${where}.os`),
    architecture: readString(object.architecture, `${where}.architecture`),
    variant: readOptionalString(object.variant, `${where}.variant`),
  };
}
