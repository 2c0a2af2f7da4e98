/** The engine's layers: what the store keeps, and the sandboxes that stand on it. */
import type { SandboxId } from "@holdfast/protocol";
import { type LayerDraft, type LayerId, type Layers, parseLayerId } from "../layers.js";
import type { HostParts } from "./host-parts.js";
import { makeLayerOfStopped } from "./layer-from-stopped.js";
import { endSpares, isSpare } from "./warm-token.js";

export class EngineLayers implements Layers {
  readonly #host: HostParts;
  readonly #drain: (layer: LayerId) => Promise<void>;

  /** `drain` ends what is only kept ready and stands on the layer. */
  constructor(host: HostParts, drain: (layer: LayerId) => Promise<void>) {
    this.#host = host;
    this.#drain = drain;
  }

  async draft(id: LayerId): Promise<LayerDraft> {
    return this.#host.layers.draft(parseLayerId(id));
  }

  async fromStopped(sandbox: SandboxId, id: LayerId): Promise<void> {
    parseLayerId(id);
    await this.#host.layers.track(() => makeLayerOfStopped(this.#host, sandbox, id));
  }

  async toStandOn(snapshot: LayerId, id: LayerId): Promise<LayerId> {
    return this.#host.layers.toStandOn(parseLayerId(snapshot), parseLayerId(id));
  }

  has(id: LayerId): boolean {
    return this.#host.layers.has(id);
  }

  list(): LayerId[] {
    return this.#host.layers.list();
  }

  path(id: LayerId): string {
    return this.#host.layers.path(id);
  }

  async sizeBytes(id: LayerId): Promise<number> {
    return this.#host.layers.sizeBytes(parseLayerId(id));
  }

  users(id: LayerId): SandboxId[] {
    const { layers, records } = this.#host;
    return layers.usersOf(parseLayerId(id)).filter((user) => !isSpare(records, user));
  }

  async remove(id: LayerId): Promise<void> {
    const { layers, records } = this.#host;
    parseLayerId(id);
    // Somebody's sandbox keeps it in any case, and then those that are ready are of use.
    if (layers.has(id) && this.users(id).length === 0) {
      await this.#drain(id);
      await endSpares(
        this.#host,
        layers.usersOf(id).filter((user) => isSpare(records, user)),
      );
    }
    await layers.remove(id);
  }
}
