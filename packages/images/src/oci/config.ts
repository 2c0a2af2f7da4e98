/**
 * An image's config as OCI writes it, and as we keep it. What OCI has no place for (our start command, the measured floor,
 * a snapshot's limits) travels in labels, so that an image which left and came back is what it was.
 */
import type { Digest, ReadyWhen, StartCommand } from "@holdfast/recipe";
import { parseDigest } from "../layers/digest.js";
import type { ImageConfig, ImageFloor, ImageRecord, LayerRecord } from "../types.js";
import { hostPlatform } from "./platform.js";
import {
  imageInvalid,
  isAbsent,
  type JsonObject,
  parseJson,
  readArray,
  readObject,
  readOptionalString,
  readOptionalStringMap,
  readOptionalStrings,
  readString,
} from "./read-json.js";
import { MAX_CONFIG_BYTES, MAX_LAYERS, type OciConfig, type OciHistory } from "./types.js";

export const START_LABEL = "dev.holdfast.start";
export const FLOOR_LABEL = "dev.holdfast.floor";
export const LIMITS_LABEL = "dev.holdfast.limits";
const OWN_LABELS: readonly string[] = [START_LABEL, FLOOR_LABEL, LIMITS_LABEL];

const MAX_ENTRIES = 4096;
const MAX_HISTORY = 16 * 1024;
const PORT = /^(\d{1,5})(?:\/(tcp|udp|sctp))?$/;

/** Checks what somebody else wrote. */
export function parseConfig(bytes: Uint8Array, what = "config"): OciConfig {
  if (bytes.length > MAX_CONFIG_BYTES) {
    throw imageInvalid(`${what}: ${bytes.length} bytes, at most ${MAX_CONFIG_BYTES} are allowed`);
  }
  const document = readObject(parseJson(bytes, what), what);
  const rootfs = readObject(document.rootfs, `${what}: rootfs`);
  const type = readString(rootfs.type, `${what}: rootfs.type`);
  if (type !== "layers") throw imageInvalid(`${what}: rootfs.type: expected "layers", got ${JSON.stringify(type)}`);
  const diffIds = isAbsent(rootfs.diff_ids) ? [] : readArray(rootfs.diff_ids, `${what}: rootfs.diff_ids`, MAX_LAYERS);
  const inner = isAbsent(document.config) ? {} : readObject(document.config, `${what}: config`);
  const where = `${what}: config`;
  // Images made by hand leave them out; then they are meant for whoever has them.
  const host = hostPlatform();
  return {
    created: readOptionalString(document.created, `${what}: created`),
    author: readOptionalString(document.author, `${what}: author`),
    architecture: readOptionalString(document.architecture, `${what}: architecture`) || host.architecture,
    os: readOptionalString(document.os, `${what}: os`) || host.os,
    variant: readOptionalString(document.variant, `${what}: variant`),
    config: {
      User: readOptionalString(inner.User, `${where}.User`),
      ExposedPorts: parsePorts(inner.ExposedPorts, `${where}.ExposedPorts`),
      Env: readOptionalStrings(inner.Env, `${where}.Env`, MAX_ENTRIES),
      Entrypoint: readOptionalStrings(inner.Entrypoint, `${where}.Entrypoint`, MAX_ENTRIES),
      Cmd: readOptionalStrings(inner.Cmd, `${where}.Cmd`, MAX_ENTRIES),
      WorkingDir: readOptionalString(inner.WorkingDir, `${where}.WorkingDir`),
      Labels: readOptionalStringMap(inner.Labels, `${where}.Labels`, MAX_ENTRIES),
    },
    rootfs: {
      type: "layers",
      diff_ids: diffIds.map((entry, index) => parseDigest(entry, `${what}: rootfs.diff_ids[${index}]`)),
    },
    history: isAbsent(document.history) ? undefined : parseHistory(document.history, `${what}: history`),
  };
}

function parsePorts(value: unknown, where: string): Record<string, Record<string, never>> | undefined {
  if (isAbsent(value)) return undefined;
  const ports = Object.keys(readObject(value, where));
  if (ports.length > MAX_ENTRIES) throw imageInvalid(`${where}: at most ${MAX_ENTRIES} are allowed`);
  for (const port of ports) {
    if (Number(PORT.exec(port)?.[1] ?? 0) < 1 || Number(PORT.exec(port)?.[1]) > 65_535) {
      throw imageInvalid(`${where}: ${JSON.stringify(port.slice(0, 50))} is not a port such as 8000/tcp`);
    }
  }
  return Object.fromEntries(ports.map((port) => [port, {}]));
}

function parseHistory(value: unknown, where: string): OciHistory[] {
  return readArray(value, where, MAX_HISTORY).map((entry, index) => {
    const object = readObject(entry, `${where}[${index}]`);
    return {
      created: readOptionalString(object.created, `${where}[${index}].created`),
      created_by: readOptionalString(object.created_by, `${where}[${index}].created_by`),
      author: readOptionalString(object.author, `${where}[${index}].author`),
      comment: readOptionalString(object.comment, `${where}[${index}].comment`),
      empty_layer: object.empty_layer === true ? true : undefined,
    };
  });
}

export function imageConfigFrom(oci: OciConfig): ImageConfig {
  const { config } = oci;
  const labels = config.Labels ?? {};
  const start = labels[START_LABEL];
  return {
    env: envFrom(config.Env ?? []),
    workdir: workdirFrom(config.WorkingDir),
    user: config.User === undefined || config.User === "" ? null : config.User,
    entrypoint: isEmpty(config.Entrypoint) ? null : config.Entrypoint,
    cmd: isEmpty(config.Cmd) ? null : config.Cmd,
    exposedPorts: Object.keys(config.ExposedPorts ?? {}).sort(),
    labels: Object.fromEntries(Object.entries(labels).filter(([name]) => !OWN_LABELS.includes(name))),
    start: start === undefined ? null : parseStart(start),
    architecture: oci.architecture,
    os: oci.os,
  };
}

function isEmpty(list: readonly string[] | undefined): list is undefined {
  return list === undefined || list.length === 0;
}

/** The last of several wins, as in every shell; an entry without `=` is a name with an empty value. */
function envFrom(list: readonly string[]): Record<string, string> {
  const env = new Map<string, string>();
  for (const [index, entry] of list.entries()) {
    const equals = entry.indexOf("=");
    const name = equals < 0 ? entry : entry.slice(0, equals);
    if (name === "") throw imageInvalid(`config: config.Env[${index}]: a variable without a name`);
    env.delete(name);
    env.set(name, equals < 0 ? "" : entry.slice(equals + 1));
  }
  return Object.fromEntries(env);
}

function workdirFrom(workdir: string | undefined): string | null {
  if (workdir === undefined || workdir === "") return null;
  return workdir.startsWith("/") ? workdir : `/${workdir}`;
}

/** What else of ours an image has brought with it. */
export function extrasFrom(oci: OciConfig): Pick<ImageRecord, "floor" | "limits"> {
  const labels = oci.config.Labels ?? {};
  const floor = labels[FLOOR_LABEL];
  const limits = labels[LIMITS_LABEL];
  return {
    floor: floor === undefined ? null : parseFloor(floor),
    limits: limits === undefined ? {} : parseLimits(limits),
  };
}

function labelObject(text: string, label: string): JsonObject {
  return readObject(parseJson(Buffer.from(text), `label ${label}`), `label ${label}`);
}

function readCount(value: unknown, where: string): number {
  if (typeof value === "number" && Number.isSafeInteger(value) && value > 0) return value;
  throw imageInvalid(`${where}: expected a whole number above 0, got ${String(value).slice(0, 50)}`);
}

function parseStart(text: string): StartCommand {
  const where = `label ${START_LABEL}`;
  const object = labelObject(text, START_LABEL);
  const command = readString(object.command, `${where}: command`);
  if (command === "") throw imageInvalid(`${where}: command: it is empty`);
  if (isAbsent(object.readyWhen)) return { command };
  return { command, readyWhen: parseReadyWhen(readObject(object.readyWhen, `${where}: readyWhen`), where) };
}

function parseReadyWhen(object: JsonObject, where: string): ReadyWhen {
  if (object.kind === "port") {
    const port = readCount(object.port, `${where}: readyWhen.port`);
    if (port > 65_535) throw imageInvalid(`${where}: readyWhen.port: ${port} is no port`);
    return { kind: "port", port };
  }
  if (object.kind === "command") {
    return { kind: "command", command: readString(object.command, `${where}: readyWhen.command`) };
  }
  if (object.kind === "seconds" && typeof object.seconds === "number" && object.seconds >= 0) {
    return { kind: "seconds", seconds: object.seconds };
  }
  throw imageInvalid(`${where}: readyWhen: expected a port, a command or seconds`);
}

function parseFloor(text: string): ImageFloor {
  const where = `label ${FLOOR_LABEL}`;
  const object = labelObject(text, FLOOR_LABEL);
  const optional = (name: string) => (isAbsent(object[name]) ? null : readCount(object[name], `${where}: ${name}`));
  return {
    memoryBytes: readCount(object.memoryBytes, `${where}: memoryBytes`),
    startPeakBytes: optional("startPeakBytes"),
    readyMs: isAbsent(object.readyMs) ? null : Math.max(0, Number(object.readyMs) || 0),
    ...(typeof object.listens === "boolean" ? { listens: object.listens } : {}),
  };
}

function parseLimits(text: string): ImageRecord["limits"] {
  const object = labelObject(text, LIMITS_LABEL);
  const names = ["memoryBytes", "cpuMillis", "diskBytes"] as const;
  return Object.fromEntries(
    names.flatMap((name) =>
      isAbsent(object[name]) ? [] : [[name, readCount(object[name], `label ${LIMITS_LABEL}: ${name}`)]],
    ),
  );
}

/** A layer as it leaves: lowest first in lists of them. */
export interface ExportedLayer {
  readonly diffId: Digest;
  readonly record: Pick<LayerRecord, "createdAt" | "from">;
}

/** The same record and layers always give the same bytes. */
export function configOf(
  record: Pick<ImageRecord, "config" | "createdAt" | "floor" | "limits">,
  layers: readonly ExportedLayer[],
): OciConfig {
  const { config } = record;
  const labels: Record<string, string> = { ...config.labels };
  if (config.start !== null) labels[START_LABEL] = JSON.stringify(config.start);
  if (record.floor !== null) labels[FLOOR_LABEL] = JSON.stringify(record.floor);
  if (Object.keys(record.limits).length > 0) labels[LIMITS_LABEL] = JSON.stringify(record.limits);
  const env = Object.entries(config.env).map(([name, value]) => `${name}=${value}`);
  return {
    created: record.createdAt,
    architecture: config.architecture,
    os: config.os,
    config: {
      ...(config.user === null ? {} : { User: config.user }),
      ...(config.exposedPorts.length === 0
        ? {}
        : { ExposedPorts: Object.fromEntries(config.exposedPorts.map((port) => [port, {}])) }),
      ...(env.length === 0 ? {} : { Env: env }),
      ...(config.entrypoint === null ? {} : { Entrypoint: config.entrypoint }),
      ...(config.cmd === null ? {} : { Cmd: config.cmd }),
      ...(config.workdir === null ? {} : { WorkingDir: config.workdir }),
      ...(Object.keys(labels).length === 0 ? {} : { Labels: labels }),
    },
    rootfs: { type: "layers", diff_ids: layers.map(({ diffId }) => diffId) },
    history: layers.map(({ record: { createdAt, from } }) => ({ created: createdAt, created_by: from })),
  };
}
