/**
 * What of a sandbox is fixed when it is made, and so must be the same for whoever gets one that was made before. The rest is
 * given to it when it is handed out: environment, working directory and labels are this process's to know, and every command
 * is told; the rules for its network are, too.
 */
import { statSync } from "node:fs";
import type { ImageSource, SandboxSpec } from "../engine.js";

/** Undefined if none can be made before it is asked for. */
export function warmShapeOf(spec: SandboxSpec, skeleton: string): string | undefined {
  // Directories of the host are whoever's who named them, and what is to become a layer is made for that.
  if (spec.mounts.length > 0 || spec.makesLayer) return undefined;
  const image = identityOf(spec.image);
  if (image === undefined) return undefined;
  const { limits, hostname, defaultUser, whenOwnerDies, disk, network } = spec;
  return JSON.stringify([
    image,
    skeleton,
    Object.entries(limits).sort(([a], [b]) => (a < b ? -1 : 1)),
    hostname,
    defaultUser,
    whenOwnerDies,
    disk?.from,
    network.kind,
  ]);
}

/** Layers never change. A directory may be another one by the same name. */
function identityOf(image: ImageSource): unknown {
  if (image.kind !== "rootfs") return image;
  const info = statSync(image.path, { bigint: true, throwIfNoEntry: false });
  return info === undefined ? undefined : [image.path, String(info.dev), String(info.ino), String(info.ctimeNs)];
}

/** Without what is only known when it is handed out. */
export function neutralSpec(spec: SandboxSpec): SandboxSpec {
  const network: SandboxSpec["network"] =
    spec.network.kind === "egress" ? { kind: "egress", deny: [], allow: [] } : spec.network;
  return { ...spec, id: undefined, env: {}, labels: {}, workdir: undefined, network };
}
