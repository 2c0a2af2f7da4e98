/** The records' text and back. Whatever a file holds, what comes out is what its type says, or an error that says why not. */
import { type LayerId, parseLayerId } from "@holdfast/engine";
import type { Digest } from "@holdfast/recipe";
import type { ImageConfig, ImageId, ImageName, ImageRecord, LayerRecord, NamedImage, Owner } from "../types.js";
import { isBuildId, isImageId } from "./ids.js";
import { isDigest } from "./reference.js";

const VERSION = 1;

/** Not damaged: another version of this program will understand it. */
export class UnknownVersionError extends Error {
  constructor(version: unknown) {
    super(`it is of version ${JSON.stringify(version)}, and only version ${VERSION} is known here`);
  }
}

export interface StepRecord {
  readonly version: 1;
  readonly chain: Digest;
  readonly layer: LayerId;
}

export interface NameRecord extends ImageName {
  readonly version: 1;
  readonly imageId: ImageId;
  readonly since: string;
}

type Fields = Readonly<Record<string, unknown>>;

const isString = (value: unknown): value is string => typeof value === "string";
const isCount = (value: unknown): value is number => Number.isSafeInteger(value) && (value as number) >= 0;
const isTime = (value: unknown): boolean => isString(value) && !Number.isNaN(Date.parse(value));
const isObject = (value: unknown): value is Fields =>
  typeof value === "object" && value !== null && !Array.isArray(value);
const isStrings = (value: unknown): boolean => Array.isArray(value) && value.every(isString);
const isStringMap = (value: unknown): boolean => isObject(value) && Object.values(value).every(isString);
const orNull =
  (test: (value: unknown) => boolean) =>
  (value: unknown): boolean =>
    value === null || test(value);

function isLayerId(value: unknown): value is LayerId {
  try {
    parseLayerId(value);
    return true;
  } catch {
    return false;
  }
}

type Shape<T> = { readonly [K in keyof Required<T>]: (value: unknown) => boolean };

const configShape: Shape<ImageConfig> = {
  env: isStringMap,
  workdir: orNull(isString),
  user: orNull(isString),
  entrypoint: orNull(isStrings),
  cmd: orNull(isStrings),
  exposedPorts: isStrings,
  labels: isStringMap,
  start: orNull(isObject),
  architecture: isString,
  os: isString,
};

const imageShape: Shape<ImageRecord> = {
  version: (value) => value === VERSION,
  id: isImageId,
  kind: (value) => ["base", "built", "imported", "snapshot"].includes(value as string),
  digest: isDigest,
  owner: orNull(isString),
  createdAt: isTime,
  layers: (value) => Array.isArray(value) && value.every(isLayerId),
  below: orNull((value) => isObject(value) && isString(value.kind)),
  disk: orNull(isLayerId),
  config: (value) => isObject(value) && wrongField(value, configShape) === undefined,
  floor: orNull((value) => isObject(value) && isCount(value.memoryBytes)),
  parent: orNull(isImageId),
  fromSandbox: orNull(isString),
  buildId: orNull(isBuildId),
  limits: (value) => isObject(value) && Object.values(value).every((limit) => limit === undefined || isCount(limit)),
};

const layerShape: Shape<LayerRecord> = {
  version: (value) => value === VERSION,
  id: isLayerId,
  createdAt: isTime,
  diffId: orNull(isDigest),
  sizeBytes: isCount,
  from: isString,
};

const stepShape: Shape<StepRecord> = { version: (value) => value === VERSION, chain: isDigest, layer: isLayerId };

const nameShape: Shape<NameRecord> = {
  version: (value) => value === VERSION,
  owner: orNull(isString),
  name: isString,
  tag: isString,
  imageId: isImageId,
  since: isTime,
};

/** The first field that is not what it has to be. */
function wrongField(value: Fields, shape: Readonly<Record<string, (value: unknown) => boolean>>): string | undefined {
  return Object.entries(shape).find(([field, test]) => !test(value[field]))?.[0];
}

/** The field of an image's record that is not what it has to be. */
export function wrongFieldOfImage(record: unknown): string | undefined {
  return isObject(record) ? wrongField(record, imageShape) : "record";
}

export function wrongFieldOfLayer(record: unknown): string | undefined {
  return isObject(record) ? wrongField(record, layerShape) : "record";
}

function parseRecord<T>(text: string, shape: Shape<T>): T {
  let value: unknown;
  try {
    value = JSON.parse(text);
  } catch {
    throw new Error(text === "" ? "it is empty" : "it is not JSON, perhaps cut off");
  }
  if (!isObject(value)) throw new Error("it is not a record");
  if (isCount(value.version) && value.version > VERSION) throw new UnknownVersionError(value.version);
  const wrong = wrongField(value, shape);
  if (wrong !== undefined) throw new Error(`its field ${wrong} is missing or not what it has to be`);
  return value as T;
}

const inPlace = <T>(value: T, isInPlace: boolean): T => {
  if (!isInPlace) throw new Error("it is another's, in the wrong place");
  return value;
};

export function parseImageRecord(text: string, path: string): ImageRecord {
  const record = parseRecord<ImageRecord>(text, imageShape);
  return inPlace(record, path.endsWith(`/${record.id}.json`));
}

export function parseLayerRecord(text: string, path: string): LayerRecord {
  const record = parseRecord<LayerRecord>(text, layerShape);
  return inPlace(record, path.endsWith(`/${record.id}.json`));
}

export function parseStepRecord(text: string, path: string): StepRecord {
  const record = parseRecord<StepRecord>(text, stepShape);
  return inPlace(record, path.endsWith(`/${record.chain.slice("sha256:".length)}`));
}

export function parseNameRecord(text: string, path: string, pathOf: (name: ImageName) => string): NameRecord {
  const record = parseRecord<NameRecord>(text, nameShape);
  return inPlace(record, path === pathOf(record));
}

export function namedImageOf({ owner, name, tag, imageId, since }: NameRecord): NamedImage {
  return { name: { owner, name, tag }, imageId, since };
}

/** All that it stands on, its own files included. */
export function layersOf(record: Pick<ImageRecord, "layers" | "disk">): LayerId[] {
  return record.disk === null ? [...record.layers] : [record.disk, ...record.layers];
}

/** Whether `owner` may know of it: it is theirs or the operator's. Undefined is whoever may know of everything. */
export function isVisible(holder: Owner, owner: Owner | undefined): boolean {
  return owner === undefined || holder === null || holder === owner;
}
