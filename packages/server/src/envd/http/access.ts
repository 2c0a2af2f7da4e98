/** Who may use envd: whoever has the sandbox's token, and for a single file whoever has a link signed with it. */
import { createHash } from "node:crypto";
import type { IncomingMessage } from "node:http";
import { HoldfastError, invalidArgument } from "@holdfast/protocol";
import type { FastifyInstance, FastifyRequest } from "fastify";
import { liveSandboxOf } from "../../http/live-request.js";
import { isSameSecret } from "../../http/same-secret.js";
import type { Sandboxes } from "../../sandboxes/types.js";
import { type FileQuery, parseFileQuery } from "./query.js";

const UNAUTHORIZED = "unauthorized access, please provide a valid access token or method signing if supported";

/** They check for themselves (files, by signature), tell nothing (health), or do not exist for clients at all. */
export const CONTROL_ROUTES = ["/init", "/freeze", "/unfreeze", "/collapse", "/fsfreeze", "/fsthaw", "/upgrade"];
const EXEMPT: Readonly<Record<string, readonly string[]>> = {
  "/health": ["GET", "HEAD"],
  "/files": ["GET", "HEAD", "POST"],
};

type Tokens = Pick<Sandboxes, "envdToken">;

function unauthenticated(message: string): HoldfastError {
  return new HoldfastError("unauthenticated", message);
}

function tokenOf(request: IncomingMessage): string | undefined {
  const token = request.headers["x-access-token"];
  return token === undefined || token === "" ? undefined : String(token);
}

function isExempt(request: FastifyRequest): boolean {
  const url = request.routeOptions.url ?? "";
  return CONTROL_ROUTES.includes(url) || (EXEMPT[url]?.includes(request.method) ?? false);
}

/** Before anything else of a request is looked at, RPC included. */
export function requireAccessToken(app: FastifyInstance, sandboxes: Tokens): void {
  app.addHook("onRequest", async (request) => {
    if (isExempt(request)) return;
    requireToken(request.raw, sandboxes.envdToken(liveSandboxOf(request.raw).id));
  });
}

function requireToken(request: IncomingMessage, token: string): void {
  const given = tokenOf(request);
  if (given === undefined || !isSameSecret(given, token)) throw unauthenticated(UNAUTHORIZED);
}

const FILES = /^\/files(?:\?|$)/;

/** The same for a sandbox that does not run: a request that would be refused must not wake it. */
export function requireRightToWake(request: IncomingMessage, token: string): void {
  const url = request.url ?? "";
  if (!FILES.test(url)) requireToken(request, token);
  else requireFileAccess(request, parseFileQuery(url), request.method === "POST" ? "write" : "read", token);
}

export type FileOperation = "read" | "write";

export interface SignedFacts {
  readonly path: string;
  readonly operation: FileOperation;
  readonly username: string;
  readonly token: string;
  readonly expiration?: number | undefined;
}

export function signatureOf({ path, operation, username, token, expiration }: SignedFacts): string {
  const text = [path, operation, username, token, ...(expiration === undefined ? [] : [expiration])].join(":");
  return `v1_${createHash("sha256").update(text).digest("base64").replace(/=+$/, "")}`;
}

function parseExpiration(text: string | undefined): number | undefined {
  if (text === undefined) return undefined;
  if (!/^-?[0-9]{1,15}$/.test(text)) throw invalidArgument("signature_expiration", text, "a time in unix seconds");
  return Number(text);
}

/** For one file: by the token, else by the signature; the signature first, then whether it is still good. */
export function requireFileAccess(
  request: IncomingMessage,
  query: FileQuery,
  operation: FileOperation,
  token: string,
): void {
  const given = tokenOf(request);
  if (given !== undefined) {
    if (isSameSecret(given, token)) return;
    throw unauthenticated("access token present in header but does not match");
  }
  if (query.signature === undefined) throw unauthenticated("missing signature query parameter");
  const expiration = parseExpiration(query.signature_expiration);
  const { path = "", username = "" } = query;
  const expected = signatureOf({ path, operation, username, token, expiration });
  if (!isSameSecret(query.signature, expected)) throw unauthenticated("invalid signature");
  if (expiration !== undefined && expiration < Date.now() / 1000) {
    throw unauthenticated("signature is already expired");
  }
}
