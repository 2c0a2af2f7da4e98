import { rmSync } from "node:fs";
import { join } from "node:path";
import type { LayerId } from "@holdfast/engine";
import type { ImagesContext } from "../context.js";
import { markGoing, readClaims, unmarkGoing } from "../store/claims.js";

/** Takes back a layer that came to nothing, unless somebody else has found a use for it meanwhile. */
export async function removeNewLayer(context: ImagesContext, id: LayerId, holder: string): Promise<void> {
  const { engine, store } = context;
  markGoing(store.directory, [id]);
  try {
    const claimed = readClaims(store.directory).living.get(id) ?? [];
    if (claimed.some((other) => other !== holder)) return;
    if (store.list().some((record) => record.disk === id || record.layers.includes(id))) return;
    await engine.layers.remove(id);
    rmSync(join(store.directory, "layers", `${id}.json`), { force: true });
  } finally {
    unmarkGoing(store.directory, id);
  }
}
