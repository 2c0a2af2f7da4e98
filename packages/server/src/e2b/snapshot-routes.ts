/** Snapshots of sandboxes, and copies of them. */
import type { ImageRecord } from "@holdfast/images";
import { HoldfastError } from "@holdfast/protocol";
import type { FastifyInstance } from "fastify";
import { z } from "zod";
import { ownerOf } from "../sandboxes/sources.js";
import type { Caller } from "../sandboxes/types.js";
import { namesById } from "../v1/image-views.js";
import { e2bFailure } from "./error-body.js";
import {
  bodyOf,
  pageQuery,
  queryOf,
  type SandboxRoute,
  sandboxIdOf,
  sendPage,
  timeoutSeconds,
} from "./request-input.js";
import type { Surroundings } from "./surroundings.js";
import { DEFAULT_TAG, nameWithTag, parseTemplateName } from "./template-names.js";

const MOST_FORKS = 100;
/** How long a copy lives that does not say. */
const FORK_SECONDS = 15;

const snapshotBody = z.strictObject({ name: z.string({ error: "a name" }).nullish() });
const snapshotsQuery = z.strictObject({
  sandboxID: z.string().optional(),
  name: z.string().optional(),
  ...pageQuery,
});

export function snapshotRoutes(app: FastifyInstance, surroundings: Surroundings): void {
  const { sandboxes, images, config } = surroundings.parts;
  const { own } = surroundings;
  const { maxTimeoutSeconds } = config;
  const forkBody = z.strictObject({
    timeout: timeoutSeconds(1, maxTimeoutSeconds).nullish(),
    count: z
      .int({ error: `a whole number from 1 to ${MOST_FORKS}` })
      .min(1, { error: `a whole number from 1 to ${MOST_FORKS}` })
      .max(MOST_FORKS, { error: `a whole number from 1 to ${MOST_FORKS}` })
      .nullish(),
  });

  /** The caller's own names by image: read once, however many images are looked at. */
  const namesOf = (caller: Caller): ReadonlyMap<string, readonly string[]> =>
    new Map(
      [...namesById(own.names(caller))].map(([id, named]) => [
        id,
        named.map(({ name }) => nameWithTag(name.name, name.tag)),
      ]),
    );

  function shape(image: ImageRecord, names: readonly string[] = []) {
    return { snapshotID: names[0] ?? nameWithTag(image.id, DEFAULT_TAG), names };
  }

  app.post<SandboxRoute>("/sandboxes/:sandboxID/snapshots", async (request, reply) => {
    const id = sandboxIdOf(request);
    const { name } = bodyOf(request, snapshotBody);
    await surroundings.alive(request.caller, id);
    const names = name === undefined || name === null ? [] : [await freeName(request.caller, name)];
    const { image } = await sandboxes.snapshot(request.caller, id, { names });
    return reply.code(201).send(shape(image, namesOf(request.caller).get(image.id)));
  });

  /** A snapshot may take the name of an earlier one, and of nothing else. */
  async function freeName(caller: Caller, given: string) {
    const { name, tag } = parseTemplateName(given, "name");
    const isTemplate = own.findConfigured(name) !== undefined || (await own.findRow(caller, name)) !== undefined;
    if (isTemplate) {
      throw new HoldfastError("invalid_argument", `name: '${name}' is the name of a template`, {
        hint: "Choose another name.",
        details: { field: "name" },
      });
    }
    return own.imageName(caller, name, tag ?? DEFAULT_TAG);
  }

  app.get("/snapshots", async (request, reply) => {
    const query = queryOf(request, snapshotsQuery);
    const owner = ownerOf(request.caller);
    const { nextToken } = query;
    const names = namesOf(request.caller);
    const rows = images.store
      .list({ owner })
      .filter((image) => image.kind === "snapshot" && image.owner === owner)
      .filter((image) => query.sandboxID === undefined || image.fromSandbox === query.sandboxID)
      .filter((image) => query.name === undefined || isCalled(image, names.get(image.id), query.name))
      .map((image) => ({ id: image.id as string, createdAt: new Date(image.createdAt), image }))
      .sort((one, other) => other.createdAt.getTime() - one.createdAt.getTime() || (one.id < other.id ? 1 : -1))
      .filter(
        ({ id, createdAt }) =>
          nextToken === undefined ||
          createdAt < nextToken.createdAt ||
          (createdAt.getTime() === nextToken.createdAt.getTime() && id < nextToken.id),
      );
    return sendPage(reply, rows, query.limit).map(({ image }) => shape(image, names.get(image.id)));
  });

  /** By id or name, with or without a tag. */
  function isCalled(image: ImageRecord, names: readonly string[] | undefined, given: string): boolean {
    const wanted = given.trim().toLowerCase();
    const all = [...(names ?? []), nameWithTag(image.id, DEFAULT_TAG)];
    return all.some((name) => name === wanted || name.slice(0, name.lastIndexOf(":")) === wanted);
  }

  app.post<SandboxRoute>("/sandboxes/:sandboxID/fork", async (request, reply) => {
    const id = sandboxIdOf(request);
    const { timeout, count } = bodyOf(request, forkBody);
    await surroundings.alive(request.caller, id);
    const timeoutMs = (timeout ?? Math.min(FORK_SECONDS, maxTimeoutSeconds)) * 1000;
    const { forks } = await sandboxes.fork(request.caller, id, { count: count ?? 1, timeoutMs });
    const results = forks.map(async (fork) => {
      if ("row" in fork) return { sandbox: await surroundings.shown(fork.row) };
      const { body, status } = e2bFailure(fork.error, { requestId: request.id });
      if (status >= 500) request.log.error({ err: fork.error, requestId: request.id }, "a fork failed");
      return { error: { code: body.code, message: body.message } };
    });
    return reply.code(201).send(await Promise.all(results));
  });
}
