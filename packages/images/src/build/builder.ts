/** Builds images: one work for each content, however many ask for it and in however many processes. */
import { HoldfastError, invalidArgument } from "@holdfast/protocol";
import type { BaseResolver, ImagesContext } from "../context.js";
import { isBuildId } from "../store/ids.js";
import type { Build, Builder, BuildId, BuildInfo, BuildRequest, Owner } from "../types.js";
import { Ask } from "./ask.js";
import { BuildFiles } from "./build-files.js";
import { BuildOnDisk } from "./build-on-disk.js";
import { checkRequest } from "./build-order.js";
import { readInfo } from "./build-reader.js";
import { recoverBuilds } from "./bury.js";
import { Slots } from "./slots.js";
import type { WorkParts } from "./work.js";

export interface CreateBuilderOptions {
  /** How many builds run at once in this process; others wait. Default 2. */
  readonly parallel?: number | undefined;
  /** Addresses that steps may or may not reach; see the engine's NetworkSpec. */
  readonly network?: { readonly deny: readonly string[]; readonly allow: readonly string[] } | undefined;
}

const DEFAULT_PARALLEL = 2;
/** Builds that were done at once are not written down; the last ones are remembered for whoever asks for them by id. */
const REMEMBERED = 256;

class ImageBuilder implements Builder {
  readonly #parts: WorkParts;
  readonly #resolver: BaseResolver;
  readonly #closing = new AbortController();
  readonly #asks = new Map<BuildId, Ask>();
  readonly #active = new Set<Ask>();

  constructor(context: ImagesContext, resolver: BaseResolver, options: CreateBuilderOptions) {
    const parallel = options.parallel ?? DEFAULT_PARALLEL;
    if (!Number.isSafeInteger(parallel) || parallel < 1) throw invalidArgument("parallel", parallel, "1 or more");
    this.#resolver = resolver;
    this.#parts = {
      context,
      files: new BuildFiles(context.store.directory),
      slots: new Slots(parallel),
      egress: options.network ?? { deny: [], allow: [] },
      closing: this.#closing.signal,
      works: new Map(),
    };
  }

  async start(request: BuildRequest): Promise<Build> {
    this.#requireOpen();
    const order = await checkRequest(this.#parts.context, request);
    this.#requireOpen();
    if (order.id !== undefined && this.#asks.has(order.id))
      throw invalidArgument("id", order.id, "the id of no other build");
    const ask = new Ask(this.#parts, this.#resolver, { order, authFor: request.authFor });
    this.#remember(ask);
    return ask;
  }

  get(id: BuildId): Build | undefined {
    if (!isBuildId(id)) return undefined;
    const ask = this.#asks.get(id);
    if (ask !== undefined) return ask;
    const { files, context } = this.#parts;
    return files.read(id) === undefined ? undefined : new BuildOnDisk(files, context.store, id);
  }

  /** Newest first. */
  list(options: { readonly owner?: Owner } = {}): BuildInfo[] {
    const { files } = this.#parts;
    const ids = new Set([...files.ids(), ...this.#asks.keys()]);
    return [...ids]
      .flatMap((id) => this.#asks.get(id)?.info() ?? readInfo(files, id) ?? [])
      .filter(({ owner }) => options.owner === undefined || owner === options.owner)
      .sort((one, other) => Date.parse(other.createdAt) - Date.parse(one.createdAt));
  }

  recover(): Promise<void> {
    return recoverBuilds(this.#parts.context, this.#parts.files);
  }

  async close(): Promise<void> {
    this.#closing.abort(new HoldfastError("canceled", "canceled: this process is about to end"));
    await Promise.allSettled([...this.#active].map(({ image }) => image));
    await Promise.allSettled(this.#parts.works.values());
  }

  #requireOpen(): void {
    if (this.#closing.signal.aborted) throw new HoldfastError("server_stopping", "no more builds are taken on");
  }

  #remember(ask: Ask): void {
    this.#asks.set(ask.id, ask);
    this.#active.add(ask);
    const settled = (): void => {
      this.#active.delete(ask);
      this.#parts.files.wakes.forget(ask.id);
      // Those that are written down are found by their files.
      if (this.#parts.files.exists(ask.id)) this.#asks.delete(ask.id);
      for (const [id, old] of this.#asks) {
        if (this.#asks.size <= REMEMBERED) break;
        if (!this.#active.has(old)) this.#asks.delete(id);
      }
    };
    ask.image.then(settled, settled);
  }
}

export function createBuilder(
  context: ImagesContext,
  bases: BaseResolver,
  options: CreateBuilderOptions = {},
): Builder {
  return new ImageBuilder(context, bases, options);
}
