/** A sandbox, a look at its counters: as E2B's clients know them. */
import { ceilingBytesOf, type SandboxId } from "@holdfast/protocol";
import type { SampleRow, SandboxRow } from "../store/store.js";
import { shownNetwork } from "./network.js";

/** What envd here can do, in E2B's counting: clients decide by it what to ask for. */
export const ENVD_VERSION = "0.6.13";

/** E2B has stopped using it, but its clients still read it. */
const CLIENT_ID = "holdfast";

const MIB = 1024 * 1024;

/** What an answer about a sandbox says besides its row. */
export interface Access {
  readonly domain: string | null;
  envdToken(id: SandboxId): string;
  trafficToken(id: SandboxId): string;
}

/** What a sandbox was made from. */
export interface Origin {
  readonly templateID: string;
  readonly alias: string;
}

function identity(row: SandboxRow, { templateID, alias }: Origin) {
  return {
    templateID,
    alias,
    sandboxID: row.id,
    clientID: CLIENT_ID,
    envdVersion: ENVD_VERSION,
  };
}

/** The answer to a create, a connect and a resume. */
export function sandboxShape(row: SandboxRow, origin: Origin, access: Access) {
  return {
    ...identity(row, origin),
    envdAccessToken: access.envdToken(row.id),
    trafficAccessToken: row.network.allowPublicTraffic ? null : access.trafficToken(row.id),
    domain: access.domain,
  };
}

export function listedSandboxShape(row: SandboxRow, origin: Origin) {
  return {
    ...identity(row, origin),
    startedAt: row.createdAt.toISOString(),
    // Clients need a time; a paused sandbox has no end.
    endAt: (row.expiresAt ?? row.createdAt).toISOString(),
    state: row.status === "paused" ? ("paused" as const) : ("running" as const),
    ...sizeShape(row.limits),
    metadata: row.metadata,
    volumeMounts: row.volumes.map(({ name, path }) => ({ name, path })),
  };
}

export function sandboxDetailShape(row: SandboxRow, origin: Origin, access: Access) {
  return {
    ...listedSandboxShape(row, origin),
    domain: access.domain,
    envdAccessToken: access.envdToken(row.id),
    allowInternetAccess: row.network.allowInternetAccess,
    network: shownNetwork(row.network),
    lifecycle: {
      autoResume: row.autoResume,
      onTimeout: row.onTimeout === "kill" ? ("kill" as const) : ("pause" as const),
    },
  };
}

/** E2B counts whole CPUs and MiB. */
export function sizeShape(limits: {
  readonly cpuMillis: number;
  readonly memoryBytes: number;
  readonly memoryMaxBytes?: number | undefined;
  readonly diskBytes: number;
}) {
  return {
    cpuCount: Math.max(1, Math.ceil(limits.cpuMillis / 1000)),
    memoryMB: Math.round(ceilingBytesOf(limits) / MIB),
    diskSizeMB: Math.round(limits.diskBytes / MIB),
  };
}

export function metricShape(sample: SampleRow) {
  return {
    timestamp: sample.at.toISOString(),
    timestampUnix: Math.floor(sample.at.getTime() / 1000),
    cpuCount: sample.cpuCount,
    cpuUsedPct: sample.cpuUsedPct,
    memUsed: sample.memoryBytes,
    memTotal: sample.memoryLimitBytes,
    memCache: sample.memoryCacheBytes,
    diskUsed: sample.diskBytes,
    diskTotal: sample.diskLimitBytes,
  };
}
