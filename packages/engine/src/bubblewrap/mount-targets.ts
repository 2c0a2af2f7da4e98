import { join } from "node:path";
import { HoldfastError } from "@holdfast/protocol";
import type { SandboxSpec } from "../engine.js";
import { firstLink } from "../images/layer-lookup.js";
import type { HostParts } from "./host-parts.js";
import { layersBelow } from "./layer-claims.js";

/**
 * Mounts are placed by following paths, and on the way lie files that a sandbox or the maker of an image wrote: none of them
 * may be a link, which could lead out of the sandbox. `own` are the sandbox's files, if it starts with any.
 */
export function requirePlainTargets(
  host: Pick<HostParts, "layers" | "skeleton">,
  spec: Pick<SandboxSpec, "image" | "mounts">,
  own: readonly string[],
): void {
  if (spec.mounts.length === 0) return;
  const layers = [...own, ...filesBelow(host, spec)];
  for (const { target } of spec.mounts) {
    const link = firstLink(layers, target);
    if (link === undefined) continue;
    throw new HoldfastError(
      "file_wrong_type",
      `the sandbox cannot be started: in the way of its mount at ${target} lies a symbolic link, ${link}`,
      { hint: "Make a new one without that mount, or mount it elsewhere.", details: { target, link } },
    );
  }
}

function filesBelow(host: Pick<HostParts, "layers" | "skeleton">, spec: Pick<SandboxSpec, "image">): string[] {
  switch (spec.image.kind) {
    case "host":
      return [join(host.skeleton(), "root")];
    case "rootfs":
      return [spec.image.path];
    case "layers":
      return layersBelow(spec).map((id) => host.layers.path(id));
  }
}
