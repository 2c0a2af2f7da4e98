/** What a request says, checked. A route that takes no query or no body says so by asking for none. */
import type { FastifyRequest } from "fastify";
import type { z } from "zod";
import { parseQuery } from "../http/query.js";
import { validate } from "../http/validate.js";
import { bodies, params, queries } from "./schemas.js";

export function sandboxId(request: FastifyRequest): string {
  return validate(params.sandbox, request.params, "path").id;
}

export function commandAddress(request: FastifyRequest): { readonly id: string; readonly command: number } {
  return validate(params.command, request.params, "path");
}

/** The body of a request that has no query. */
export function bodyOf<Schema extends z.ZodType>(request: FastifyRequest, schema: Schema): z.output<Schema> {
  validate(queries.none, parseQuery(request.raw.url ?? ""), "query");
  return validate(schema, request.body === undefined ? {} : request.body, "body");
}

/** The query of a request that has no body, or one that is not JSON. */
export function queryOf<Schema extends z.ZodType>(request: FastifyRequest, schema: Schema): z.output<Schema> {
  validate(bodies.none, request.body === undefined ? {} : request.body, "body");
  return validate(schema, parseQuery(request.raw.url ?? ""), "query");
}

export function expectNothing(request: FastifyRequest): void {
  bodyOf(request, bodies.none);
}
