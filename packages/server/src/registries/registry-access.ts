/**
 * Registries are asked by the server itself, so a key could have it ask anybody: services of this machine, or where clouds
 * keep credentials. Keys reach what build steps reach. The operator may ask whoever he likes.
 */
import { lookup } from "node:dns/promises";
import { isIP } from "node:net";
import { AddressRules } from "@holdfast/engine";
import type { AuthFor, PullOptions, RegistryAuth } from "@holdfast/images";
import { HoldfastError } from "@holdfast/protocol";
import { externalBases, type Recipe } from "@holdfast/recipe";
import type { ServerConfig } from "../config/schema.js";
import type { ServerParts } from "../parts.js";
import { ownerOf } from "../sandboxes/sources.js";
import type { Caller } from "../sandboxes/types.js";

interface Place {
  readonly hostname: string;
  readonly port: number;
}

type Parts = Pick<ServerParts, "config" | "images">;

/** For whatever a registry sends us on to, too. */
export function mayReachFor({ config }: Pick<Parts, "config">, caller: Caller): PullOptions["mayReach"] {
  return caller.kind === "operator" ? undefined : reachOfKeys(config);
}

export function reachOfKeys(
  config: Pick<ServerConfig, "buildAllow" | "buildDeny">,
): NonNullable<PullOptions["mayReach"]> {
  const rules = new AddressRules({ allow: config.buildAllow, deny: config.buildDeny });
  return (address, port) => rules.allows(address, port);
}

/** Refused before anything is begun, as far as the name alone tells. */
export async function requireRegistry(
  parts: Pick<Parts, "config">,
  caller: Caller,
  reference: string,
  options: { readonly plainHttp?: boolean | undefined } = {},
): Promise<void> {
  const mayReach = mayReachFor(parts, caller);
  const place = mayReach === undefined ? undefined : placeOf(reference, options.plainHttp ?? false);
  if (place === undefined) return;
  for (const address of await addressesOf(place.hostname)) {
    if (mayReach?.(address, place.port) === false) throw refused(reference);
  }
}

/** The registries of the images that a recipe is made of and that are not here yet. */
export async function requireRegistriesOf(parts: Parts, caller: Caller, recipe: Recipe): Promise<void> {
  if (caller.kind === "operator" || !parts.config.imagePull) return;
  for (const base of externalBases(recipe)) {
    if (base.kind === "image" && !isKnown(parts, caller, base.name)) await requireRegistry(parts, caller, base.name);
  }
}

/** What a caller has given for one registry is told to no other. */
export function authsByRegistry(auths: Readonly<Record<string, RegistryAuth>>): AuthFor {
  const byName = new Map(Object.entries(auths));
  return (registry) => byName.get(registry) ?? { kind: "none" };
}

function isKnown({ config, images }: Parts, caller: Caller, name: string): boolean {
  if (Object.hasOwn(config.imageAliases, name)) return true;
  try {
    return images.store.find(name, ownerOf(caller)) !== undefined;
  } catch {
    // What cannot be a name is refused where it is understood.
    return true;
  }
}

/** Undefined for a name without a host, which is Docker Hub's, and for what is no name. */
function placeOf(reference: string, plainHttp: boolean): Place | undefined {
  const first = reference.slice(0, Math.max(0, reference.indexOf("/")));
  if (!/[.:[]/.test(first) && first.toLowerCase() !== "localhost") return undefined;
  const text = `${plainHttp ? "http" : "https"}://${first}`;
  if (!URL.canParse(text)) return undefined;
  // As the client does: other ways to write an address come to the same.
  const { hostname, port } = new URL(text);
  return { hostname: hostname.replace(/^\[|\]$/g, ""), port: port === "" ? (plainHttp ? 80 : 443) : Number(port) };
}

async function addressesOf(hostname: string): Promise<string[]> {
  if (isIP(hostname) !== 0) return [hostname];
  try {
    return (await lookup(hostname, { all: true })).map(({ address }) => address);
  } catch {
    // A name that nobody knows leads nowhere; whoever asks for it says so.
    return [];
  }
}

function refused(reference: string): HoldfastError {
  const shown = JSON.stringify(reference.slice(0, 100));
  return new HoldfastError("access_denied", `the registry of ${shown} may not be reached from this server`, {
    hint: "The operator can allow its address with the setting buildAllow, or pull the image for everybody.",
  });
}
