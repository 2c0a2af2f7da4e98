/** What the groups of E2B's routes share. */
import { HoldfastError } from "@holdfast/protocol";
import type { ServerParts } from "../parts.js";
import { type Template, Templates } from "../sandboxes/templates.js";
import type { Caller } from "../sandboxes/types.js";
import type { SandboxRow } from "../store/store.js";
import type { Access } from "./shapes.js";

export interface E2bOptions {
  /** The domain that clients reach sandboxes below, with a port if it needs one; null if there is none. */
  readonly publicDomain?: (() => string | null) | undefined;
}

/** Ports that a client does not have to name. */
const UNNAMED_PORTS: ReadonlySet<number> = new Set([0, 80, 443]);

const MAX_NAMES_SHOWN = 20;

export class Surroundings {
  readonly parts: ServerParts;
  readonly templates: Templates;
  readonly #publicDomain: () => string | null;

  constructor(parts: ServerParts, options: E2bOptions) {
    this.parts = parts;
    this.templates = new Templates(parts.config);
    this.#publicDomain = options.publicDomain ?? (() => this.#configuredDomain());
  }

  get access(): Access {
    const { sandboxes } = this.parts;
    return {
      domain: this.#publicDomain(),
      envdToken: (id) => sandboxes.envdToken(id),
      trafficToken: (id) => sandboxes.trafficToken(id),
    };
  }

  /** By its name, or by its name with the tag that everything has. */
  findTemplate(given: string): Template | undefined {
    return this.templates.find(given) ?? this.templates.find(given.replace(/:default$/, ""));
  }

  template(given: string): Template {
    const template = this.findTemplate(given);
    if (template !== undefined) return template;
    const names = this.templates.names();
    const more = names.length > MAX_NAMES_SHOWN ? `, and ${names.length - MAX_NAMES_SHOWN} more` : "";
    throw new HoldfastError("image_not_found", `template '${given.slice(0, 100)}' not found`, {
      hint: `This server has: ${names.slice(0, MAX_NAMES_SHOWN).join(", ")}${more}.`,
      details: { template: given },
    });
  }

  /** The caller's sandbox, unless it has ended: then how it did. */
  async alive(caller: Caller, id: string): Promise<SandboxRow> {
    const row = await this.parts.sandboxes.find(caller, id);
    if (row.status === "ended") throw endedError(row);
    return row;
  }

  #configuredDomain(): string | null {
    const { domain, port } = this.parts.config;
    if (domain === null) return null;
    return UNNAMED_PORTS.has(port) ? domain : `${domain}:${port}`;
  }
}

export function endedError(row: SandboxRow): HoldfastError {
  const when = row.endedAt === null ? "" : ` at ${row.endedAt.toISOString()}`;
  const how = row.ending === null ? "" : `: ${row.ending.message}`;
  return new HoldfastError("sandbox_ended", `It ended${when}${how}`, {
    details: {
      endedAt: row.endedAt?.toISOString() ?? null,
      cause: row.ending?.cause ?? null,
      ending: row.ending,
    },
  });
}

/** Who is said to have done it, in a sandbox's history. */
export function nameOf(caller: Caller): string {
  return caller.kind === "operator" ? "the operator" : `API key ${caller.keyId}`;
}
