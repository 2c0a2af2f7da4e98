/** Whom we say we are to a registry: what the caller gave, or what docker's config.json knows. Helpers are never run. */
import { readFile } from "node:fs/promises";
import { homedir } from "node:os";
import { join } from "node:path";
import { HoldfastError } from "@holdfast/protocol";

export type RegistryAuth =
  | { readonly kind: "password"; readonly username: string; readonly password: string }
  /** Sent as it is. */
  | { readonly kind: "token"; readonly token: string }
  /** `$DOCKER_CONFIG` or `~/.docker` if no directory is named. */
  | { readonly kind: "docker-config"; readonly directory?: string | undefined }
  | { readonly kind: "none" };

/** By registry, because what is meant for one is nobody else's business. */
export type AuthFor = (registry: string) => RegistryAuth;

export type Credentials =
  | { readonly kind: "password"; readonly username: string; readonly password: string }
  | { readonly kind: "token"; readonly token: string }
  /** Traded for tokens at the token server. */
  | { readonly kind: "identity"; readonly token: string };

export interface FoundCredentials {
  readonly credentials: Credentials | null;
  /** For the error if the registry wants some: why there are none, or where they are from. */
  readonly note: string | null;
}

const MAX_CONFIG_BYTES = 1024 * 1024;
const HUB_KEYS = ["https://index.docker.io/v1/", "index.docker.io", "docker.io", "registry-1.docker.io"];

export async function findCredentials(registry: string, auth: RegistryAuth): Promise<FoundCredentials> {
  switch (auth.kind) {
    case "none":
      return { credentials: null, note: null };
    case "token":
      assertHeaderSafe("token", auth.token);
      return { credentials: auth, note: null };
    case "password":
      assertHeaderSafe("username", auth.username);
      if (auth.username.includes(":")) {
        throw new HoldfastError("invalid_argument", 'username: must not contain ":"', {
          details: { field: "username" },
        });
      }
      assertHeaderSafe("password", auth.password);
      return { credentials: auth, note: null };
    case "docker-config":
      return fromDockerConfig(registry, auth.directory ?? process.env.DOCKER_CONFIG ?? join(homedir(), ".docker"));
  }
}

/** Basic credentials are encoded, tokens stand in the header themselves: neither may smuggle in another header. */
function assertHeaderSafe(field: string, value: unknown): void {
  if (typeof value === "string" && value !== "" && value.length <= 65_536 && !/\p{Cc}/u.test(value)) return;
  throw new HoldfastError("invalid_argument", `${field}: expected text without control characters, not empty`, {
    details: { field },
  });
}

async function fromDockerConfig(registry: string, directory: string): Promise<FoundCredentials> {
  const path = join(directory, "config.json");
  let text: string;
  try {
    text = await readFile(path, "utf8");
  } catch (reason) {
    const { code } = reason as NodeJS.ErrnoException;
    if (code === "ENOENT" || code === "ENOTDIR") return { credentials: null, note: `There is no ${path}.` };
    return { credentials: null, note: `${path} could not be read (${code ?? String(reason)}).` };
  }
  if (text.length > MAX_CONFIG_BYTES) return { credentials: null, note: `${path} is too large to be docker's.` };
  let config: unknown;
  try {
    config = JSON.parse(text);
  } catch {
    return { credentials: null, note: `${path} is not JSON.` };
  }
  const keys = registry === "docker.io" ? HUB_KEYS : [registry, `https://${registry}`, `http://${registry}`];
  const auths = asObject(asObject(config).auths);
  for (const [name, value] of Object.entries(auths)) {
    if (!keys.includes(name) && !keys.includes(hostOf(name))) continue;
    const credentials = credentialsFromEntry(asObject(value));
    if (credentials !== null) return { credentials, note: `The credentials are those of ${path}.` };
  }
  const helpers = asObject(asObject(config).credHelpers);
  const helper = Object.entries(helpers).find(([name]) => keys.includes(name))?.[1] ?? asObject(config).credsStore;
  if (typeof helper === "string" && helper !== "") {
    const shown = JSON.stringify(helper.slice(0, 60));
    return {
      credentials: null,
      note: `${path} leaves credentials to the helper ${shown}, and helpers are not run: give them on the command line.`,
    };
  }
  return { credentials: null, note: `${path} has none for ${registry}.` };
}

function credentialsFromEntry(entry: Record<string, unknown>): Credentials | null {
  const text = (name: string): string => {
    const value = entry[name];
    return typeof value === "string" && !/\p{Cc}/u.test(value) ? value : "";
  };
  if (text("registrytoken") !== "") return { kind: "token", token: text("registrytoken") };
  if (text("identitytoken") !== "") return { kind: "identity", token: text("identitytoken") };
  // docker pads old entries with zero bytes.
  const decoded = Buffer.from(text("auth"), "base64").toString("utf8").replace(/\0+$/, "");
  const colon = decoded.indexOf(":");
  const username = colon < 0 ? text("username") : decoded.slice(0, colon);
  const password = colon < 0 ? text("password") : decoded.slice(colon + 1);
  if (username === "" || password === "" || /\p{Cc}/u.test(username + password)) return null;
  return { kind: "password", username, password };
}

/** Entries of old dockers are URLs. */
function hostOf(name: string): string {
  return name.replace(/^https?:\/\//, "").replace(/\/.*$/, "");
}

function asObject(value: unknown): Record<string, unknown> {
  return typeof value === "object" && value !== null && !Array.isArray(value) ? (value as Record<string, unknown>) : {};
}
