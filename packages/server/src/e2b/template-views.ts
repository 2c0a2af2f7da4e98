/** Templates and their builds, as E2B's clients know them. */
import { limitsInstead } from "@holdfast/protocol";
import type { Template } from "../sandboxes/templates.js";
import type { Caller, Sandboxes } from "../sandboxes/types.js";
import type { SandboxQuery, TemplateBuildRow, TemplateRow } from "../store/store.js";
import { limitsOfBuild } from "./own-templates.js";
import { ENVD_VERSION, sizeShape } from "./shapes.js";
import type { Surroundings } from "./surroundings.js";

const COUNT_PAGE = 500;

export class TemplateViews {
  readonly #surroundings: Surroundings;
  readonly #sandboxes: Sandboxes;
  /** Templates of the configuration are read when the server starts, and are what they are from then on. */
  readonly #loadedAt = new Date().toISOString();

  constructor(surroundings: Surroundings) {
    this.#surroundings = surroundings;
    this.#sandboxes = surroundings.parts.sandboxes;
  }

  async configured(caller: Caller, template: Template) {
    return {
      ...this.#names(template.name, template.name),
      buildID: template.name,
      buildStatus: "ready" as const,
      buildCount: 1,
      public: true,
      ...sizeShape(template.limits),
      envdVersion: ENVD_VERSION,
      createdAt: this.#loadedAt,
      updatedAt: this.#loadedAt,
      createdBy: null,
      ...(await this.#useOf(caller, { template: template.name })),
    };
  }

  async configuredWithBuilds(caller: Caller, template: Template) {
    const { buildID, buildStatus, createdAt, cpuCount, memoryMB, diskSizeMB, ...shown } = await this.configured(
      caller,
      template,
    );
    const { names, aliases, templateID, updatedAt, spawnCount, lastSpawnedAt } = shown;
    const build = { buildID, status: buildStatus, createdAt, updatedAt, finishedAt: createdAt };
    return {
      templateID,
      names,
      aliases,
      public: true,
      createdAt,
      updatedAt,
      spawnCount,
      lastSpawnedAt,
      builds: [{ ...build, cpuCount, memoryMB, diskSizeMB, envdVersion: ENVD_VERSION }],
    };
  }

  async built(caller: Caller, template: TemplateRow) {
    const { store } = this.#surroundings.parts;
    const builds = await Promise.all(
      (await store.templates.builds(template.id, { limit: COUNT_PAGE })).map(async (row) => this.#settled(row)),
    );
    // The last that is ready is what counts; before there is one, the last.
    const last = builds.find(({ state }) => state === "ready") ?? builds[0];
    return {
      ...this.#identity(template),
      buildID: last?.id ?? template.id,
      buildStatus: last?.state ?? ("waiting" as const),
      buildCount: await store.templates.countBuilds(template.id),
      ...this.#size(last),
      envdVersion: ENVD_VERSION,
      createdBy: null,
      ...(await this.#useOf(caller, { templateName: template.name })),
    };
  }

  async builtWithBuilds(caller: Caller, template: TemplateRow, builds: readonly TemplateBuildRow[]) {
    return {
      ...this.#identity(template),
      ...(await this.#useOf(caller, { templateName: template.name })),
      builds: await Promise.all(builds.map(async (row) => this.#build(await this.#settled(row)))),
    };
  }

  async #settled(row: TemplateBuildRow): Promise<TemplateBuildRow> {
    return row.state === "building" ? (await this.#surroundings.builds.state(row)).row : row;
  }

  #build(row: TemplateBuildRow) {
    return {
      buildID: row.id,
      status: row.state,
      createdAt: row.createdAt.toISOString(),
      updatedAt: (row.endedAt ?? row.startedAt ?? row.createdAt).toISOString(),
      ...(row.endedAt === null ? {} : { finishedAt: row.endedAt.toISOString() }),
      ...this.#size(row),
      envdVersion: ENVD_VERSION,
    };
  }

  #size(build: TemplateBuildRow | undefined) {
    const { parts, templates } = this.#surroundings;
    const own = build === undefined ? {} : limitsOfBuild(build, parts.config.sandboxDiskMb);
    return sizeShape(limitsInstead(templates.defaults(), own));
  }

  #identity(template: TemplateRow) {
    return {
      ...this.#names(template.id, template.name),
      public: false,
      createdAt: template.createdAt.toISOString(),
      updatedAt: template.updatedAt.toISOString(),
    };
  }

  #names(templateID: string, name: string) {
    return { templateID, names: [name], aliases: [name] };
  }

  /** Of the sandboxes that are remembered: those alive, and those that ended not long ago. */
  async #useOf(caller: Caller, made: Pick<SandboxQuery, "template" | "templateName">) {
    let spawnCount = 0;
    let lastSpawnedAt: string | null = null;
    let after: SandboxQuery["after"];
    for (;;) {
      const page = await this.#sandboxes.list(caller, { ...made, limit: COUNT_PAGE, after });
      lastSpawnedAt ??= page[0]?.createdAt.toISOString() ?? null;
      spawnCount += page.length;
      after = page.at(-1);
      if (page.length < COUNT_PAGE) return { spawnCount, lastSpawnedAt };
    }
  }
}
