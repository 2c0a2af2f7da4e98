/** The engine's layers: what the store keeps, and the sandboxes that stand on it. */
import type { SandboxId } from "@holdfast/protocol";
import { type LayerDraft, type LayerId, type Layers, parseLayerId } from "../layers.js";
import type { HostParts } from "./host-parts.js";
import { makeLayerOfStopped } from "./layer-from-stopped.js";

export class EngineLayers implements Layers {
  readonly #host: HostParts;

  constructor(host: HostParts) {
    this.#host = host;
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
    return this.#host.layers.usersOf(parseLayerId(id));
  }

  async remove(id: LayerId): Promise<void> {
    await this.#host.layers.remove(parseLayerId(id));
  }
}
