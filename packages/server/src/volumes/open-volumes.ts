/** Volumes of this server: a record of each below its directory, and the files in the engine's pool. */
import { readdirSync } from "node:fs";
import type { Engine } from "@holdfast/engine";
import { createRandomId, HoldfastError, invalidArgument } from "@holdfast/protocol";
import type { CountedLog } from "../metrics/count-left.js";
import { keyIdOf } from "../sandboxes/key-id.js";
import { SandboxTokens } from "../sandboxes/tokens.js";
import type { Caller } from "../sandboxes/types.js";
import type { Store } from "../store/store.js";
import { VolumeKeeper } from "./volume-keeper.js";
import { VolumeRecords } from "./volume-records.js";
import type { OpenedVolumes, Volume } from "./volumes.js";

const NAME = /^[a-zA-Z0-9_-]{1,128}$/;
/** Each costs a directory and a record, whether or not there is anything in it. */
const MOST_PER_KEY = 1000;

export interface VolumesOptions {
  readonly engine: Engine;
  readonly store: Store;
  readonly log: CountedLog;
  /** Where the records are. */
  readonly directory: string;
  readonly limitBytes: number;
}

export async function openVolumes(options: VolumesOptions): Promise<OpenedVolumes> {
  const { engine, log, limitBytes } = options;
  const tokens = await SandboxTokens.open(options.store);
  const records = new VolumeRecords(options);
  const volumes = await recover(options, records);
  if (!engine.volumes.enforcesLimits) {
    log.warn({ volumeMb: limitBytes / 1024 ** 2 }, "a pool of kind dir cannot enforce volumeMb: volumes have no limit");
  }
  const keeper = new VolumeKeeper({ engine, log });
  const making = new Set<Volume>();

  const ownedBy = (caller: Caller): Volume[] =>
    [...volumes.values()].filter((volume) => caller.kind === "operator" || volume.keyId === caller.keyId);

  async function find(caller: Caller, idOrName: string): Promise<Volume> {
    const own = ownedBy(caller);
    const named = own.filter((volume) => volume.name === idOrName);
    const found =
      own.find((volume) => volume.id === idOrName) ??
      // The operator sees everybody's, and each key has names of its own.
      named.find((volume) => volume.keyId === keyIdOf(caller)) ??
      named[0];
    if (found !== undefined) return found;
    throw notFound(idOrName);
  }

  async function create(caller: Caller, name: string): Promise<Volume> {
    if (!NAME.test(name)) throw invalidArgument("name", name.slice(0, 100), "1 to 128 letters, digits, `-` and `_`");
    const keyId = keyIdOf(caller);
    const ofThisKey = [...volumes.values(), ...making].filter((volume) => volume.keyId === keyId);
    if (ofThisKey.some((volume) => volume.name === name)) {
      throw new HoldfastError("volume_exists", `you have a volume called ${name} already`, {
        hint: "Use it, remove it first, or choose another name.",
        details: { field: "name" },
      });
    }
    if (ofThisKey.length >= MOST_PER_KEY) {
      throw new HoldfastError("limit_reached", `a key may have ${MOST_PER_KEY} volumes, and this one has them`, {
        hint: "Remove some that nobody needs.",
      });
    }
    const volume: Volume = { id: createRandomId("v"), name, keyId, createdAt: new Date() };
    // Before the first wait: of two requests with one name, one gets it.
    making.add(volume);
    try {
      await engine.volumes.create(volume.id, { limitBytes });
      records.write(volume);
      volumes.set(volume.id, volume);
    } catch (error) {
      await engine.volumes.remove(volume.id).catch(() => {});
      throw error;
    } finally {
      making.delete(volume);
    }
    return volume;
  }

  async function remove(caller: Caller, id: string): Promise<void> {
    const volume = await find(caller, id);
    const ours = keeper.sandboxesOf(volume.id);
    const users = engine.volumes.users(volume.id).filter((user) => !ours.includes(user));
    if (users.length > 0) throw inUse(volume, users);
    // Nobody finds it from here on: neither a sandbox that is to be made nor a request for its content.
    volumes.delete(volume.id);
    records.write({ ...volume, removed: true });
    try {
      await keeper.letGo(volume.id);
      await engine.volumes.remove(volume.id);
    } catch (error) {
      records.write(volume);
      volumes.set(volume.id, volume);
      throw error;
    }
    records.remove(volume.id);
  }

  return {
    create,
    list: async (caller) => ownedBy(caller),
    find,
    remove,
    byToken(id, isRight) {
      if (!isRight(tokens.volume(id))) return undefined;
      const volume = volumes.get(id);
      if (volume === undefined) throw notFound(id);
      return volume;
    },
    tokenOf: (volume) => tokens.volume(volume.id),
    mountsOf: (mounts) =>
      mounts.map(({ volumeId, name, path }) => {
        if (!volumes.has(volumeId)) throw notFound(name);
        return { source: engine.volumes.path(volumeId), target: path, readOnly: false };
      }),
    content: keeper,
    close: () => keeper.close(),
  };
}

/** Finishes what a killed server left. */
async function recover(
  { engine, log }: Pick<VolumesOptions, "engine" | "log">,
  records: VolumeRecords,
): Promise<Map<string, Volume>> {
  const volumes = new Map<string, Volume>();
  const removeOrSay = (id: string) =>
    engine.volumes.remove(id).then(
      () => true,
      (error: unknown) => {
        const { message } = HoldfastError.from(error);
        log.warn({ left: "volume", volume: id, error: message }, "a volume could not be removed");
        return false;
      },
    );
  for (const { removed = false, ...volume } of records.readAll()) {
    if (!removed) volumes.set(volume.id, volume);
    else if (await removeOrSay(volume.id)) records.remove(volume.id);
  }
  const written = new Set(records.ids());
  for (const id of engine.volumes.list()) {
    if (written.has(id)) continue;
    // The record is written when the volume is made: one that nobody was told of is empty. Anything else is somebody's.
    if (readdirSync(engine.volumes.path(id)).length === 0) await removeOrSay(id);
    else log.warn({ volume: id, path: engine.volumes.path(id) }, "a volume has files, but nothing is known about it");
  }
  return volumes;
}

function notFound(idOrName: string): HoldfastError {
  const shown = JSON.stringify(idOrName.slice(0, 100));
  return new HoldfastError("volume_not_found", `there is no volume ${shown}, or it is not yours`);
}

function inUse(volume: Volume, users: readonly string[]): HoldfastError {
  return new HoldfastError("volume_in_use", `volume ${volume.name} is in use by ${users.join(", ")}`, {
    hint: "End those sandboxes first, the paused ones among them too.",
    details: { sandboxes: users },
  });
}
