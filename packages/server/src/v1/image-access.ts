/** Whose images and builds a caller may see and change. The operator's are everybody's to use, and nobody else's to change. */
import {
  type Build,
  type BuildId,
  type ImageId,
  type ImageName,
  type ImageRecord,
  type Images,
  parseImageReference,
} from "@holdfast/images";
import { HoldfastError } from "@holdfast/protocol";
import { ownerOf, requireImage } from "../sandboxes/sources.js";
import type { Caller } from "../sandboxes/types.js";

export function requireOperator(caller: Caller, what: string): void {
  if (caller.kind === "operator") return;
  throw new HoldfastError("access_denied", `only the operator may ${what}`, {
    hint: "It is done on the server's own machine, with the holdfast command.",
  });
}

function requireOwn(caller: Caller, record: ImageRecord): void {
  if (caller.kind === "operator" || record.owner === caller.keyId) return;
  throw new HoldfastError("access_denied", `image ${record.id} is the operator's`, {
    hint: "You can use it, but not change or remove it.",
  });
}

/** To look at, to name and to remove: one whose layers are gone is there, too. What uses it asks for the whole of it. */
export function findImage(images: Images, caller: Caller, reference: string): ImageRecord {
  const { store } = images;
  const byId = caller.kind === "operator" ? store.get(reference as ImageId) : undefined;
  return byId ?? store.find(reference, ownerOf(caller)) ?? requireImage(images, caller, reference);
}

/** The operator can also remove one of which nothing can be read any more. */
export function findToRemove(images: Images, caller: Caller, reference: string): ImageId {
  const isDamaged =
    caller.kind === "operator" &&
    images.store.problems().some(({ path }) => path.endsWith(`/records/${reference}.json`));
  if (isDamaged) return reference as ImageId;
  const record = findImage(images, caller, reference);
  requireOwn(caller, record);
  return record.id;
}

export function nameFor(caller: Caller, text: string): ImageName {
  const { name, tag, digest } = parseImageReference(text);
  if (digest !== undefined) {
    throw new HoldfastError("invalid_argument", `name: expected a name without a digest, got ${JSON.stringify(text)}`, {
      details: { field: "name" },
    });
  }
  return { owner: ownerOf(caller), name, tag: tag ?? "latest" };
}

/** One that an image is to get. */
export function newNameFor(caller: Caller, text: string): ImageName {
  const named = nameFor(caller, text);
  if (named.name !== "host") return named;
  throw new HoldfastError("invalid_argument", "name: no image can be called host: it means the host's own programs", {
    hint: "Choose another name.",
    details: { field: "name" },
  });
}

export function findBuild(images: Images, caller: Caller, id: string): Build {
  const build = images.builder.get(id as BuildId);
  if (build !== undefined && (caller.kind === "operator" || build.info().owner === caller.keyId)) return build;
  throw new HoldfastError("build_not_found", `there is no build ${id.slice(0, 100)}, or it is not yours`);
}
