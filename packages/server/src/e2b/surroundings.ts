/** What the groups of E2B's routes share. */
import { HoldfastError } from "@holdfast/protocol";
import type { ServerParts } from "../parts.js";
import { Templates } from "../sandboxes/templates.js";
import type { Caller } from "../sandboxes/types.js";
import type { SandboxRow } from "../store/store.js";
import { OwnTemplates } from "./own-templates.js";
import { type Access, listedSandboxShape, type Origin, sandboxDetailShape, sandboxShape } from "./shapes.js";
import { TemplateBuilds } from "./template-builds.js";
import { DEFAULT_TAG } from "./template-names.js";

export interface E2bOptions {
  /** The domain that clients reach sandboxes below, with a port if it needs one; null if there is none. */
  readonly publicDomain?: (() => string | null) | undefined;
}

/** Ports that a client does not have to name. */
const UNNAMED_PORTS: ReadonlySet<number> = new Set([0, 80, 443]);

export class Surroundings {
  readonly parts: ServerParts;
  /** Of the configuration. */
  readonly templates: Templates;
  readonly own: OwnTemplates;
  readonly builds: TemplateBuilds;
  readonly #publicDomain: () => string | null;

  constructor(parts: ServerParts, options: E2bOptions) {
    this.parts = parts;
    this.templates = new Templates(parts.config);
    this.own = new OwnTemplates(parts, this.templates);
    this.builds = new TemplateBuilds(parts, this.own);
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

  /** The answer to a create, a connect and a resume. */
  async shown(row: SandboxRow): Promise<ReturnType<typeof sandboxShape>> {
    return sandboxShape(row, await this.#originOf(row), this.access);
  }

  async shownInDetail(row: SandboxRow): Promise<ReturnType<typeof sandboxDetailShape>> {
    return sandboxDetailShape(row, await this.#originOf(row), this.access);
  }

  async listed(rows: readonly SandboxRow[]): Promise<ReturnType<typeof listedSandboxShape>[]> {
    const origins = new Map<string, Origin>();
    const listed: ReturnType<typeof listedSandboxShape>[] = [];
    for (const row of rows) {
      const key = `${row.keyId} ${row.template}`;
      const origin = origins.get(key) ?? (await this.#originOf(row));
      origins.set(key, origin);
      listed.push(listedSandboxShape(row, origin));
    }
    return listed;
  }

  /** The caller's sandbox, unless it has ended: then how it did. */
  async alive(caller: Caller, id: string): Promise<SandboxRow> {
    const row = await this.parts.sandboxes.find(caller, id);
    if (row.status === "ended") throw endedError(row);
    return row;
  }

  /** What it was made from, as clients of E2B call it. */
  async #originOf({ keyId, template }: SandboxRow): Promise<Origin> {
    const colon = template.indexOf(":");
    // No template of the configuration has one in its name.
    if (colon === -1) return { templateID: template, alias: template };
    const name = template.slice(0, colon);
    const row = await this.parts.store.templates.findByName(keyId, name);
    const alias = template.slice(colon + 1) === DEFAULT_TAG ? name : template;
    return { templateID: row?.id ?? template, alias };
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
