/** Lists of sandboxes. */
import { invalidArgument } from "@holdfast/protocol";
import type { FastifyInstance } from "fastify";
import { z } from "zod";
import type { Caller } from "../sandboxes/types.js";
import type { SandboxQuery, SandboxRow } from "../store/store.js";
import { parseMetadataFilter } from "./metadata-filter.js";
import { pageQuery, queryList, queryOf, sendPage } from "./request-input.js";
import type { Surroundings } from "./surroundings.js";
import { nameWithTag } from "./template-names.js";

const WHOLE_LIST_PAGE = 500;

const STATES = ["running", "paused"] as const;

const listV1Query = z.strictObject({ metadata: z.string().optional() });

const listV2Query = z.strictObject({
  metadata: z.string().optional(),
  state: queryList.optional(),
  template: z.string().optional(),
  startedAfter: z.string().optional(),
  order: z.enum(["asc", "desc"], { error: "asc or desc" }).optional(),
  ...pageQuery,
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

  /** A template without a tag stands for all that it has or had. */
  async function madeFrom(caller: Caller, given: string): Promise<Pick<SandboxQuery, "template" | "templateName">> {
    const configured = surroundings.own.findConfigured(given);
    if (configured !== undefined) return { template: configured.name };
    const row = await surroundings.own.findRow(caller, given);
    if (row === undefined) return { template: given.replace(/^(img[a-z0-9]{20}):default$/, "$1") };
    const { name } = row.template;
    return row.tag === undefined ? { templateName: name } : { template: nameWithTag(name, row.tag) };
  }

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
    return surroundings.listed(listed);
  });

  app.get("/v2/sandboxes", async (request, reply) => {
    const query = queryOf(request, listV2Query);
    const { limit } = query;
    const [rows, running] = await Promise.all([
      sandboxes.list(request.caller, {
        statuses: statesFrom(query.state),
        metadata: query.metadata === undefined ? undefined : parseMetadataFilter(query.metadata),
        ...(query.template === undefined ? {} : await madeFrom(request.caller, query.template)),
        startedAfter: query.startedAfter === undefined ? undefined : timeFrom(query.startedAfter),
        order: query.order ?? "desc",
        limit: limit + 1,
        after: query.nextToken,
      }),
      sandboxes.countRunning(request.caller),
    ]);
    const page = sendPage(reply, rows, limit);
    void reply.header("x-total-running", String(running));
    return surroundings.listed(page);
  });
}
