/**
 * Which layers sandboxes stand on. A sandbox that is being made says so in a file of its directory, before it looks whether
 * they are there; from then on its record does.
 */
import { readFileSync, statSync } from "node:fs";
import type { SandboxId } from "@holdfast/protocol";
import type { SandboxSpec } from "../engine.js";
import type { LayerId } from "../layers.js";
import { RECORD_FILE, type SandboxRecords } from "./records.js";

const CLAIM_FILE = "layers";

/** What it stands on for as long as it is there. */
export function layersBelow(spec: Pick<SandboxSpec, "image">): readonly LayerId[] {
  return spec.image.kind === "layers" ? spec.image.layers : [];
}

/** The one that its disk is copied from must stay only until that is done. */
export function layersToMakeOf(spec: Pick<SandboxSpec, "image" | "disk">): readonly LayerId[] {
  return [...layersBelow(spec), ...(spec.disk === undefined ? [] : [spec.disk.from])];
}

/** To be in a sandbox's directory from the moment there is one. */
export function claimFiles(spec: Pick<SandboxSpec, "image" | "disk">): Readonly<Record<string, string>> {
  const layers = layersToMakeOf(spec);
  return layers.length === 0 ? {} : { [CLAIM_FILE]: JSON.stringify(layers) };
}

interface Known {
  readonly inode: number;
  readonly modifiedMs: number;
  readonly layers: ReadonlySet<LayerId>;
}

/** Whoever removes many layers asks for each; records are read again only when they have changed. */
export class LayerClaims {
  readonly #records: SandboxRecords;
  readonly #known = new Map<SandboxId, Known>();

  constructor(records: SandboxRecords) {
    this.#records = records;
  }

  usersOf(layer: LayerId): SandboxId[] {
    const ids = this.#records.list();
    if (this.#known.size > 2 * ids.length) this.#known.clear();
    return ids.filter((id) => this.#layersOf(id).has(layer));
  }

  #layersOf(id: SandboxId): ReadonlySet<LayerId> {
    const info = statSync(this.#records.pathOf(id, RECORD_FILE), { throwIfNoEntry: false });
    const known = this.#known.get(id);
    if (info === undefined) return new Set(this.#claimed(id));
    if (known !== undefined && known.inode === info.ino && known.modifiedMs === info.mtimeMs) return known.layers;
    const record = this.#records.read(id);
    // One that cannot be read counts for what was claimed when it was made.
    const layers = new Set(record === undefined ? this.#claimed(id) : layersBelow(record.spec));
    this.#known.set(id, { inode: info.ino, modifiedMs: info.mtimeMs, layers });
    return layers;
  }

  #claimed(id: SandboxId): LayerId[] {
    try {
      return JSON.parse(readFileSync(this.#records.pathOf(id, CLAIM_FILE), "utf8")) as LayerId[];
    } catch {
      // It stands on none, or is gone.
      return [];
    }
  }
}
