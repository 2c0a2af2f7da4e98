/** What is needed and by whom. Decisions only; whoever acts on them looks again after having marked what is to go. */
import type { LayerId } from "@holdfast/engine";
import type { SandboxId } from "@holdfast/protocol";
import type { ImageId, ImageRecord } from "../types.js";
import { layersOf } from "./records.js";

export type HoldingImage = Pick<ImageRecord, "id" | "layers" | "disk" | "parent" | "createdAt">;

/** Sandboxes that stand on a layer. */
export type LayerUsers = (layer: LayerId) => readonly SandboxId[];

export interface ImageUses {
  readonly sandboxes: readonly SandboxId[];
  readonly images: readonly ImageId[];
  readonly builds: readonly string[];
}

export class Holdings {
  readonly #images = new Map<ImageId, HoldingImage>();
  /** Layers that cached steps lead to. */
  readonly steps: ReadonlySet<LayerId>;
  /** Layers that builds and other work in progress need, with who it is. */
  readonly claims: ReadonlyMap<LayerId, readonly string[]>;
  /** Layers that records name which cannot be understood. */
  readonly unclear: ReadonlySet<LayerId>;
  readonly #imagesOn = new Map<LayerId, number>();
  readonly #children = new Map<ImageId, Set<ImageId>>();

  constructor(parts: {
    readonly images: readonly HoldingImage[];
    readonly steps: ReadonlySet<LayerId>;
    readonly claims: ReadonlyMap<LayerId, readonly string[]>;
    readonly unclear: ReadonlySet<LayerId>;
  }) {
    this.steps = parts.steps;
    this.claims = parts.claims;
    this.unclear = parts.unclear;
    for (const image of parts.images) this.#add(image);
  }

  get images(): HoldingImage[] {
    return [...this.#images.values()];
  }

  #add(image: HoldingImage): void {
    this.#images.set(image.id, image);
    for (const layer of new Set(layersOf(image))) this.#imagesOn.set(layer, (this.#imagesOn.get(layer) ?? 0) + 1);
    if (image.parent === null || image.parent === image.id) return;
    const siblings = this.#children.get(image.parent) ?? new Set();
    this.#children.set(image.parent, siblings.add(image.id));
  }

  /** As if it were gone. */
  forget(image: HoldingImage): void {
    if (!this.#images.delete(image.id)) return;
    for (const layer of new Set(layersOf(image))) this.#imagesOn.set(layer, (this.#imagesOn.get(layer) ?? 1) - 1);
    if (image.parent !== null) this.#children.get(image.parent)?.delete(image.id);
  }

  /** Whether a record or a claim needs the layer. Sandboxes are not asked. */
  holds(layer: LayerId): boolean {
    return (
      (this.#imagesOn.get(layer) ?? 0) > 0 || this.steps.has(layer) || this.claims.has(layer) || this.unclear.has(layer)
    );
  }

  /** Its layers that no other image has. */
  #layersOfItsOwn(image: HoldingImage): LayerId[] {
    return [...new Set(layersOf(image))].filter(
      (layer) => (this.#imagesOn.get(layer) ?? 0) <= 1 && !this.unclear.has(layer),
    );
  }

  /** Its layers that nobody would need without it. */
  layersFreedWith(image: HoldingImage): LayerId[] {
    return this.#layersOfItsOwn(image).filter((layer) => !this.steps.has(layer) && !this.claims.has(layer));
  }

  /**
   * Who keeps an image from being removed: images made on it, and sandboxes and builds on a layer that no other image has.
   * A sandbox on a layer that two images share needs neither of them more than the other. What was made of a snapshot has a
   * copy of its files, or their layer in a record of its own.
   */
  usesOf(image: HoldingImage, users: LayerUsers): ImageUses {
    const own = this.#layersOfItsOwn(image);
    return {
      sandboxes: [...new Set(own.flatMap((layer) => users(layer)))],
      images: image.disk === null ? [...(this.#children.get(image.id) ?? [])] : [],
      builds: [...new Set(own.flatMap((layer) => this.claims.get(layer) ?? []))],
    };
  }

  /** Images that nothing calls by name and nothing uses, children before what they were made on. They are forgotten. */
  forgetUnnamed(options: {
    readonly isNamed: (id: ImageId) => boolean;
    readonly users: LayerUsers;
    readonly createdBeforeMs: number;
  }): HoldingImage[] {
    const gone: HoldingImage[] = [];
    const candidates = new Set(
      this.images.filter(
        ({ id, createdAt }) => !options.isNamed(id) && Date.parse(createdAt) <= options.createdBeforeMs,
      ),
    );
    // Nothing but the going of a child makes an image free to go that was not so before. The newest go first, and snapshots
    // before what they lie on: of two that share what a sandbox stands on, the same one stays every time.
    const queue = [...candidates].sort(
      (a, b) => Date.parse(a.createdAt) - Date.parse(b.createdAt) || Number(a.disk !== null) - Number(b.disk !== null),
    );
    for (let image = queue.pop(); image !== undefined; image = queue.pop()) {
      if (!candidates.has(image) || isUsed(this.usesOf(image, options.users))) continue;
      const parent = image.parent === null ? undefined : this.#images.get(image.parent);
      this.forget(image);
      candidates.delete(image);
      gone.push(image);
      if (parent !== undefined) queue.push(parent);
    }
    return gone;
  }
}

export function isUsed(uses: ImageUses): boolean {
  return uses.sandboxes.length + uses.images.length + uses.builds.length > 0;
}
