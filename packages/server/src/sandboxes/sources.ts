/** What a sandbox can be made from: a template of the configuration, or an image of this host. */
import { isAbsolute } from "node:path";
import type { SandboxSpec } from "@holdfast/engine";
import { type ImageId, type ImageRecord, type Images, planSandbox, requireForOperator } from "@holdfast/images";
import {
  ceilingBytesOf,
  HoldfastError,
  limitsInstead,
  type MemoryReport,
  resolveSandboxLimits,
  type SandboxLimits,
} from "@holdfast/protocol";
import type { StartCommand } from "@holdfast/recipe";
import type { ServerConfig } from "../config/schema.js";
import type { ImageStart } from "./start-command.js";
import { Templates } from "./templates.js";
import type { Caller, CreateRequest } from "./types.js";

/** Who runs commands where neither an image nor the request says. */
const DEFAULT_USER = "user";

export interface Source {
  /** As it was asked for. */
  readonly name: string;
  readonly imageId: string | null;
  readonly spec: Pick<SandboxSpec, "image" | "disk" | "env" | "defaultUser" | "workdir">;
  readonly limits: SandboxLimits;
  readonly memory: MemoryReport;
  readonly start: StartCommand | null;
}

export const ownerOf = (caller: Caller): string | null => (caller.kind === "operator" ? null : caller.keyId);

/** By name the caller's own comes first, then the operator's. The operator sees everybody's, by id. */
export function requireImage({ store }: Pick<Images, "store">, caller: Caller, reference: string): ImageRecord {
  return caller.kind === "operator" ? requireForOperator(store, reference) : store.require(reference, caller.keyId);
}

export class Sources {
  readonly templates: Templates;
  readonly #images: Images;
  readonly #aliases: Readonly<Record<string, string>>;

  constructor(config: ServerConfig, images: Images) {
    this.#aliases = config.imageAliases;
    this.templates = new Templates(config);
    this.#images = images;
  }

  /** A template of the configuration comes before an image of the same name: the operator has said so. */
  resolve(caller: Caller, request: Pick<CreateRequest, "template" | "image" | "limits" | "strict" | "env">): Source {
    if (request.image !== undefined) return this.#fromNamed(caller, request.image, request);
    const template = this.templates.find(request.template);
    if (template?.imageName !== undefined) {
      // Everybody may use it: only what the operator has named, or an id, is meant.
      const name = this.#meaningOf(template.imageName);
      const owner = this.#images.store.get(name as ImageId)?.owner ?? null;
      const image = this.#images.store.require(name, owner);
      return fromImage(image, template.imageName, request, template.limits);
    }
    if (template !== undefined) {
      const limits = resolveSandboxLimits(limitsInstead(template.limits, request.limits));
      return {
        name: template.name,
        imageId: null,
        spec: {
          image: template.image,
          disk: undefined,
          env: request.env,
          defaultUser: DEFAULT_USER,
          workdir: undefined,
        },
        limits,
        memory: {
          requestedBytes: request.limits.memoryMaxBytes ?? request.limits.memoryBytes ?? null,
          effectiveBytes: ceilingBytesOf(limits),
          floorBytes: null,
          reason: null,
        },
        start: null,
      };
    }
    if (this.#images.store.find(request.template, ownerOf(caller)) === undefined) {
      throw new HoldfastError("image_not_found", `template '${request.template.slice(0, 100)}' not found`, {
        hint: this.#whatThereIs(caller),
        details: { field: "template" },
      });
    }
    return this.#fromNamed(caller, request.template, request);
  }

  #fromNamed(caller: Caller, reference: string, request: ImageRequest): Source {
    const image = requireImage(this.#images, caller, this.#meaningOf(reference));
    return fromImage(image, reference, request, this.templates.defaults());
  }

  /** What the operator lets a name stand for, for builds and for sandboxes alike. A path was imported under the name itself. */
  #meaningOf(reference: string): string {
    const seen = new Set<string>();
    let name = reference;
    while (Object.hasOwn(this.#aliases, name) && !seen.has(name)) {
      seen.add(name);
      const meaning = this.#aliases[name] ?? name;
      if (isAbsolute(meaning)) break;
      name = meaning;
    }
    return name;
  }

  /** What an image is there to run; null if it is gone, or there is nothing. */
  startOf(imageId: string | null): ImageStart | null {
    const image = imageId === null ? undefined : this.#images.store.get(imageId as ImageId);
    const start = image?.config.start ?? null;
    return start === null ? null : { start, listens: image?.floor?.listens };
  }

  #whatThereIs(caller: Caller): string {
    const images = this.#images.store.names({ owner: ownerOf(caller) }).map(({ name }) => `${name.name}:${name.tag}`);
    const names = [...this.templates.names(), ...images];
    const more = names.length > 20 ? `, and ${names.length - 20} more` : "";
    return `This server has: ${names.slice(0, 20).join(", ")}${more}. Build or import others, or add them under \`templates\` in its configuration.`;
  }
}

type ImageRequest = Pick<CreateRequest, "limits" | "strict" | "env">;

function fromImage(image: ImageRecord, name: string, request: ImageRequest, defaults: Partial<SandboxLimits>): Source {
  const { spec, memory } = planSandbox(image, {
    limits: request.limits,
    defaults,
    env: request.env,
    strict: request.strict,
    fallbackUser: "root",
  });
  const { limits, ...rest } = spec;
  return { name, imageId: image.id, spec: rest, limits, memory, start: image.config.start };
}
