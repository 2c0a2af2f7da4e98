/** From an image and what was asked for to what the engine is told: one place, whoever makes the sandbox. */
import {
  ceilingBytesOf,
  formatBytes,
  HoldfastError,
  resolveSandboxLimits,
  type SandboxLimits,
} from "@holdfast/protocol";
import type { EffectiveMemory, ImageRecord, ImageSandbox } from "../types.js";
import { plainUser } from "./image-user.js";

const MIB = 1024 * 1024;
const LEAST_START_BYTES = 128 * MIB;
/** Beside what it held when the build had started it. */
const START_MARGIN_BYTES = 128 * MIB;

export interface ImageSandboxRequest {
  /** What the caller has asked for, by name; the rest comes from the image, then from `defaults`. */
  readonly limits?: { readonly [K in keyof SandboxLimits]?: SandboxLimits[K] | undefined } | undefined;
  readonly defaults?: Partial<SandboxLimits> | undefined;
  readonly env?: Readonly<Record<string, string>> | undefined;
  /** Whatever would differ from what was asked for is an error instead. */
  readonly strict?: boolean | undefined;
  /** Who runs commands if the image does not say. */
  readonly fallbackUser?: string | undefined;
}

export function planSandbox(image: ImageRecord, request: ImageSandboxRequest = {}): ImageSandbox {
  const memory = effectiveMemory(image, request);
  const limits = resolveSandboxLimits({
    ...request.defaults,
    ...image.limits,
    ...withoutUndefined(request.limits ?? {}),
    ...memoryLimits(image, request, memory.effectiveBytes),
  });
  const { config } = image;
  return {
    spec: {
      image: image.below ?? { kind: "layers", layers: image.layers },
      disk: image.disk === null ? undefined : { from: image.disk },
      env: { ...config.env, ...request.env },
      defaultUser: plainUser(config.user ?? request.fallbackUser ?? "root"),
      workdir: config.workdir ?? undefined,
      limits,
    },
    memory,
  };
}

function effectiveMemory(image: ImageRecord, request: ImageSandboxRequest): EffectiveMemory {
  const requested = request.limits?.memoryMaxBytes ?? request.limits?.memoryBytes;
  const wanted =
    requested ?? image.limits.memoryBytes ?? ceilingBytesOf({ ...resolveSandboxLimits(), ...request.defaults });
  const floor = image.floor?.memoryBytes ?? null;
  if (floor === null || wanted >= floor) {
    return { requestedBytes: requested ?? null, effectiveBytes: wanted, floorBytes: floor, reason: null };
  }
  const reason = `the image was made to start in ${formatBytes(floor)} and in no less`;
  if (request.strict === true && requested !== undefined) {
    throw new HoldfastError(
      "invalid_argument",
      `limits.memoryBytes: ${formatBytes(requested)} is too little: ${reason}`,
      {
        hint: `Ask for at least ${Math.ceil(floor / MIB)} MiB, or build the image with a lower floor (runtimeMemoryMb, --runtime-memory).`,
        details: { field: "limits.memoryBytes", requestedBytes: requested, floorBytes: floor },
      },
    );
  }
  return { requestedBytes: requested ?? null, effectiveBytes: floor, floorBytes: floor, reason };
}

/**
 * A size that was asked for, now or when the image was made, is given. Where nobody asked for one the limit starts where the
 * defaults say, or with what the image needs to start, and grows: so many small ones have room on a host.
 */
function memoryLimits(
  image: ImageRecord,
  { limits = {}, defaults = {} }: ImageSandboxRequest,
  effectiveBytes: number,
): Pick<SandboxLimits, "memoryBytes" | "memoryMaxBytes"> {
  const isGrowing = limits.memoryMaxBytes !== undefined;
  const isFixed = limits.memoryBytes !== undefined || image.limits.memoryBytes !== undefined || isOfOneSize(defaults);
  if (isFixed && !isGrowing) return { memoryBytes: effectiveBytes, memoryMaxBytes: undefined };
  const neededBytes = Math.ceil(((image.floor?.startPeakBytes ?? 0) + START_MARGIN_BYTES) / MIB) * MIB;
  const leastBytes = defaults.memoryBytes ?? LEAST_START_BYTES;
  const startBytes = isGrowing ? (limits.memoryBytes ?? leastBytes) : Math.max(leastBytes, neededBytes);
  return startBytes < effectiveBytes
    ? { memoryBytes: startBytes, memoryMaxBytes: effectiveBytes }
    : { memoryBytes: effectiveBytes, memoryMaxBytes: undefined };
}

/** Whoever sets the defaults may want everybody to have all of it at once. */
function isOfOneSize({ memoryBytes, memoryMaxBytes }: Partial<SandboxLimits>): boolean {
  return memoryBytes !== undefined && (memoryMaxBytes === undefined || memoryMaxBytes <= memoryBytes);
}

function withoutUndefined<T extends object>(given: T): Partial<T> {
  return Object.fromEntries(Object.entries(given).filter(([, value]) => value !== undefined)) as Partial<T>;
}
