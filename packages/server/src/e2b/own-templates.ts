/**
 * What a caller can make sandboxes from: the server's own templates, those that the caller has built, snapshots and other
 * images. A built template is an image by the name of `<name>:<tag>`; the store knows which template and build it came from.
 */
import type { ImageName, ImageRecord, NamedImage } from "@holdfast/images";
import { HoldfastError, type SandboxLimits } from "@holdfast/protocol";
import type { ServerParts } from "../parts.js";
import { keyIdOf } from "../sandboxes/key-id.js";
import { ownerOf } from "../sandboxes/sources.js";
import type { Template, Templates } from "../sandboxes/templates.js";
import type { Caller } from "../sandboxes/types.js";
import type { TemplateBuildRow, TemplateRow } from "../store/store.js";
import { DEFAULT_TAG, isTemplateId, nameWithTag, readTemplateName } from "./template-names.js";

const MIB = 1024 * 1024;
const MAX_NAMES_SHOWN = 20;
const IMAGE_ID_WITH_TAG = /^(img[a-z0-9]{20})(?::default)?$/;

export type Found =
  | { readonly kind: "configured"; readonly template: Template }
  | {
      readonly kind: "built";
      readonly template: TemplateRow;
      readonly tag: string;
      readonly image: ImageRecord;
      /** The build that the tag stands for; undefined if the image was named by other means. */
      readonly build: TemplateBuildRow | undefined;
    }
  | { readonly kind: "image"; readonly reference: string; readonly image: ImageRecord };

export class OwnTemplates {
  readonly #parts: ServerParts;
  readonly #configured: Templates;

  constructor(parts: ServerParts, configured: Templates) {
    this.#parts = parts;
    this.#configured = configured;
  }

  /** By its name, or by its name with the tag that everything has. */
  findConfigured(given: string): Template | undefined {
    return this.#configured.find(given) ?? this.#configured.find(given.replace(/:default$/, ""));
  }

  /** One that the caller has asked for, by id or name, whatever has become of it. */
  async findRow(
    caller: Caller,
    given: string,
  ): Promise<{ readonly template: TemplateRow; readonly tag: string | undefined } | undefined> {
    const { templates } = this.#parts.store;
    const reference = readTemplateName(given);
    if (reference === undefined) return undefined;
    const { name, tag } = reference;
    const byId = isTemplateId(name) ? await templates.find(name) : undefined;
    const own = byId?.keyId === keyIdOf(caller) ? byId : undefined;
    const template = own ?? (await templates.findByName(keyIdOf(caller), name));
    return template === undefined ? undefined : { template, tag };
  }

  async requireRow(caller: Caller, given: string): Promise<TemplateRow> {
    const found = await this.findRow(caller, given);
    if (found !== undefined && found.tag === undefined) return found.template;
    throw await this.notFound(caller, given);
  }

  async find(caller: Caller, given: string): Promise<Found | undefined> {
    const template = this.findConfigured(given);
    if (template !== undefined) return { kind: "configured", template };
    const row = await this.findRow(caller, given);
    if (row !== undefined) return this.#findBuilt(caller, row.template, row.tag ?? DEFAULT_TAG);
    return this.#findImage(caller, given);
  }

  async require(caller: Caller, given: string): Promise<Found> {
    const found = await this.find(caller, given);
    if (found === undefined) throw await this.notFound(caller, given);
    return found;
  }

  /** What sandboxes are made from, by the name that they keep it under. */
  referenceOf(found: Found): string {
    switch (found.kind) {
      case "configured":
        return found.template.name;
      case "built":
        return nameWithTag(found.template.name, found.tag);
      case "image":
        return found.reference;
    }
  }

  /** What sandboxes of it get, where its build has said so. */
  limitsOf(found: Found): Partial<Pick<SandboxLimits, "memoryBytes" | "cpuMillis" | "diskBytes">> {
    if (found.kind !== "built" || found.build === undefined) return {};
    return limitsOfBuild(found.build, this.#parts.config.sandboxDiskMb);
  }

  /** The caller's own names of images, not those that everybody has. */
  names(caller: Caller): NamedImage[] {
    const owner = ownerOf(caller);
    return this.#parts.images.store.names({ owner }).filter(({ name }) => name.owner === owner);
  }

  /** The tags of a template, with what they stand for. */
  tagged(caller: Caller, template: TemplateRow): NamedImage[] {
    return this.names(caller).filter(
      ({ name, imageId }) => name.name === template.name && this.#parts.images.store.get(imageId) !== undefined,
    );
  }

  imageName(caller: Caller, name: string, tag: string): ImageName {
    return { owner: ownerOf(caller), name, tag };
  }

  /** The build that a tag of a template stands for. */
  async buildOf(template: TemplateRow, tag: string, imageId: string): Promise<TemplateBuildRow | undefined> {
    const { templates } = this.#parts.store;
    const row = (await templates.tags(template.id)).find((candidate) => candidate.tag === tag);
    const build = row === undefined ? undefined : await templates.findBuild(row.buildId);
    return build?.imageId === imageId ? build : undefined;
  }

  async notFound(caller: Caller, given: string): Promise<HoldfastError> {
    const own = await this.#parts.store.templates.list(keyIdOf(caller));
    const names = [...this.#configured.names(), ...own.map(({ name }) => name)];
    const more = names.length > MAX_NAMES_SHOWN ? `, and ${names.length - MAX_NAMES_SHOWN} more` : "";
    const row = await this.findRow(caller, given);
    const tags = row === undefined ? [] : this.tagged(caller, row.template).map(({ name }) => name.tag);
    const hint =
      row === undefined
        ? `This server has: ${names.slice(0, MAX_NAMES_SHOWN).join(", ")}${more}.`
        : tags.length === 0
          ? "No build of it is ready yet."
          : `It has the tags ${tags.slice(0, MAX_NAMES_SHOWN).join(", ")}.`;
    return new HoldfastError("image_not_found", `template '${given.slice(0, 100)}' not found`, {
      hint,
      details: { template: given },
    });
  }

  async #findBuilt(caller: Caller, template: TemplateRow, tag: string): Promise<Found | undefined> {
    const named = this.tagged(caller, template).find(({ name }) => name.tag === tag);
    const image = named === undefined ? undefined : this.#parts.images.store.get(named.imageId);
    if (image === undefined) return undefined;
    return { kind: "built", template, tag, image, build: await this.buildOf(template, tag, image.id) };
  }

  #findImage(caller: Caller, given: string): Found | undefined {
    const { store } = this.#parts.images;
    const id = IMAGE_ID_WITH_TAG.exec(given)?.[1];
    // E2B's tag comes first here; elsewhere docker's does.
    const candidates = id === undefined ? [nameWithTag(given, DEFAULT_TAG), given] : [id];
    for (const reference of candidates) {
      try {
        const image = store.find(reference, ownerOf(caller));
        if (image !== undefined) return { kind: "image", reference, image };
      } catch (reason) {
        // What cannot be a name is nobody's.
        if (HoldfastError.from(reason).code !== "invalid_argument") throw reason;
      }
    }
    return undefined;
  }
}

export function limitsOfBuild(
  build: Pick<TemplateBuildRow, "cpuCount" | "memoryMb" | "diskMb">,
  defaultDiskMb: number,
): Partial<Pick<SandboxLimits, "memoryBytes" | "cpuMillis" | "diskBytes">> {
  return {
    ...(build.memoryMb === null ? {} : { memoryBytes: build.memoryMb * MIB }),
    ...(build.cpuCount === null ? {} : { cpuMillis: build.cpuCount * 1000 }),
    // What is to be free at least; sandboxes that get more anyway keep it.
    ...(build.diskMb === null || build.diskMb <= defaultDiskMb ? {} : { diskBytes: build.diskMb * MIB }),
  };
}
