/** Names of images in registries: `host[:port]/path[:tag][@digest]`. Without a host it is Docker Hub's, as everywhere. */
import { isIP } from "node:net";
import { HoldfastError } from "@holdfast/protocol";
import type { Digest } from "@holdfast/recipe";
import { isDigest } from "../layers/digest.js";

export interface RegistryReference {
  /** As it is written in names: `docker.io`, `localhost:5000`, `[::1]:5000`. */
  readonly registry: string;
  readonly repository: string;
  /** `latest` if neither tag nor digest was given; null if only a digest was. */
  readonly tag: string | null;
  readonly digest: Digest | null;
}

const DOCKER_HUB = "docker.io";
const TAG = /^\w[\w.-]{0,127}$/;
const COMPONENT = /^[a-z0-9]+(?:(?:\.|__?|-+)[a-z0-9]+)*$/;
const HOST =
  /^(?:[a-zA-Z0-9](?:[a-zA-Z0-9-]{0,62})(?:\.[a-zA-Z0-9](?:[a-zA-Z0-9-]{0,62}))*|\[[0-9a-fA-F:.]+\])(?::\d{1,5})?$/;
const MAX_NAME_LENGTH = 255;
const MAX_LENGTH = 512;

export function parseReference(text: unknown, field = "reference"): RegistryReference {
  if (typeof text !== "string" || text === "" || text.length > MAX_LENGTH) {
    throw refuse(field, `expected host[:port]/path[:tag][@digest] of at most ${MAX_LENGTH} characters`);
  }
  if (/^[a-z][a-z0-9+.-]*:\/\//i.test(text)) {
    throw refuse(
      field,
      "expected a name without a scheme",
      'Leave out "https://" and the like: registry.example/team/app:1.',
    );
  }
  const at = text.indexOf("@");
  const name = at < 0 ? text : text.slice(0, at);
  const digest = at < 0 ? null : text.slice(at + 1);
  if (digest !== null && !isDigest(digest)) {
    // What stands here may be a password: it is not repeated.
    throw refuse(
      field,
      "what follows the `@` is not a digest (`sha256:` and 64 hex digits)",
      "Credentials have no place in a name: give them with --username and --password-stdin, or log in with docker.",
    );
  }
  const { registry, rest } = splitHost(name, field);
  const colon = rest.indexOf(":");
  const path = colon < 0 ? rest : rest.slice(0, colon);
  const tag = colon < 0 ? null : rest.slice(colon + 1);
  if (tag !== null && !TAG.test(tag)) {
    throw refuse(field, `the tag ${quote(tag)} is not 1 to 128 letters, digits, "_", "." and "-"`);
  }
  const repository = registry === DOCKER_HUB && !path.includes("/") ? `library/${path}` : path;
  if (registry.length + 1 + repository.length > MAX_NAME_LENGTH) {
    throw refuse(field, `the name is longer than ${MAX_NAME_LENGTH} characters`);
  }
  for (const part of repository.split("/")) {
    if (COMPONENT.test(part)) continue;
    throw refuse(
      field,
      `${quote(part)} is no part of a name`,
      "Parts are lower-case letters and digits, with single separators (., _, __ or hyphens) between them.",
    );
  }
  return { registry, repository, tag: tag ?? (digest === null ? "latest" : null), digest };
}

export function formatReference({ registry, repository, tag, digest }: RegistryReference): string {
  return `${registry}/${repository}${tag === null ? "" : `:${tag}`}${digest === null ? "" : `@${digest}`}`;
}

/** Only hosts that are this machine by their very name. */
export function isLoopback(hostname: string): boolean {
  const host = hostname.replace(/^\[|\]$/g, "").toLowerCase();
  if (isIP(host) === 4) return host.startsWith("127.");
  if (isIP(host) === 6) return new URL(`http://[${host}]`).hostname === "[::1]";
  return host === "localhost";
}

/** Where the registry's API is. Plain HTTP for this very machine, or when it was asked for. */
export function registryOrigin(registry: string, options: { readonly plainHttp?: boolean | undefined } = {}): string {
  const host = registry === DOCKER_HUB ? "registry-1.docker.io" : registry;
  const plain = options.plainHttp ?? isLoopback(new URL(`http://${host}`).hostname);
  return new URL(`${plain ? "http" : "https"}://${host}`).origin;
}

/** As everywhere: a first part with a dot or a colon is a host, and so is `localhost`. */
function splitHost(name: string, field: string): { registry: string; rest: string } {
  const slash = name.indexOf("/");
  const first = slash < 0 ? "" : name.slice(0, slash);
  if (!/[.:[]/.test(first) && first !== "localhost") return { registry: DOCKER_HUB, rest: name };
  if (!HOST.test(first) || !URL.canParse(`http://${first}`)) {
    throw refuse(field, `${quote(first)} is not a host with an optional port`);
  }
  const registry = first.toLowerCase();
  return { registry: registry === "index.docker.io" ? DOCKER_HUB : registry, rest: name.slice(slash + 1) };
}

function quote(text: string): string {
  return JSON.stringify(text.length > 80 ? `${text.slice(0, 80)}…` : text);
}

function refuse(field: string, problem: string, hint?: string): HoldfastError {
  return new HoldfastError("invalid_argument", `${field}: ${problem}`, { hint, details: { field } });
}
