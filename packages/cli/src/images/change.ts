/** `holdfast image rm`, `tag`, `untag` and `prune`. */
import { formatBytes, HoldfastError, type PruneResult, parseDuration } from "@holdfast/protocol";
import { nameFlag } from "../run/name-flag.js";
import { note, noteError } from "../text/notes.js";
import type { ImageHost } from "./image-host.js";
import { checkNewNames, noteBase } from "./new-names.js";
import type { ImageHostFlags } from "./open-host.js";
import { withHost } from "./with-host.js";

export interface PruneFlags extends ImageHostFlags {
  readonly all?: boolean;
  readonly unusedFor?: string;
  readonly json?: boolean;
}

/**
 * Each for itself: one that is in use does not keep the others. One that others of these stand on is tried again when they
 * are gone, so that the order does not matter. Resolves to the exit code.
 */
export async function removeImages(names: readonly string[], flags: ImageHostFlags): Promise<number> {
  return withHost(flags, async (host, { signal }) => {
    const failures: HoldfastError[] = [];
    let left = [...names];
    for (;;) {
      signal.throwIfAborted();
      const inUse = new Map<string, HoldfastError>();
      for (const name of left) {
        const error = await removeOne(host, name);
        if (error?.code === "image_in_use") inUse.set(name, error);
        else if (error !== undefined) failures.push(error);
      }
      if (inUse.size === 0 || inUse.size === left.length) {
        for (const error of [...failures, ...inUse.values()]) noteError(error);
        return failures.length + inUse.size === 0 ? 0 : 1;
      }
      left = [...inUse.keys()];
    }
  });
}

async function removeOne(host: ImageHost, name: string): Promise<HoldfastError | undefined> {
  try {
    const { id } = await host.get(name).catch(() => ({ id: name }));
    const { freedBytes } = await host.remove(name);
    process.stdout.write(`${id}\n`);
    note(`removed ${name}, ${formatBytes(freedBytes)} are free`);
    return undefined;
  } catch (error) {
    return nameFlag(error, [[/^image\b/, "NAME"]]);
  }
}

export async function tagImage(name: string, newName: string, flags: ImageHostFlags): Promise<void> {
  checkNewNames([newName], "NEWNAME");
  const { id } = await withHost(flags, (host) => host.setName(name, newName));
  note(`${id} is also called ${newName}`);
  noteBase([newName]);
}

export async function untagImage(name: string, flags: ImageHostFlags): Promise<void> {
  if (/^img[a-z0-9]{20}$/.test(name)) {
    throw new HoldfastError("invalid_argument", `NAME: ${name} is an image's id; untag takes away a name`, {
      hint: `Its names are in \`holdfast image inspect ${name}\`; \`holdfast image rm\` removes the image itself.`,
      details: { field: "NAME" },
    });
  }
  await withHost(flags, (host) => host.removeName(name));
  note(`nothing is called ${name} any more; the image itself is still there`);
}

export async function pruneImages(flags: PruneFlags): Promise<void> {
  const unusedForMs = flags.unusedFor === undefined ? undefined : parseDuration(flags.unusedFor, "--unused-for");
  const result = await withHost(flags, (host) => host.prune({ all: flags.all === true, unusedForMs }));
  if (flags.json === true) process.stdout.write(`${JSON.stringify(result)}\n`);
  else process.stdout.write(`${pruneText(result)}\n`);
}

export function pruneText({ images, layers, blobs, builds, freedBytes }: PruneResult): string {
  const parts = (
    [
      [images, "image"],
      [layers, "layer"],
      [blobs, "file"],
      [builds, "build"],
    ] as const
  )
    .filter(([count]) => count > 0)
    .map(([count, what]) => `${count} ${what}${count === 1 ? "" : "s"}`);
  return parts.length === 0
    ? "Nothing was to be removed."
    : `Removed ${parts.join(", ")}: ${formatBytes(freedBytes)} are free.`;
}
