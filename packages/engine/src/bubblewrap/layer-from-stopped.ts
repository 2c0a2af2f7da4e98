/**
 * What a stopped sandbox has written becomes a layer. Killed at any moment, this leaves the stopped sandbox or the layer:
 * the record first says what its files are to become, then the disk is renamed, then the record goes.
 */
import type { SandboxId } from "@holdfast/protocol";
import type { LayerId } from "../layers.js";
import type { HostParts } from "./host-parts.js";
import { requireDisk, take } from "./stopped.js";

export async function makeLayerOfStopped(host: HostParts, sandbox: SandboxId, id: LayerId): Promise<void> {
  const { records, layers, us } = host;
  layers.requireFree(id);
  const record = await take(host, sandbox);
  try {
    requireDisk(host, record);
    // Until it is renamed it is a disk that can be booted: what is missing of it now is made at every boot.
    await layers.finish(id, record.disk.path);
    records.write({ ...record, becomes: id });
    await layers.place(id, record.disk.path);
    records.remove(sandbox);
  } catch (error) {
    records.disown(sandbox, us, { remains: true });
    throw error;
  }
}
