/** What a build gets: what was asked for, checked against what the host has. */
import { type BudgetReport, defaultLimitsFor, GUEST_SHARE, type HostCapacity, mostByDefault } from "@holdfast/engine";
import { formatBytes, HoldfastError } from "@holdfast/protocol";
import { type BuilderOptions, parseBuilderOptions } from "@holdfast/recipe";

const MIB = 1024 * 1024;
const DEFAULT_MEMORY_BYTES = 4096 * MIB;
const LEAST_DEFAULT_MEMORY_BYTES = 512 * MIB;
/** Of what is available, when nobody says: the rest is for this process and for what the kernel keeps. */
const DEFAULT_MEMORY_SHARE = 0.9;
const DEFAULT_CPUS = 2;
const MOST_PIDS = 4096;
/** On a small host, as for a sandbox that asks for nothing: several builds are to fit, and what else runs. */
const PIDS_SHARE = 1 / 4;
const DEFAULT_DISK_BYTES = 10_240 * MIB;
const DEFAULT_TIMEOUT_S = 1800;
export const DEFAULT_FLOOR_BYTES = 1024 * MIB;

export interface BuildSettings {
  readonly memoryBytes: number;
  /** What a step starts with of that, to grow as it needs it. */
  readonly memoryStartBytes: number;
  /** The most that a step may be given when it is tried again. */
  readonly mostMemoryBytes: number;
  readonly cpuMillis: number;
  readonly pids: number;
  readonly diskBytes: number;
  readonly timeoutMs: number;
  readonly floorBytes: number;
  /** Whether somebody has asked for that floor: else any that is not higher will do. */
  readonly floorIsAsked: boolean;
  readonly retryOnOom: boolean;
  readonly network: boolean;
}

/** What of the host's budget a build can count on. */
export type BuildRoom = Pick<BudgetReport, "host" | "capacity" | "room" | "reserved">;

export function resolveBuildSettings(given: BuilderOptions | undefined, budget: BuildRoom): BuildSettings {
  const options = parseBuilderOptions(given ?? {});
  const { host, capacity, room, reserved } = budget;
  const mostMb = Math.floor((capacity.memoryBytes - GUEST_SHARE.memoryBytes) / MIB);
  const memoryMb = within("memoryMb", options.memoryMb, mostMb, "MiB of memory to give");
  const floorMb = within("runtimeMemoryMb", options.runtimeMemoryMb, mostMb, "MiB of memory to give");
  const cpus = within("cpus", options.cpus, host.cpus, "CPUs");
  const diskMb = within("diskMb", options.diskMb, Math.floor(room.diskBytes / MIB), "MiB of free disk");
  const freeMemoryBytes = room.memoryBytes - reserved.memoryBytes - GUEST_SHARE.memoryBytes;
  if (memoryMb !== undefined) within("memoryStartMb", options.memoryStartMb, memoryMb, "MiB in memoryMb");
  const memoryBytes = memoryMb === undefined ? defaultMemoryBytes(freeMemoryBytes, mostMb) : memoryMb * MIB;
  return {
    memoryBytes,
    memoryStartBytes: Math.min(memoryBytes, startBytesOf(options, memoryBytes)),
    mostMemoryBytes: mostMb * MIB,
    cpuMillis: Math.max(10, Math.round((cpus ?? Math.min(DEFAULT_CPUS, host.cpus)) * 1000)),
    pids: Math.min(MOST_PIDS, Math.floor(capacity.pids * PIDS_SHARE)),
    diskBytes: diskMb === undefined ? Math.min(DEFAULT_DISK_BYTES, diskNowBytes(budget)) : diskMb * MIB,
    timeoutMs: (options.timeoutS ?? DEFAULT_TIMEOUT_S) * 1000,
    floorBytes: floorMb === undefined ? defaultFloorBytes(host) : floorMb * MIB,
    floorIsAsked: floorMb !== undefined,
    retryOnOom: options.retryOnOom ?? false,
    network: options.network !== "off",
  };
}

/** A size that was asked for is there at once, so that it can be counted on; nobody counts on a default. */
function startBytesOf({ memoryMb, memoryStartMb }: BuilderOptions, memoryBytes: number): number {
  if (memoryStartMb !== undefined) return memoryStartMb * MIB;
  return memoryMb === undefined ? LEAST_DEFAULT_MEMORY_BYTES : memoryBytes;
}

/** It is tried beside all that runs, and every sandbox of the image gets it: what a sandbox gets that asks for nothing. */
function defaultFloorBytes(host: HostCapacity): number {
  return Math.min(DEFAULT_FLOOR_BYTES, Math.floor(mostByDefault(host).memoryBytes / MIB) * MIB);
}

function defaultMemoryBytes(freeBytes: number, mostMb: number): number {
  const mib = Math.floor((freeBytes * DEFAULT_MEMORY_SHARE) / MIB);
  return Math.min(DEFAULT_MEMORY_BYTES, Math.max(LEAST_DEFAULT_MEMORY_BYTES, mib * MIB), mostMb * MIB);
}

/**
 * What the image is tried with when it is whole. Its layers lie on the disk by now, so that what the build began with may
 * never be free again: it is what there is of that.
 */
export function trialDiskBytes(settings: BuildSettings, budget: BuildRoom): number {
  return Math.min(settings.diskBytes, diskNowBytes(budget));
}

/** What is free; if others hold nearly all, what a sandbox gets by itself, which is worth waiting for. */
function diskNowBytes({ host, room, reserved }: BuildRoom): number {
  const usualBytes = Math.min(defaultLimitsFor(host).diskBytes, room.diskBytes);
  return Math.max(MIB, usualBytes, room.diskBytes - reserved.diskBytes);
}

function within(field: string, value: number | undefined, most: number, unit: string): number | undefined {
  if (value === undefined || value <= most) return value;
  const [short = unit] = unit.split(" ");
  throw new HoldfastError(
    "invalid_argument",
    `builder.${field}: ${value} ${short} were asked for, and this host has ${most} ${unit}`,
    {
      hint: `Ask for at most ${most} ${short}, or build on a larger host.`,
      details: { field: `builder.${field}`, value, most },
    },
  );
}

/** The next size worth trying; undefined if the host cannot give more. */
export function nextMemorySize(limitBytes: number, mostBytes: number): number | undefined {
  const doubled = Math.ceil((limitBytes * 2) / MIB) * MIB;
  const next = Math.min(doubled, mostBytes);
  return next > limitBytes ? next : undefined;
}

export function describeSettings(settings: BuildSettings): string {
  const network = settings.network ? "" : ", no network";
  const { memoryBytes, memoryStartBytes } = settings;
  const start = memoryStartBytes < memoryBytes ? `${formatBytes(memoryStartBytes)} to ` : "";
  return `${start}${formatBytes(memoryBytes)} of memory, ${settings.cpuMillis / 1000} CPUs, ${formatBytes(settings.diskBytes)} of disk${network}`;
}
