/** What sandboxes can be made from, and whom a key belongs to. */
import type { ImageId, ImageRecord, NamedImage } from "@holdfast/images";
import { HoldfastError, invalidArgument } from "@holdfast/protocol";
import type { FastifyInstance, FastifyRequest } from "fastify";
import { z } from "zod";
import { keyIdOf } from "../sandboxes/key-id.js";
import { ownerOf } from "../sandboxes/sources.js";
import type { Caller } from "../sandboxes/types.js";
import type { TemplateRow } from "../store/store.js";
import { bodyOf, pageQuery, queryOf, sendPage } from "./request-input.js";
import { nameOf, type Surroundings } from "./surroundings.js";
import { parseTag, parseTemplateName } from "./template-names.js";
import { TemplateViews } from "./template-views.js";

const MAX_TAGS = 100;

interface TemplateRoute {
  readonly Params: { readonly templateID: string };
}

const templatesQuery = z.strictObject({ teamID: z.string().optional() });
const templatesPageQuery = z.strictObject({ teamID: z.string().optional(), ...pageQuery });
const buildsQuery = z.strictObject(pageQuery);
const noQuery = z.strictObject({});
const updateBody = z.strictObject({ public: z.boolean().optional() });
const tags = z
  .array(z.string())
  .min(1, { error: "at least one tag" })
  .max(MAX_TAGS, { error: `at most ${MAX_TAGS}` });
const assignBody = z.strictObject({ target: z.string(), tags });
const removeTagsBody = z.strictObject({ name: z.string(), tags });

/** E2B's command line tool takes the key that it goes on with from here: it gets back what it came with. */
function presentedSecret(request: FastifyRequest): string {
  const key = request.headers["x-api-key"];
  if (typeof key === "string") return key;
  return /^Bearer (.+)$/i.exec(request.headers.authorization ?? "")?.[1] ?? "";
}

function requireTeam(caller: Caller, teamID: string | undefined): void {
  if (teamID === undefined || teamID === keyIdOf(caller)) return;
  throw new HoldfastError("access_denied", "teamID: this key belongs to another team", {
    hint: "GET /teams names the key's own.",
  });
}

function requireNotOurs(surroundings: Surroundings, given: string): void {
  const configured = surroundings.own.findConfigured(given);
  if (configured === undefined) return;
  throw new HoldfastError("access_denied", `template '${configured.name}' is this server's own`, {
    hint: "It is changed under `templates` in the server's configuration.",
  });
}

export function templateRoutes(app: FastifyInstance, surroundings: Surroundings): void {
  const { keys, store, images } = surroundings.parts;
  const { own, builds } = surroundings;
  const views = new TemplateViews(surroundings);

  const configuredShapes = (caller: Caller) =>
    Promise.all(
      surroundings.templates
        .names()
        .flatMap((name) => surroundings.templates.find(name) ?? [])
        .map((template) => views.configured(caller, template)),
    );

  app.get("/teams", async (request) => {
    const teamID = keyIdOf(request.caller);
    const key = (await keys.list()).find((candidate) => candidate.id === teamID);
    return [{ teamID, name: key?.name ?? teamID, apiKey: presentedSecret(request), isDefault: true }];
  });

  app.get("/templates", async (request) => {
    requireTeam(request.caller, queryOf(request, templatesQuery).teamID);
    const rows = await store.templates.list(keyIdOf(request.caller));
    const built = await Promise.all(rows.map((row) => views.built(request.caller, row)));
    return [...built, ...(await configuredShapes(request.caller))];
  });

  app.get("/v2/templates", async (request, reply) => {
    const { teamID, limit, nextToken } = queryOf(request, templatesPageQuery);
    requireTeam(request.caller, teamID);
    const rows = await store.templates.list(keyIdOf(request.caller));
    const rest = rows.filter((row) => nextToken === undefined || isAfter(row, nextToken));
    const page = sendPage(reply, rest, limit);
    const built = await Promise.all(page.map((row) => views.built(request.caller, row)));
    // Those of the configuration are few, and come with the last page.
    return rest.length > limit ? built : [...built, ...(await configuredShapes(request.caller))];
  });

  app.get<TemplateRoute>("/templates/:templateID", async (request, reply) => {
    const { limit, nextToken } = queryOf(request, buildsQuery);
    const configured = own.findConfigured(request.params.templateID);
    if (configured !== undefined) return views.configuredWithBuilds(request.caller, configured);
    const template = await own.requireRow(request.caller, request.params.templateID);
    const rows = await store.templates.builds(template.id, { limit: limit + 1, after: nextToken });
    return views.builtWithBuilds(request.caller, template, sendPage(reply, rows, limit));
  });

  async function update(request: FastifyRequest<TemplateRoute>): Promise<TemplateRow> {
    const { public: isPublic } = bodyOf(request, updateBody);
    requireNotOurs(surroundings, request.params.templateID);
    const template = await own.requireRow(request.caller, request.params.templateID);
    if (isPublic === true) {
      throw new HoldfastError("not_implemented", "public templates are not implemented by this server yet", {
        hint: "What everybody is to use, the operator builds or imports, or names under `templates` in the configuration.",
        details: { field: "public" },
      });
    }
    return template;
  }

  app.patch<TemplateRoute>("/templates/:templateID", async (request, reply) => {
    await update(request);
    return reply.code(200).send();
  });

  app.patch<TemplateRoute>("/v2/templates/:templateID", async (request) => ({ names: [(await update(request)).name] }));

  app.delete<TemplateRoute>("/templates/:templateID", async (request, reply) => {
    queryOf(request, noQuery);
    const { templateID } = request.params;
    requireNotOurs(surroundings, templateID);
    const row = await own.findRow(request.caller, templateID);
    if (row === undefined) await removeSnapshot(request.caller, templateID);
    else if (row.tag === undefined) await removeTemplate(request.caller, row.template);
    else {
      throw invalidArgument(
        "templateID",
        templateID.slice(0, 100),
        "a template without a tag, which has a route of its own",
      );
    }
    return reply.code(204).send();
  });

  async function removeTemplate(caller: Caller, template: TemplateRow): Promise<void> {
    await builds.cancel(template, nameOf(caller));
    const named = own.tagged(caller, template);
    for (const { name } of named) images.store.removeName(name);
    await store.templates.remove(template.id);
    for (const id of new Set(named.map(({ imageId }) => imageId))) await removeIfUnnamed(caller, id);
  }

  /** What sandboxes or other images stand on stays until it is pruned. */
  async function removeIfUnnamed(caller: Caller, id: ImageId): Promise<void> {
    const record = images.store.get(id);
    if (record?.owner !== ownerOf(caller) || images.store.names({ imageId: id }).length > 0) return;
    try {
      await images.store.remove(id);
    } catch (reason) {
      const { code } = HoldfastError.from(reason);
      if (code !== "image_in_use" && code !== "image_not_found") throw reason;
    }
  }

  async function removeSnapshot(caller: Caller, given: string): Promise<void> {
    const found = await own.find(caller, given);
    const image: ImageRecord | undefined = found?.kind === "image" ? found.image : undefined;
    if (image?.kind !== "snapshot" || image.owner !== ownerOf(caller)) throw await own.notFound(caller, given);
    await images.store.remove(image.id);
  }

  app.get<{ Params: { alias: string } }>("/templates/aliases/:alias", async (request) => {
    queryOf(request, noQuery);
    const { alias } = request.params;
    // A template is there from when its first build was asked for.
    const row = own.findConfigured(alias) === undefined ? await own.findRow(request.caller, alias) : undefined;
    if (row !== undefined && row.tag === undefined) return { templateID: row.template.id, public: false };
    const found = await own.require(request.caller, alias);
    switch (found.kind) {
      case "configured":
        return { templateID: found.template.name, public: true };
      case "built":
        return { templateID: found.template.id, public: false };
      case "image":
        return { templateID: found.image.id, public: found.image.owner === null };
    }
  });

  app.post("/templates/tags", async (request, reply) => {
    const body = bodyOf(request, assignBody);
    const { name, tag } = parseTemplateName(body.target, "target");
    const wanted = body.tags.map((given, index) => parseTag(given, `tags[${index}]`));
    requireNotOurs(surroundings, name);
    const found = await own.require(request.caller, tag === undefined ? name : body.target);
    if (found.kind !== "built") throw await own.notFound(request.caller, body.target);
    const { template, image, build } = found;
    for (const one of wanted) images.store.setName(own.imageName(request.caller, template.name, one), image.id);
    if (build !== undefined) await store.templates.assignTags(template.id, wanted, build.id, new Date());
    return reply.code(201).send({ tags: wanted, buildID: buildIdOf(build, image) });
  });

  app.delete("/templates/tags", async (request, reply) => {
    const body = bodyOf(request, removeTagsBody);
    const { name, tag } = parseTemplateName(body.name, "name");
    if (tag !== undefined) throw invalidArgument("name", body.name.slice(0, 100), "a template's name without a tag");
    const wanted = body.tags.map((given, index) => parseTag(given, `tags[${index}]`));
    requireNotOurs(surroundings, name);
    const template = await own.requireRow(request.caller, name);
    const named = own.tagged(request.caller, template).filter((each) => wanted.includes(each.name.tag));
    requireAll(template, wanted, named);
    for (const each of named) images.store.removeName(each.name);
    await store.templates.removeTags(template.id, wanted);
    for (const id of new Set(named.map(({ imageId }) => imageId))) await removeIfUnnamed(request.caller, id);
    return reply.code(204).send();
  });

  app.get<TemplateRoute>("/templates/:templateID/tags", async (request) => {
    queryOf(request, noQuery);
    const template = await own.requireRow(request.caller, request.params.templateID);
    const rows = own.tagged(request.caller, template).flatMap(({ name, imageId, since }) => {
      const image = images.store.get(imageId);
      return image === undefined ? [] : [{ tag: name.tag, image, since }];
    });
    return Promise.all(
      rows.map(async ({ tag, image, since }) => ({
        tag,
        buildID: buildIdOf(await own.buildOf(template, tag, image.id), image),
        createdAt: since,
      })),
    );
  });
}

/** An image that was named by other means has a build of its own, or none at all. */
function buildIdOf(build: { readonly id: string } | undefined, image: ImageRecord): string {
  return build?.id ?? image.buildId ?? image.id;
}

function requireAll(template: TemplateRow, wanted: readonly string[], named: readonly NamedImage[]): void {
  const missing = wanted.find((tag) => !named.some(({ name }) => name.tag === tag));
  if (missing === undefined) return;
  throw new HoldfastError("image_not_found", `template '${template.name}' has no tag '${missing}'`, {
    details: { template: template.name },
  });
}

function isAfter(row: TemplateRow, end: { readonly createdAt: Date; readonly id: string }): boolean {
  const difference = row.createdAt.getTime() - end.createdAt.getTime();
  return difference < 0 || (difference === 0 && row.id < end.id);
}
