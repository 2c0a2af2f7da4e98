/** Builds of templates: promised, started, followed to their end, and remembered. */
import {
  type Build,
  type BuildFailure,
  type BuildId,
  type BuildInfo,
  type BuildLogEntry,
  createBuildId,
  type ImageRecord,
  isBaseImage,
} from "@holdfast/images";
import { createRandomId, HoldfastError, invalidArgument } from "@holdfast/protocol";
import type { Digest } from "@holdfast/recipe";
import type { ServerParts } from "../parts.js";
import { requireRegistriesOf } from "../registries/registry-access.js";
import { checkAgainstHost } from "../sandboxes/check-request.js";
import { keyIdOf } from "../sandboxes/key-id.js";
import { ownerOf } from "../sandboxes/sources.js";
import type { Caller } from "../sandboxes/types.js";
import type { TemplateBuildRow, TemplateFailure, TemplateRow } from "../store/store.js";
import { shownMessage, shownStep } from "./build-logs.js";
import { limitsOfBuild, type OwnTemplates } from "./own-templates.js";
import { authOfTemplate } from "./template-auth.js";
import { parseTemplateName, tagsOf } from "./template-names.js";
import { type BuildStart, recipeFromTemplate, type StartingPoint } from "./template-recipe.js";

/** The names that clients start from when they are not told. */
const BASE_IMAGE = /^(?:docker\.io\/)?e2bdev\/base(?::latest)?$/;
/** A single command may take as long; all of them together, here. */
const BUILD_TIMEOUT_S = 3600;
/** The builder's own default: it gets more only if its image will. */
const BUILDER_MEMORY_MB = 4096;
/** So many builds of a template are remembered, beside those that a tag stands for. */
const REMEMBERED_BUILDS = 100;

export interface BuildWish {
  readonly name: string;
  readonly tags: readonly string[];
  readonly cpuCount: number | undefined;
  readonly memoryMb: number | undefined;
  readonly diskMb: number | undefined;
}

export interface PromisedBuild {
  readonly template: TemplateRow;
  readonly buildId: string;
  readonly tags: readonly string[];
}

export interface BuildState {
  readonly row: TemplateBuildRow;
  /** Undefined if it was not started, or its files are gone. */
  readonly build: Build | undefined;
  readonly tail: readonly BuildLogEntry[];
  /** As the build itself says it. */
  readonly failureMessage: string | undefined;
}

export class TemplateBuilds {
  readonly #parts: ServerParts;
  readonly #own: OwnTemplates;
  /** Claimed, and on their way to the builder. */
  readonly #starting = new Set<string>();

  constructor(parts: ServerParts, own: OwnTemplates) {
    this.#parts = parts;
    this.#own = own;
  }

  /** Those that an earlier server did not see the end of. */
  async recover(): Promise<void> {
    for (const row of await this.#parts.store.templates.unendedBuilds()) await this.#settle(row);
  }

  async request(caller: Caller, wish: BuildWish): Promise<PromisedBuild> {
    const { store, config, images } = this.#parts;
    const reference = parseTemplateName(wish.name, "name");
    const tags = tagsOf(reference, wish.tags);
    this.#requireFreeName(caller, reference.name);
    const size = { cpuCount: wish.cpuCount ?? null, memoryMb: wish.memoryMb ?? null, diskMb: wish.diskMb ?? null };
    await checkAgainstHost(limitsOfBuild(size, config.sandboxDiskMb), images.context.engine);
    const now = new Date();
    const buildId = createBuildId();
    const template = await store.templates.request(
      { id: createRandomId("t"), keyId: keyIdOf(caller), name: reference.name, createdAt: now, updatedAt: now },
      {
        id: buildId,
        state: "waiting",
        tags,
        ...size,
        leadingSteps: 0,
        createdAt: now,
        startedAt: null,
        endedAt: null,
        imageId: null,
        failure: null,
      },
    );
    await store.templates.forgetBuilds(template.id, { keep: REMEMBERED_BUILDS });
    return { template, buildId, tags };
  }

  async find(template: TemplateRow, buildId: string): Promise<TemplateBuildRow> {
    const row = await this.#parts.store.templates.findBuild(buildId);
    if (row?.templateId === template.id) return row;
    throw new HoldfastError(
      "build_not_found",
      `template ${template.name} has no build '${buildId.slice(0, 100)}', or it is forgotten`,
    );
  }

  async start(caller: Caller, template: TemplateRow, row: TemplateBuildRow, body: BuildStart): Promise<void> {
    const { store, images, config } = this.#parts;
    const from = await this.#startingPoint(caller, body);
    const digests = await this.#filesOf(caller, body);
    const { recipe, leadingSteps, forceFrom } = recipeFromTemplate(body, from, (hash) => digests.get(hash) as Digest);
    await requireRegistriesOf(this.#parts, caller, recipe);
    const authFor = authOfTemplate(body);
    this.#parts.sandboxes.requireCalm("build");
    if (!(await store.templates.claimBuild(row.id, { leadingSteps, startedAt: new Date() }))) {
      throw invalidArgument("buildID", row.id, "a build that has not been started before");
    }
    this.#starting.add(row.id);
    try {
      const memoryMb = row.memoryMb ?? undefined;
      const build = await images.builder.start({
        id: row.id as BuildId,
        recipe,
        owner: ownerOf(caller),
        names: row.tags.map((tag) => this.#own.imageName(caller, template.name, tag)),
        builder: {
          timeoutS: BUILD_TIMEOUT_S,
          runtimeMemoryMb: memoryMb,
          memoryMb: memoryMb !== undefined && memoryMb > BUILDER_MEMORY_MB ? memoryMb : undefined,
        },
        forceFrom,
        limits: limitsOfBuild(row, config.sandboxDiskMb),
        authFor,
      });
      const settle = (): void => void this.#settleById(row.id);
      build.image.then(settle, settle);
    } catch (error) {
      await store.templates.releaseBuild(row.id);
      throw error;
    } finally {
      this.#starting.delete(row.id);
    }
  }

  /** What has become of it. Its end, if it has one, is written down before anybody hears of it. */
  async state(given: TemplateBuildRow): Promise<BuildState> {
    const build = given.state === "waiting" ? undefined : this.#parts.images.builder.get(given.id as BuildId);
    const info = this.#infoOf(build);
    const row = await this.#settle(given, info);
    return {
      row,
      build: info === undefined ? undefined : build,
      tail: info?.failure?.tail ?? [],
      failureMessage: info?.failure?.message,
    };
  }

  /** Ends those that are under way. */
  async cancel(template: TemplateRow, by: string): Promise<void> {
    const { store, images } = this.#parts;
    const rows = (await store.templates.unendedBuilds()).filter(({ templateId }) => templateId === template.id);
    await Promise.all(rows.map(async ({ id }) => images.builder.get(id as BuildId)?.cancel(by)));
  }

  #requireFreeName(caller: Caller, name: string): void {
    if (this.#own.findConfigured(name) !== undefined) {
      throw new HoldfastError("access_denied", `name: '${name}' is a template of this server itself`, {
        hint: "Choose another name.",
        details: { field: "name" },
      });
    }
    const { store } = this.#parts.images;
    const isSnapshot = this.#own
      .names(caller)
      .some((named) => named.name.name === name && store.get(named.imageId)?.kind === "snapshot");
    if (!isSnapshot) return;
    throw new HoldfastError("invalid_argument", `name: '${name}' is the name of a snapshot`, {
      hint: "Choose another name, or delete the snapshot.",
      details: { field: "name" },
    });
  }

  async #startingPoint(caller: Caller, body: BuildStart): Promise<StartingPoint> {
    const { fromImage = null, fromTemplate = null } = body;
    if (fromImage !== null && fromTemplate !== null) {
      throw invalidArgument("fromTemplate", fromTemplate.slice(0, 100), "no other base beside fromImage");
    }
    if (fromTemplate !== null) return this.#fromTemplate(caller, fromTemplate);
    const name = fromImage ?? "";
    const isMapped = Object.hasOwn(this.#parts.config.imageAliases, name);
    const isBase = name === "" || (BASE_IMAGE.test(name) && !isMapped);
    return { base: isBase ? { kind: "base" } : { kind: "image", name }, user: null, workdir: null };
  }

  async #fromTemplate(caller: Caller, given: string): Promise<StartingPoint> {
    const found = await this.#own.require(caller, given);
    const { store } = this.#parts.images;
    if (found.kind === "configured") {
      const { name, imageName } = found.template;
      if (imageName !== undefined) return pointOf(store.require(imageName, null));
      if (name === "base") return { base: { kind: "base" }, user: null, workdir: null };
      throw new HoldfastError(
        "invalid_argument",
        `fromTemplate: '${name}' is made of files of the server itself, which nothing can be built on`,
        {
          hint: "Build on 'base', on an image, or on a template that was built.",
          details: { field: "fromTemplate" },
        },
      );
    }
    if (found.image.below !== null) {
      throw new HoldfastError(
        "invalid_argument",
        `fromTemplate: '${given.slice(0, 100)}' is a snapshot on files of the server itself, which nothing can be built on`,
        {
          hint: "Take the snapshot of a sandbox that was made from an image.",
          details: { field: "fromTemplate" },
        },
      );
    }
    return pointOf(found.image);
  }

  async #filesOf(caller: Caller, body: BuildStart): Promise<Map<string, Digest>> {
    const digests = new Map<string, Digest>();
    for (const [index, { filesHash }] of body.steps.entries()) {
      if (filesHash === undefined || filesHash === null || digests.has(filesHash)) continue;
      const digest = await this.fileOf(caller, filesHash);
      if (digest === undefined) {
        throw new HoldfastError("invalid_argument", `steps[${index}].filesHash: these files were not sent`, {
          hint: "GET /templates/{templateID}/files/{hash} says where to.",
          details: { field: `steps[${index}].filesHash` },
        });
      }
      digests.set(filesHash, digest);
    }
    return digests;
  }

  /** Files that the caller has sent by this hash, if they are still there. */
  async fileOf(caller: Caller, hash: string): Promise<Digest | undefined> {
    const row = await this.#parts.store.templates.findFile(keyIdOf(caller), hash);
    const digest = row?.digest as Digest | undefined;
    return digest !== undefined && this.#parts.images.store.blobs.has(digest) ? digest : undefined;
  }

  #infoOf(build: Build | undefined): BuildInfo | undefined {
    try {
      return build?.info();
    } catch (reason) {
      if (HoldfastError.from(reason).code !== "build_not_found") throw reason;
      return undefined;
    }
  }

  async #settleById(id: string): Promise<void> {
    try {
      const row = await this.#parts.store.templates.findBuild(id);
      if (row !== undefined) await this.#settle(row);
    } catch (error) {
      // It is found out when somebody asks, or at the next start.
      this.#parts.log.warn({ build: id, error: HoldfastError.from(error).message }, "the end of a build is not stored");
    }
  }

  async #settle(row: TemplateBuildRow, known?: BuildInfo): Promise<TemplateBuildRow> {
    if (row.state !== "building" || this.#starting.has(row.id)) return row;
    const { store, images } = this.#parts;
    const info = known ?? this.#infoOf(images.builder.get(row.id as BuildId));
    if (info?.state === "waiting" || info?.state === "building") return row;
    const failure = failureOf(row, info);
    await store.templates.endBuild(row.id, {
      endedAt: new Date(info?.endedAt ?? Date.now()),
      imageId: failure === null ? (info?.imageId ?? null) : null,
      failure,
    });
    return (await store.templates.findBuild(row.id)) ?? row;
  }
}

function pointOf(image: ImageRecord): StartingPoint {
  const { user, workdir } = image.config;
  const base =
    image.kind === "snapshot"
      ? ({ kind: "snapshot", id: image.id } as const)
      : ({ kind: "image", name: image.id } as const);
  // As if it had been asked for by its name: steps on it begin as root unless a step says otherwise, and E2B's do not.
  return isBaseImage(image) ? { base, user: null, workdir: null } : { base, user, workdir };
}

function failureOf(row: TemplateBuildRow, info: BuildInfo | undefined): TemplateFailure | null {
  if (info === undefined) return { step: "base", message: "the files of this build are gone" };
  if (info.state === "ready") return null;
  if (info.failure === null) return { step: "base", message: "the build was canceled" };
  return { step: shownStep(info.failure.step, row.leadingSteps), message: messageOf(info.failure, row.leadingSteps) };
}

const NO_SUCH_USER = /^step \d+ \(RUN (.*)\) failed: the image has no user "(.*)"$/s;

function messageOf(failure: BuildFailure, leadingSteps: number): string {
  const [, command, user] = NO_SUCH_USER.exec(failure.message) ?? [];
  // Clients know this text.
  if (user !== undefined) {
    return `failed to run command '${command}': command failed: unauthenticated: invalid username: '${user}'`;
  }
  const message = shownMessage(failure.message, failure.step, leadingSteps);
  if (failure.hint === null) return message;
  return `${/[.!?]$/.test(message) ? message : `${message}.`} ${failure.hint}`;
}
