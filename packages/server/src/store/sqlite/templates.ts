import { HoldfastError } from "@holdfast/protocol";
import { type Selectable, sql } from "kysely";
import type { Store, TemplateBuildRow, TemplateFailure, TemplateRow, TemplateTagRow } from "../store.js";
import type { Connection } from "./connection.js";
import type { TemplateBuildTable, TemplateTable, TemplateTagTable } from "./tables.js";
import { dateOrNull, isObject, memberOf, millisFromDate, millisOrNull, parseJson } from "./values.js";

const STATES = ["waiting", "building", "ready", "error"] as const;

/** Written out, not bound: only then does SQLite see that the index of these serves. */
const IS_BUILDING = sql<boolean>`state = 'building'`;

const isTags = (value: unknown): value is string[] =>
  Array.isArray(value) && value.every((tag) => typeof tag === "string");

const isFailure = (value: unknown): value is TemplateFailure =>
  isObject(value) && typeof value.step === "string" && typeof value.message === "string";

function templateFromColumns(columns: Selectable<TemplateTable>): TemplateRow {
  return {
    id: columns.id,
    keyId: columns.key_id,
    name: columns.name,
    createdAt: new Date(columns.created_at),
    updatedAt: new Date(columns.updated_at),
  };
}

function buildFromColumns(columns: Selectable<TemplateBuildTable>): TemplateBuildRow {
  const where = (field: string) => `${field} of template build ${columns.id}`;
  return {
    id: columns.id,
    templateId: columns.template_id,
    state: memberOf(STATES, columns.state, where("state")),
    tags: parseJson(columns.tags, isTags, where("tags")),
    cpuCount: columns.cpu_count,
    memoryMb: columns.memory_mb,
    diskMb: columns.disk_mb,
    leadingSteps: columns.leading_steps,
    createdAt: new Date(columns.created_at),
    startedAt: dateOrNull(columns.started_at),
    endedAt: dateOrNull(columns.ended_at),
    imageId: columns.image_id,
    failure: columns.failure === null ? null : parseJson(columns.failure, isFailure, where("failure")),
  };
}

function columnsFromBuild(build: TemplateBuildRow): TemplateBuildTable {
  return {
    id: build.id,
    template_id: build.templateId,
    state: build.state,
    tags: JSON.stringify(build.tags),
    cpu_count: build.cpuCount,
    memory_mb: build.memoryMb,
    disk_mb: build.diskMb,
    leading_steps: build.leadingSteps,
    created_at: millisFromDate(build.createdAt),
    started_at: millisOrNull(build.startedAt),
    ended_at: millisOrNull(build.endedAt),
    image_id: build.imageId,
    failure: build.failure === null ? null : JSON.stringify(build.failure),
  };
}

function tagFromColumns(columns: Selectable<TemplateTagTable>): TemplateTagRow {
  return {
    templateId: columns.template_id,
    tag: columns.tag,
    buildId: columns.build_id,
    createdAt: new Date(columns.created_at),
  };
}

export function createTemplates(connection: Connection): Store["templates"] {
  const { build } = connection;

  const templates = (column: "id" | "key_id", value: string) =>
    build.selectFrom("templates").selectAll().where(column, "=", value);

  const buildById = (id: string) => build.selectFrom("template_builds").selectAll().where("id", "=", id);

  const buildCount = (templateId: string) =>
    build
      .selectFrom("template_builds")
      .select(({ fn }) => fn.countAll<number>().as("count"))
      .where("template_id", "=", templateId);

  function setTags(templateId: string, tags: readonly string[], buildId: string, at: Date): void {
    for (const tag of tags) {
      const columns = { build_id: buildId, created_at: millisFromDate(at) };
      connection.run(
        build
          .insertInto("template_tags")
          .values({ template_id: templateId, tag, ...columns })
          .onConflict((conflict) => conflict.columns(["template_id", "tag"]).doUpdateSet(columns)),
      );
    }
  }

  return {
    async request(template, newBuild) {
      const updated_at = millisFromDate(template.updatedAt);
      return connection.transaction(() => {
        const [standing] = connection.all(
          build
            .insertInto("templates")
            .values({
              id: template.id,
              key_id: template.keyId,
              name: template.name,
              created_at: millisFromDate(template.createdAt),
              updated_at,
            })
            .onConflict((conflict) => conflict.columns(["key_id", "name"]).doUpdateSet({ updated_at }))
            .returningAll(),
        );
        if (standing === undefined) throw new HoldfastError("engine_fault", "a template was not stored");
        const columns = columnsFromBuild({ ...newBuild, templateId: standing.id });
        connection.run(build.insertInto("template_builds").values(columns));
        return templateFromColumns(standing);
      });
    },

    async find(id) {
      const columns = connection.first(templates("id", id));
      return columns === undefined ? undefined : templateFromColumns(columns);
    },

    async findByName(keyId, name) {
      const columns = connection.first(templates("key_id", keyId).where("name", "=", name));
      return columns === undefined ? undefined : templateFromColumns(columns);
    },

    async list(keyId) {
      const query = templates("key_id", keyId).orderBy("created_at", "desc").orderBy("id", "desc");
      return connection.all(query).map(templateFromColumns);
    },

    async remove(id) {
      return connection.run(build.deleteFrom("templates").where("id", "=", id)) > 0;
    },

    async findBuild(id) {
      const columns = connection.first(buildById(id));
      return columns === undefined ? undefined : buildFromColumns(columns);
    },

    async builds(templateId, { limit, after }) {
      let query = build.selectFrom("template_builds").selectAll().where("template_id", "=", templateId);
      if (after !== undefined) {
        const createdAt = millisFromDate(after.createdAt);
        query = query.where(({ eb, refTuple, tuple }) =>
          eb(refTuple("created_at", "id"), "<", tuple(createdAt, after.id)),
        );
      }
      query = query.orderBy("created_at", "desc").orderBy("id", "desc").limit(limit);
      return connection.all(query).map(buildFromColumns);
    },

    async countBuilds(templateId) {
      return connection.first(buildCount(templateId))?.count ?? 0;
    },

    async unendedBuilds() {
      const query = build.selectFrom("template_builds").selectAll().where(IS_BUILDING);
      return connection.all(query).map(buildFromColumns);
    },

    async claimBuild(id, { leadingSteps, startedAt }) {
      const change = { state: "building", leading_steps: leadingSteps, started_at: millisFromDate(startedAt) };
      const query = build.updateTable("template_builds").set(change);
      return connection.run(query.where("id", "=", id).where("state", "=", "waiting")) > 0;
    },

    async releaseBuild(id) {
      const query = build.updateTable("template_builds").set({ state: "waiting", started_at: null });
      connection.run(query.where("id", "=", id).where("state", "=", "building"));
    },

    async endBuild(id, ending) {
      return connection.transaction(() => {
        const change = {
          state: ending.failure === null ? "ready" : "error",
          ended_at: millisFromDate(ending.endedAt),
          image_id: ending.imageId,
          failure: ending.failure === null ? null : JSON.stringify(ending.failure),
        };
        const query = build.updateTable("template_builds").set(change);
        const changed = connection.run(query.where("id", "=", id).where("state", "=", "building")) > 0;
        const columns = changed && ending.failure === null ? connection.first(buildById(id)) : undefined;
        if (columns !== undefined) {
          const { templateId, tags } = buildFromColumns(columns);
          setTags(templateId, tags, id, ending.endedAt);
        }
        return changed;
      });
    },

    async forgetBuilds(templateId, { keep }) {
      const newest = build
        .selectFrom("template_builds")
        .select("id")
        .where("template_id", "=", templateId)
        .orderBy("created_at", "desc")
        .orderBy("id", "desc")
        .limit(keep);
      const tagged = build.selectFrom("template_tags").select("build_id").where("template_id", "=", templateId);
      connection.run(
        build
          .deleteFrom("template_builds")
          .where("template_id", "=", templateId)
          .where("state", "<>", "building")
          .where("id", "not in", newest)
          .where("id", "not in", tagged),
      );
    },

    async tags(templateId) {
      const query = build.selectFrom("template_tags").selectAll().where("template_id", "=", templateId);
      return connection.all(query.orderBy("tag")).map(tagFromColumns);
    },

    async assignTags(templateId, tags, buildId, at) {
      connection.transaction(() => setTags(templateId, tags, buildId, at));
    },

    async removeTags(templateId, tags) {
      if (tags.length === 0) return;
      const query = build.deleteFrom("template_tags").where("template_id", "=", templateId);
      connection.run(query.where("tag", "in", tags));
    },

    async findFile(keyId, hash) {
      const query = build.selectFrom("template_files").selectAll().where("key_id", "=", keyId);
      const columns = connection.first(query.where("hash", "=", hash));
      if (columns === undefined) return undefined;
      return { keyId, hash, digest: columns.digest, uploadedAt: new Date(columns.uploaded_at) };
    },

    async putFile({ keyId, hash, digest, uploadedAt }) {
      const columns = { digest, uploaded_at: millisFromDate(uploadedAt) };
      connection.run(
        build
          .insertInto("template_files")
          .values({ key_id: keyId, hash, ...columns })
          .onConflict((conflict) => conflict.columns(["key_id", "hash"]).doUpdateSet(columns)),
      );
    },
  };
}
