/** From an image and what was asked for to what the engine is told: one place, whoever makes the sandbox. */
import { formatBytes, HoldfastError, resolveSandboxLimits, type SandboxLimits } from "@holdfast/protocol";
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
    requested ?? image.limits.memoryBytes ?? request.defaults?.memoryBytes ?? resolveSandboxLimits().memoryBytes;
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
 * A size that was asked for is given. Where nobody asked for one, the floor is what it may come to need: the limit starts
 * lower and grows, so that many small ones have room on a host.
 */
function memoryLimits(
  image: ImageRecord,
  { limits = {}, defaults = {} }: ImageSandboxRequest,
  effectiveBytes: number,
): Pick<SandboxLimits, "memoryBytes" | "memoryMaxBytes"> {
  const isAsked = limits.memoryMaxBytes !== undefined || limits.memoryBytes !== undefined;
  if (isAsked && limits.memoryMaxBytes === undefined) return { memoryBytes: effectiveBytes, memoryMaxBytes: undefined };
  const neededBytes = (image.floor?.startPeakBytes ?? 0) + START_MARGIN_BYTES;
  const startBytes = isAsked
    ? (limits.memoryBytes ?? defaults.memoryBytes ?? LEAST_START_BYTES)
    : Math.max(LEAST_START_BYTES, Math.ceil(neededBytes / MIB) * MIB);
  return startBytes < effectiveBytes
    ? { memoryBytes: startBytes, memoryMaxBytes: effectiveBytes }
    : { memoryBytes: effectiveBytes, memoryMaxBytes: undefined };
}

function withoutUndefined<T extends object>(given: T): Partial<T> {
  return Object.fromEntries(Object.entries(given).filter(([, value]) => value !== undefined)) as Partial<T>;
}
