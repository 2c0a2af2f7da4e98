/** Which server the client commands speak to. */
import { accessSync, constants } from "node:fs";
import { join, resolve } from "node:path";
import { HoldfastError, invalidArgument } from "@holdfast/protocol";

export interface ServerFlags {
  readonly url?: string;
  readonly apiKey?: string;
  readonly stateDir?: string;
}

export type ServerAddress =
  | { readonly kind: "url"; readonly url: string; readonly apiKey: string }
  /** The server of this machine. Who may open it is the operator, and needs no key. */
  | { readonly kind: "socket"; readonly path: string };

type Environment = Readonly<Record<string, string | undefined>>;

const DEFAULT_URL = "http://127.0.0.1:3000";
const DEFAULT_STATE_DIRECTORY = "/var/lib/holdfast";

export function socketPathOf(stateDirectory: string): string {
  return join(stateDirectory, "server", "holdfast.sock");
}

/** An empty variable is none. */
function given(value: string | undefined): string | undefined {
  return value === "" ? undefined : value;
}

function checkUrl(text: string, field: string): string {
  let url: URL;
  try {
    url = new URL(text);
  } catch {
    throw invalidArgument(field, text, "an address such as http://127.0.0.1:3000");
  }
  if (url.protocol !== "http:" && url.protocol !== "https:") {
    throw invalidArgument(field, text, "an address that begins with http:// or https://");
  }
  return text.replace(/\/+$/, "");
}

/** Flags before variables; a key without an address is for the default one; neither is for the server of this machine. */
export function findServer(flags: ServerFlags, env: Environment): ServerAddress {
  const url = given(flags.url) ?? given(env.HOLDFAST_URL);
  const apiKey = given(flags.apiKey) ?? given(env.HOLDFAST_API_KEY);
  const field = given(flags.url) === undefined ? "HOLDFAST_URL" : "--url";
  if (url === undefined && (apiKey === undefined || flags.stateDir !== undefined)) {
    const stateDirectory = flags.stateDir ?? given(env.HOLDFAST_STATE_DIR) ?? DEFAULT_STATE_DIRECTORY;
    return { kind: "socket", path: socketPathOf(resolve(stateDirectory)) };
  }
  if (apiKey === undefined) {
    throw new HoldfastError("unauthenticated", `${field} is given, but no API key`, {
      hint: "Give --api-key or HOLDFAST_API_KEY. `holdfast key create NAME` makes one on the server's machine.",
      details: { field: "--api-key" },
    });
  }
  return { kind: "url", url: checkUrl(url ?? DEFAULT_URL, field), apiKey };
}

/** Before anything is sent: a socket that is not there, or not ours to open, has a remedy of its own. */
export function checkSocket(path: string): void {
  try {
    accessSync(path, constants.R_OK | constants.W_OK);
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code === "EACCES") {
      throw new HoldfastError("access_denied", `only root may open ${path}`, {
        hint: "Use sudo, or an API key: --url and --api-key (HOLDFAST_URL, HOLDFAST_API_KEY).",
        cause: error,
      });
    }
    throw noServerAt(path, error);
  }
}

export function noServerAt(where: string, cause: unknown): HoldfastError {
  return new HoldfastError("server_unreachable", `no server answers at ${where}`, {
    hint: "Start one with `holdfast serve`, or name another with --url and --api-key (HOLDFAST_URL, HOLDFAST_API_KEY).",
    cause,
  });
}
