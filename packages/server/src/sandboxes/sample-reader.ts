/** The looks at sandboxes that were kept, and those of now where there are none yet. */
import type { Sandbox } from "@holdfast/engine";
import type { SandboxId } from "@holdfast/protocol";
import type { SampleRow, Store } from "../store/store.js";
import type { Sampler } from "./sampler.js";

const MAX_SAMPLES = 10_000;

export class SampleReader {
  readonly #store: Store;
  readonly #sampler: Sampler;
  readonly #sandboxOf: (id: SandboxId) => Sandbox | undefined;

  constructor(parts: {
    readonly store: Store;
    readonly sampler: Sampler;
    readonly sandboxOf: (id: SandboxId) => Sandbox | undefined;
  }) {
    this.#store = parts.store;
    this.#sampler = parts.sampler;
    this.#sandboxOf = parts.sandboxOf;
  }

  async list(
    id: SandboxId,
    range: { readonly from?: Date | undefined; readonly to?: Date | undefined },
  ): Promise<SampleRow[]> {
    const rows = await this.#store.samples.list(id, { ...range, limit: MAX_SAMPLES });
    const asksForNow = range.to === undefined || range.to.getTime() >= Date.now() - 1000;
    // A young sandbox has not been looked at yet, and an empty answer helps nobody.
    return rows.length === 0 && asksForNow ? this.#now(id) : rows;
  }

  async latest(ids: readonly SandboxId[]): Promise<SampleRow[]> {
    const samples = await this.#store.samples.latest(ids);
    const sampled = new Set(samples.map((sample) => sample.sandboxId));
    for (const id of ids) if (!sampled.has(id)) samples.push(...(await this.#now(id)));
    return samples;
  }

  async #now(id: SandboxId): Promise<SampleRow[]> {
    const sandbox = this.#sandboxOf(id);
    return sandbox?.state === "running" ? [await this.#sampler.look(sandbox)] : [];
  }
}
