/** What a caller asked for, checked and completed. */
import { existsSync, realpathSync } from "node:fs";
import { isAbsolute, posix } from "node:path";
import { invalidArgument, parseSandboxId, resolveSandboxLimits } from "@holdfast/protocol";
import type { MountSpec, SandboxSpec } from "../engine.js";

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

export function resolveSandboxSpec(given: Partial<SandboxSpec>): SandboxSpec {
  const hostname = given.hostname ?? "sandbox";
  if (!/^[a-zA-Z0-9][a-zA-Z0-9.-]{0,63}$/.test(hostname)) {
    throw invalidArgument("hostname", hostname, "1 to 64 letters, digits, dots and dashes");
  }
  validateMounts(given.mounts ?? []);
  return {
    id: given.id === undefined ? undefined : parseSandboxId(given.id, "id"),
    image: given.image ?? { kind: "host" },
    limits: resolveSandboxLimits(given.limits),
    env: given.env ?? {},
    mounts: given.mounts ?? [],
    hostname,
    defaultUser: given.defaultUser ?? "user",
    whenOwnerDies: given.whenOwnerDies ?? "keep",
    labels: given.labels ?? {},
  };
}
