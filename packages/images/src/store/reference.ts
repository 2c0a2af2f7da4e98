/** What people call images: `app`, `team/app:1.2`, `localhost:5000/a/b:tag`, `name@sha256:…`. */
import { HoldfastError, invalidArgument } from "@holdfast/protocol";
import type { Digest } from "@holdfast/recipe";
import type { ImageName } from "../types.js";

export interface ImageReference {
  readonly name: string;
  /** Undefined if it does not say; see DEFAULT_TAGS. */
  readonly tag: string | undefined;
  readonly digest: Digest | undefined;
}

/** What a name without a tag stands for, in this order: docker's, then E2B's. */
export const DEFAULT_TAGS = ["latest", "default"] as const;

const MAX_NAME_LENGTH = 255;
const HOST = /^(?:[a-z0-9](?:[a-z0-9-]*[a-z0-9])?(?:\.[a-z0-9](?:[a-z0-9-]*[a-z0-9])?)*|\[[0-9a-f:]+\])(?::\d{1,5})?$/i;
/** Docker's, and E2B's, which may begin and end with `-` and `_`. */
const PATH_PART = /^[a-z0-9_-]+(?:\.[a-z0-9_-]+)*$/;
const TAG = /^[A-Za-z0-9_.-]{1,128}$/;
const DIGEST = /^sha256:[0-9a-f]{64}$/;

const NAME_RULE =
  "a name of lower-case letters, digits, `-`, `_` and single `.` between them, parts separated by `/`, the first of which may be a registry's host (`localhost:5000/team/app`), at most 255 characters";
const TAG_RULE = "a tag of 1 to 128 letters, digits, `-`, `_` and `.`";

export function isDigest(text: unknown): text is Digest {
  return typeof text === "string" && DIGEST.test(text);
}

export function parseDigest(text: unknown, field = "digest"): Digest {
  if (!isDigest(text)) throw invalidArgument(field, shorten(text), "`sha256:` and 64 lower-case hex digits");
  return text;
}

export function parseImageName(text: unknown, field = "image name"): string {
  if (typeof text !== "string" || !isName(text)) throw invalidArgument(field, shorten(text), NAME_RULE);
  return text;
}

export function parseImageTag(text: unknown, field = "image tag"): string {
  if (typeof text !== "string" || !TAG.test(text)) throw invalidArgument(field, shorten(text), TAG_RULE);
  return text;
}

export function parseImageReference(text: unknown, field = "image"): ImageReference {
  if (typeof text !== "string") {
    throw invalidArgument(field, shorten(text), "a name such as `app`, `team/app:1.2` or `app@sha256:…`");
  }
  const at = text.indexOf("@");
  const digest = at === -1 ? undefined : parseDigest(text.slice(at + 1), `${field}: digest`);
  const rest = at === -1 ? text : text.slice(0, at);
  // The last colon begins a tag, unless it is that of a host's port.
  const colon = rest.lastIndexOf(":");
  const hasTag = colon > rest.lastIndexOf("/");
  const name = hasTag ? rest.slice(0, colon) : rest;
  const tag = hasTag ? rest.slice(colon + 1) : undefined;
  try {
    return {
      name: parseImageName(name),
      tag: tag === undefined ? undefined : parseImageTag(tag),
      digest,
    };
  } catch (error) {
    const reason = HoldfastError.from(error);
    throw new HoldfastError("invalid_argument", `${field} ${shown(text)}: ${reason.message}`, {
      cause: error,
      hint: "For example `app`, `team/app:1.2`, `localhost:5000/team/app:tag` or `app@sha256:…`.",
      details: { ...reason.details, field },
    });
  }
}

export function checkImageName({ owner, name, tag }: ImageName): void {
  if (owner !== null && (typeof owner !== "string" || owner === "")) {
    throw invalidArgument("owner", owner, "a key's id, or null for the operator's");
  }
  parseImageName(name);
  parseImageTag(tag);
}

export function formatImageName({ name, tag }: Pick<ImageName, "name" | "tag">): string {
  return `${name}:${tag}`;
}

function isName(text: string): boolean {
  if (text.length === 0 || text.length > MAX_NAME_LENGTH) return false;
  const parts = text.split("/");
  const [first = "", ...rest] = parts;
  const isHost = rest.length > 0 && (/[.:A-Z]/.test(first) || first === "localhost");
  return (isHost ? HOST.test(first) : PATH_PART.test(first)) && rest.every((part) => PATH_PART.test(part));
}

const MAX_SHOWN = 100;

function shorten(value: unknown): unknown {
  return typeof value === "string" && value.length > MAX_SHOWN ? `${value.slice(0, MAX_SHOWN)}…` : value;
}

const shown = (text: string): string => JSON.stringify(shorten(text));
