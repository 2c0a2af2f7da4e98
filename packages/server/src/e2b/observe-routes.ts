/** A sandbox watched: its counters and its logs. */
import { invalidArgument, parseSandboxId } from "@holdfast/protocol";
import type { FastifyInstance } from "fastify";
import { z } from "zod";
import { LOG_LEVELS, logLine, readLogEntries } from "./log-entries.js";
import { queryInteger, queryList, queryOf, type SandboxRoute, sandboxIdOf } from "./request-input.js";
import { metricShape } from "./shapes.js";
import type { Surroundings } from "./surroundings.js";

const MAX_LOG_ENTRIES = 1000;
const MAX_IDS = 100;

/** The year 9999: what a date can hold, in seconds. */
const MAX_SECONDS = 253_402_300_799;

const metricsQuery = z.strictObject({
  start: queryInteger(0, MAX_SECONDS).optional(),
  end: queryInteger(0, MAX_SECONDS).optional(),
});

const allMetricsQuery = z.strictObject({ sandbox_ids: queryList });

const logsV1Query = z.strictObject({
  start: queryInteger(0, MAX_SECONDS * 1000).optional(),
  limit: queryInteger(0, MAX_LOG_ENTRIES).optional(),
});

const logsV2Query = z.strictObject({
  cursor: queryInteger(0, MAX_SECONDS * 1000).optional(),
  limit: queryInteger(0, MAX_LOG_ENTRIES).optional(),
  direction: z.enum(["forward", "backward"], { error: "forward or backward" }).optional(),
  level: z.enum(LOG_LEVELS, { error: `one of ${LOG_LEVELS.join(", ")}` }).optional(),
  search: z.string().optional(),
});

export function observeRoutes(app: FastifyInstance, surroundings: Surroundings): void {
  const { sandboxes } = surroundings.parts;

  app.get("/sandboxes/metrics", async (request) => {
    const ids = queryOf(request, allMetricsQuery).sandbox_ids;
    if (ids.length < 1 || ids.length > MAX_IDS) {
      throw invalidArgument("sandbox_ids", ids.length, `from 1 to ${MAX_IDS} ids`);
    }
    const samples = await sandboxes.latestSamples(
      request.caller,
      ids.map((id) => parseSandboxId(id, "sandbox_ids")),
    );
    return { sandboxes: Object.fromEntries(samples.map((sample) => [sample.sandboxId, metricShape(sample)])) };
  });

  app.get<SandboxRoute>("/sandboxes/:sandboxID/metrics", async (request) => {
    const id = sandboxIdOf(request);
    const { start, end } = queryOf(request, metricsQuery);
    if (start !== undefined && end !== undefined && start > end) {
      throw invalidArgument("start", start, `a time not after end, which is ${end}`);
    }
    await surroundings.alive(request.caller, id);
    const samples = await sandboxes.samples(request.caller, id, {
      from: start === undefined ? undefined : new Date(start * 1000),
      // The whole of the last second.
      to: end === undefined ? undefined : new Date(end * 1000 + 999),
    });
    return samples.map(metricShape);
  });

  app.get<SandboxRoute>("/sandboxes/:sandboxID/logs", async (request) => {
    const id = sandboxIdOf(request);
    const query = queryOf(request, logsV1Query);
    const logEntries = await readLogEntries(sandboxes, request.caller, id, {
      cursorMs: query.start,
      direction: "forward",
      limit: query.limit ?? MAX_LOG_ENTRIES,
      minimumLevel: "debug",
    });
    return { logs: logEntries.map(logLine), logEntries };
  });

  app.get<SandboxRoute>("/v2/sandboxes/:sandboxID/logs", async (request) => {
    const id = sandboxIdOf(request);
    const query = queryOf(request, logsV2Query);
    const logs = await readLogEntries(sandboxes, request.caller, id, {
      cursorMs: query.cursor,
      direction: query.direction ?? "forward",
      limit: query.limit ?? MAX_LOG_ENTRIES,
      minimumLevel: query.level ?? "debug",
      search: query.search,
    });
    return { logs };
  });
}
