/**
 * Layers: directories of files that images are stacked from, kept in the pool beside the sandboxes' disks. Files in them have
 * plain ids, deletions are overlayfs's own (a character device 0:0, `trusted.overlay.opaque`).
 */
import { createRandomId, invalidArgument, type SandboxId } from "@holdfast/protocol";

/** Opaque, made by `createLayerId`; names a directory. */
export type LayerId = string & { readonly __brand: "LayerId" };

const LAYER_ID = /^l[a-z0-9]{20}$/;

export function createLayerId(): LayerId {
  return createRandomId("l") as LayerId;
}

export function parseLayerId(text: unknown, field = "layer id"): LayerId {
  if (typeof text !== "string" || !LAYER_ID.test(text)) {
    throw invalidArgument(field, text, "`l` and 20 lower-case letters and digits");
  }
  return text as LayerId;
}

export interface SnapshotReport {
  readonly id: LayerId;
  /** `clone`: shares its blocks with the original, whatever its size. `copy`: the pool cannot do that. */
  readonly method: "clone" | "copy";
  readonly sizeBytes: number;
  /** How long the sandbox stood still. */
  readonly frozenMs: number;
  /** Of that, until what it had written was on the disk. */
  readonly syncMs: number;
}

/** A layer that is being filled. Nobody sees it under its id until it is whole; what a killed process left is swept. */
export interface LayerDraft {
  readonly id: LayerId;
  /** The files go here; as root, by plain paths, nobody else writes. */
  readonly directory: string;
  /** Synced, then visible. */
  commit(): Promise<void>;
  discard(): Promise<void>;
}

export interface Layers {
  draft(id: LayerId): Promise<LayerDraft>;
  /** What a stopped sandbox has written becomes a layer, whatever its size; the sandbox is gone. */
  fromStopped(sandbox: SandboxId, id: LayerId): Promise<void>;
  /**
   * A snapshot's files are numbered as those of a disk, which other layers and disks have too. To lie below others it needs
   * numbers of its own: this makes a copy of it under `id`, with its blocks shared. Resolves to the snapshot itself where that is
   * as good.
   */
  toStandOn(snapshot: LayerId, id: LayerId): Promise<LayerId>;
  has(id: LayerId): boolean;
  list(): LayerId[];
  /** Where its files are. */
  path(id: LayerId): string;
  sizeBytes(id: LayerId): Promise<number>;
  /** Sandboxes of whatever process, stopped ones too, that stand on it. */
  users(id: LayerId): SandboxId[];
  /** Refuses with `image_in_use` while a sandbox stands on it. Gone already is fine. */
  remove(id: LayerId): Promise<void>;
}
