/** Who asks: decided once for each request to the API, before anything else is looked at. */
import { HoldfastError } from "@holdfast/protocol";
import type { FastifyInstance, FastifyRequest } from "fastify";
import type { KeyRing } from "../keys/key-ring.js";
import type { Caller } from "../sandboxes/types.js";

declare module "fastify" {
  interface FastifyRequest {
    caller: Caller;
  }
  interface FastifyContextConfig {
    /** The route asks for a proof of its own, such as a signed address or a volume's token, and has no caller. */
    provesItself?: boolean;
  }
}

/** Set on connections that came over the unix socket, which only root can open. */
export const OPERATOR = Symbol("operator");

function secretOf(request: FastifyRequest): string | undefined {
  const key = request.headers["x-api-key"];
  if (typeof key === "string") return key;
  return /^Bearer (.+)$/i.exec(request.headers.authorization ?? "")?.[1];
}

/** The same for every path: nobody learns what there is. */
export function keyNeeded(): HoldfastError {
  return new HoldfastError("unauthenticated", "an API key is needed", {
    hint: "Send it as X-API-Key. `holdfast key create` makes one.",
  });
}

async function authenticate(keys: KeyRing, request: FastifyRequest): Promise<Caller> {
  if (OPERATOR in request.raw.socket) return { kind: "operator" };
  const secret = secretOf(request);
  if (secret === undefined) throw keyNeeded();
  return keys.authenticate(secret);
}

/** Every route of this instance needs a key, those that do not exist included: nobody learns what there is. */
export function requireKey(app: FastifyInstance, keys: KeyRing): void {
  app.decorateRequest("caller");
  app.addHook("onRequest", async (request) => {
    if (request.routeOptions.config.provesItself === true) return;
    request.caller = await authenticate(keys, request);
  });
}
