/** What a caller asked for, checked and completed. */
import { existsSync, realpathSync } from "node:fs";
import { isAbsolute, posix } from "node:path";
import { HoldfastError, invalidArgument, parseSandboxId, resolveSandboxLimits } from "@holdfast/protocol";
import type { ImageSource, MountSpec, SandboxSpec } from "../engine.js";
import { parseLayerId } from "../layers.js";
import { resolveNetwork } from "../network/policy.js";

function validateMount(mount: MountSpec, index: number): void {
  const field = `mounts[${index}]`;
  if (!isAbsolute(mount.source)) throw invalidArgument(`${field}.source`, mount.source, "an absolute path");
  if (!isAbsolute(mount.target) || mount.target !== posix.normalize(mount.target)) {
    throw invalidArgument(`${field}.target`, mount.target, "an absolute path without //, . and ..");
  }
  // Below these a mount would hide what the sandbox itself stands on.
  if (/^\/+(proc|dev|sys)?(\/|$)/.test(mount.target) && /^\/+(proc|dev|sys)(\/|$)|^\/+$/.test(mount.target)) {
    throw invalidArgument(`${field}.target`, mount.target, "a place other than /, /proc, /dev and /sys");
  }
  if (!existsSync(mount.source)) throw invalidArgument(`${field}.source`, mount.source, "something that exists");
  const real = realpathSync(mount.source);
  // Whoever may write beside it could make it lead anywhere. The launcher looks again when it opens it.
  if (real !== posix.normalize(mount.source).replace(/(.)\/$/, "$1")) {
    throw invalidArgument(`${field}.source`, mount.source, `a path without symbolic links (it leads to ${real})`);
  }
}

export function validateMounts(mounts: readonly MountSpec[]): void {
  mounts.forEach(validateMount);
}

/** An overlay could take more, but each costs every sandbox a mount, and every lookup of a name a step. */
const MOST_LAYERS = 128;
/** The guest keeps it where it keeps home directories. */
const LONGEST_WORKDIR_BYTES = 255;
/** Sandboxes' disks lie in the pool by their ids; these places are the layers' and the volumes'. */
const TAKEN_IDS: readonly string[] = ["layers", "volumes"];

function resolveImage(image: ImageSource = { kind: "host" }): ImageSource {
  if (image.kind !== "layers") return image;
  const count = image.layers.length;
  if (count === 0 || count > MOST_LAYERS) {
    throw new HoldfastError("image_invalid", `image.layers: expected 1 to ${MOST_LAYERS} layers, got ${count}`, {
      hint: "Merge some of its layers: in a Dockerfile, join commands with &&.",
      details: { field: "image.layers", layers: count },
    });
  }
  return { kind: "layers", layers: image.layers.map((id, index) => parseLayerId(id, `image.layers[${index}]`)) };
}

function resolveWorkdir(workdir: string | undefined): string | undefined {
  if (workdir === undefined) return undefined;
  if (!isAbsolute(workdir) || workdir.includes("\0") || Buffer.byteLength(workdir) > LONGEST_WORKDIR_BYTES) {
    throw invalidArgument("workdir", workdir, `an absolute path of at most ${LONGEST_WORKDIR_BYTES} bytes`);
  }
  return workdir;
}

function resolveId(id: SandboxSpec["id"]): SandboxSpec["id"] {
  if (id === undefined) return undefined;
  if (TAKEN_IDS.includes(id))
    throw invalidArgument("id", id, "another one: this is the name of a directory of the pool");
  return parseSandboxId(id, "id");
}

export function resolveSandboxSpec(given: Partial<SandboxSpec>): SandboxSpec {
  const hostname = given.hostname ?? "sandbox";
  if (!/^[a-zA-Z0-9][a-zA-Z0-9.-]{0,63}$/.test(hostname)) {
    throw invalidArgument("hostname", hostname, "1 to 64 letters, digits, dots and dashes");
  }
  validateMounts(given.mounts ?? []);
  return {
    id: resolveId(given.id),
    image: resolveImage(given.image),
    limits: resolveSandboxLimits(given.limits),
    env: given.env ?? {},
    mounts: given.mounts ?? [],
    hostname,
    defaultUser: given.defaultUser ?? "user",
    whenOwnerDies: given.whenOwnerDies ?? "keep",
    labels: given.labels ?? {},
    workdir: resolveWorkdir(given.workdir),
    disk: given.disk === undefined ? undefined : { from: parseLayerId(given.disk.from, "disk.from") },
    network: resolveNetwork(given.network),
    makesLayer: given.makesLayer ?? false,
  };
}
