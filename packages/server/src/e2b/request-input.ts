/** What a request brings, checked: its sandbox's id, its query, its body. */
import { HoldfastError, parseSandboxId, type SandboxId } from "@holdfast/protocol";
import type { FastifyReply, FastifyRequest } from "fastify";
import { z } from "zod";
import { parseQuery } from "../http/query.js";
import { validate } from "../http/validate.js";
import { formatPageToken, parsePageToken } from "./page-token.js";

export interface SandboxRoute {
  readonly Params: { readonly sandboxID: string };
}

/** An id that no sandbox can have is one that does not exist. */
export function sandboxIdOf(request: FastifyRequest<SandboxRoute>): SandboxId {
  const { sandboxID } = request.params;
  try {
    return parseSandboxId(sandboxID, "sandboxID");
  } catch (reason) {
    throw new HoldfastError("sandbox_not_found", `no sandbox with id ${JSON.stringify(sandboxID.slice(0, 64))}`, {
      cause: reason,
    });
  }
}

export function bodyOf<Schema extends z.ZodType>(request: FastifyRequest, schema: Schema): z.output<Schema> {
  return validate(schema, request.body === undefined ? {} : request.body, "body");
}

export function queryOf<Schema extends z.ZodType>(request: FastifyRequest, schema: Schema): z.output<Schema> {
  return validate(schema, parseQuery(request.raw.url ?? ""), "query");
}

/** A whole number in a query. */
export function queryInteger(min: number, max: number) {
  const expected = `a whole number from ${min} to ${max}`;
  return z
    .string({ error: expected })
    .regex(/^\d{1,16}$/, { error: expected })
    .transform(Number)
    .pipe(z.int({ error: expected }).min(min, { error: expected }).max(max, { error: expected }));
}

export const MAX_PAGE = 100;

/** Which page of a list. */
export const pageQuery = {
  limit: queryInteger(1, MAX_PAGE).default(MAX_PAGE),
  // An empty token is what a client sends that had none.
  nextToken: z
    .string()
    .optional()
    .transform((token) => (token === undefined || token === "" ? undefined : parsePageToken(token))),
};

/** One page of what is there; whoever asks gives one more than is shown, which tells whether there is another. */
export function sendPage<Row extends { readonly createdAt: Date; readonly id: string }>(
  reply: FastifyReply,
  rows: readonly Row[],
  limit: number,
): Row[] {
  const page = rows.slice(0, limit);
  const last = page.at(-1);
  if (rows.length > limit && last !== undefined) void reply.header("x-next-token", formatPageToken(last));
  return page;
}

/** A list in a query: comma-joined, repeated, or both. */
export const queryList = z
  .union([z.string(), z.array(z.string())], { error: "a comma-separated list" })
  .transform((given) =>
    (typeof given === "string" ? [given] : given).flatMap((text) => text.split(",")).filter((item) => item !== ""),
  );

/** Seconds from now. */
export function timeoutSeconds(min: number, max: number) {
  const expected = `a whole number of seconds from ${min} to ${max}`;
  return z.int({ error: expected }).min(min, { error: expected }).max(max, { error: expected });
}
