/** Lists of sandboxes. */
import { invalidArgument } from "@holdfast/protocol";
import type { FastifyInstance } from "fastify";
import { z } from "zod";
import type { SandboxQuery, SandboxRow } from "../store/store.js";
import { parseMetadataFilter } from "./metadata-filter.js";
import { formatPageToken, parsePageToken } from "./page-token.js";
import { queryInteger, queryList, queryOf } from "./request-input.js";
import { listedSandboxShape } from "./shapes.js";
import type { Surroundings } from "./surroundings.js";

const MAX_PAGE = 100;
const WHOLE_LIST_PAGE = 500;

const STATES = ["running", "paused"] as const;

const listV1Query = z.strictObject({ metadata: z.string().optional() });

const listV2Query = z.strictObject({
  metadata: z.string().optional(),
  state: queryList.optional(),
  template: z.string().optional(),
  startedAfter: z.string().optional(),
  order: z.enum(["asc", "desc"], { error: "asc or desc" }).optional(),
  limit: queryInteger(1, MAX_PAGE).optional(),
  nextToken: z.string().optional(),
});

function statesFrom(given: readonly string[] | undefined): readonly (typeof STATES)[number][] {
  if (given === undefined || given.length === 0) return STATES;
  return given.map((state) => {
    const known = STATES.find((candidate) => candidate === state);
    if (known === undefined) throw invalidArgument("state", state.slice(0, 100), "running, paused, or both");
    return known;
  });
}

/** RFC 3339, with its time zone: without one it would mean another time on another server. */
const TIMESTAMP = /^\d{4}-\d\d-\d\d[Tt ]\d\d:\d\d:\d\d(?:\.\d{1,9})?(?:[Zz]|[+-]\d\d:\d\d)$/;

function timeFrom(given: string): Date {
  // A plus sign that was not encoded arrives as a space.
  const text = given.replace(/ (?=\d\d:\d\d$)/, "+");
  const time = TIMESTAMP.test(text) ? new Date(text) : undefined;
  if (time === undefined || Number.isNaN(time.getTime())) {
    throw invalidArgument("startedAfter", given.slice(0, 100), "a time like 2026-01-31T12:00:00Z");
  }
  return time;
}

export function listRoutes(app: FastifyInstance, surroundings: Surroundings): void {
  const { sandboxes } = surroundings.parts;

  app.get("/sandboxes", async (request) => {
    const { metadata } = queryOf(request, listV1Query);
    const filter = metadata === undefined ? undefined : parseMetadataFilter(metadata);
    const listed: SandboxRow[] = [];
    let after: SandboxQuery["after"];
    for (;;) {
      const page = await sandboxes.list(request.caller, {
        statuses: ["running"],
        metadata: filter,
        limit: WHOLE_LIST_PAGE,
        after,
      });
      listed.push(...page);
      after = page.at(-1);
      if (page.length < WHOLE_LIST_PAGE) break;
    }
    return listed.map(listedSandboxShape);
  });

  app.get("/v2/sandboxes", async (request, reply) => {
    const query = queryOf(request, listV2Query);
    const limit = query.limit ?? MAX_PAGE;
    // An empty token is what a client sends that had none.
    const token = query.nextToken === "" ? undefined : query.nextToken;
    const [rows, running] = await Promise.all([
      sandboxes.list(request.caller, {
        statuses: statesFrom(query.state),
        metadata: query.metadata === undefined ? undefined : parseMetadataFilter(query.metadata),
        template:
          query.template === undefined
            ? undefined
            : (surroundings.findTemplate(query.template)?.name ?? query.template),
        startedAfter: query.startedAfter === undefined ? undefined : timeFrom(query.startedAfter),
        order: query.order ?? "desc",
        // One more than is shown tells whether there is another page.
        limit: limit + 1,
        after: token === undefined ? undefined : parsePageToken(token),
      }),
      sandboxes.countRunning(request.caller),
    ]);
    const page = rows.slice(0, limit);
    const last = page.at(-1);
    if (rows.length > limit && last !== undefined) void reply.header("x-next-token", formatPageToken(last));
    void reply.header("x-total-running", String(running));
    return page.map(listedSandboxShape);
  });
}
