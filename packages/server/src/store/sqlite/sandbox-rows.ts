/** A sandbox as its columns, and back. */
import type { SandboxId } from "@holdfast/protocol";
import type { Selectable } from "kysely";
import type { SandboxRow } from "../store.js";
import type { SandboxTable } from "./tables.js";
import {
  dateOrNull,
  flagOrNull,
  isNetwork,
  isObject,
  isSandboxEnding,
  isStringOrNull,
  isStringRecord,
  memberOf,
  millisFromDate,
  millisOrNull,
  parseJson,
} from "./values.js";

const STATUSES = ["creating", "running", "paused", "ended"] as const;
const ON_TIMEOUT = ["kill", "pause", "stop"] as const;

/** What it was made from is one column: it is written once and never searched. */
type Origin = Pick<SandboxRow, "imageId" | "memory" | "volumes">;
type Changing = Omit<SandboxRow, keyof Origin>;
type Encoders = { readonly [K in keyof Changing]: (value: Changing[K]) => Partial<SandboxTable> };

const ENCODERS: Encoders = {
  id: (id) => ({ id }),
  keyId: (keyId) => ({ key_id: keyId }),
  template: (template) => ({ template }),
  status: (status) => ({ status }),
  createdAt: (date) => ({ created_at: millisFromDate(date) }),
  expiresAt: (date) => ({ expires_at: millisOrNull(date) }),
  timeoutMs: (timeoutMs) => ({ timeout_ms: timeoutMs }),
  onTimeout: (onTimeout) => ({ on_timeout: onTimeout }),
  autoResume: (autoResume) => ({ auto_resume: Number(autoResume) }),
  limits: (limits) => ({
    memory_bytes: limits.memoryBytes,
    memory_max_bytes: limits.memoryMaxBytes ?? null,
    pids: limits.pids,
    cpu_millis: limits.cpuMillis,
    disk_bytes: limits.diskBytes,
    output_bytes: limits.outputBytes,
    wall_ms: limits.wallMs ?? null,
  }),
  env: (env) => ({ env: JSON.stringify(env) }),
  metadata: (metadata) => ({ metadata: JSON.stringify(metadata) }),
  network: (network) => ({ network: JSON.stringify(network) }),
  memoryKept: (memoryKept) => ({ memory_kept: flagOrNull(memoryKept) }),
  boots: (boots) => ({ boots }),
  endedAt: (date) => ({ ended_at: millisOrNull(date) }),
  ending: (ending) => ({ ending: ending === null ? null : JSON.stringify(ending) }),
};

function encodeField<K extends keyof Changing>(row: Partial<SandboxRow>, field: K): Partial<SandboxTable> {
  const value = row[field];
  return value === undefined ? {} : ENCODERS[field](value as Changing[K]);
}

export function columnsFromChange(change: Partial<SandboxRow>): Partial<SandboxTable> {
  const columns: Partial<SandboxTable> = {};
  // In the order of the list, so that the same change is the same statement however the caller wrote it down.
  for (const field of Object.keys(ENCODERS) as (keyof Changing)[]) Object.assign(columns, encodeField(change, field));
  return columns;
}

export function columnsFromSandbox(row: SandboxRow): SandboxTable {
  const { imageId, memory, volumes } = row;
  const origin: Origin = { imageId, memory, volumes };
  return { ...(columnsFromChange(row) as SandboxTable), origin: JSON.stringify(origin) };
}

function isOrigin(value: unknown): value is Origin {
  return (
    isObject(value) &&
    isStringOrNull(value.imageId) &&
    isObject(value.memory) &&
    typeof value.memory.effectiveBytes === "number" &&
    Array.isArray(value.volumes) &&
    value.volumes.every(isObject)
  );
}

/** Rows of before there were images have none. */
function originOf(columns: Selectable<SandboxTable>): Origin {
  if (columns.origin !== null) return parseJson(columns.origin, isOrigin, `origin of sandbox ${columns.id}`);
  const memory = { requestedBytes: null, effectiveBytes: columns.memory_bytes, floorBytes: null, reason: null };
  return { imageId: null, memory, volumes: [] };
}

export function sandboxFromColumns(columns: Selectable<SandboxTable>): SandboxRow {
  const where = (field: string) => `${field} of sandbox ${columns.id}`;
  return {
    id: columns.id as SandboxId,
    keyId: columns.key_id,
    template: columns.template,
    ...originOf(columns),
    status: memberOf(STATUSES, columns.status, where("status")),
    createdAt: new Date(columns.created_at),
    expiresAt: dateOrNull(columns.expires_at),
    timeoutMs: columns.timeout_ms,
    onTimeout: memberOf(ON_TIMEOUT, columns.on_timeout, where("onTimeout")),
    autoResume: columns.auto_resume !== 0,
    limits: {
      memoryBytes: columns.memory_bytes,
      ...(columns.memory_max_bytes === null ? {} : { memoryMaxBytes: columns.memory_max_bytes }),
      pids: columns.pids,
      cpuMillis: columns.cpu_millis,
      diskBytes: columns.disk_bytes,
      outputBytes: columns.output_bytes,
      wallMs: columns.wall_ms ?? undefined,
    },
    env: parseJson(columns.env, isStringRecord, where("env")),
    metadata: parseJson(columns.metadata, isStringRecord, where("metadata")),
    network: parseJson(columns.network, isNetwork, where("network")),
    memoryKept: columns.memory_kept === null ? null : columns.memory_kept !== 0,
    boots: columns.boots,
    endedAt: dateOrNull(columns.ended_at),
    ending: columns.ending === null ? null : parseJson(columns.ending, isSandboxEnding, where("ending")),
  };
}
