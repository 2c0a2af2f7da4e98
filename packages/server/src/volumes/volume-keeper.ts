/**
 * The content of volumes, for those who come without a sandbox. Whatever is in a volume, sandboxes wrote it: its paths and
 * links are followed inside a sandbox of its own and never on the host. One is made on first use and goes after a while
 * without any, or when there are too many.
 */
import type { Engine, Log, Sandbox } from "@holdfast/engine";
import { createSandboxId, HoldfastError, type SandboxId } from "@holdfast/protocol";
import { INSIDE_PLACE, InsideVolume } from "./inside-volume.js";
import type { Volume, VolumeContent } from "./volumes.js";

const IDLE_MS = 30_000;
/** For as long as a request may take to be answered. */
const ROOM_WAIT_MS = 10_000;
/** Of all keys together, and of one: nobody's slow downloads keep others from their volumes. */
const MOST_KEPT = 64;
const MOST_KEPT_PER_KEY = 16;
/** Requests about one volume; each is a process inside. */
const MOST_AT_ONCE = 64;
const BUSY_SECONDS = 1;
const QUOTED_PLACE = new RegExp(`'${INSIDE_PLACE}(?:/|(?='))`, "g");
const MIB = 1024 * 1024;
const LIMITS = {
  memoryBytes: 64 * MIB,
  pids: 2 * MOST_AT_ONCE,
  cpuMillis: 1000,
  diskBytes: 16 * MIB,
  outputBytes: 64 * 1024,
  wallMs: undefined,
};

interface Kept {
  readonly volume: Pick<Volume, "id" | "keyId">;
  readonly id: SandboxId;
  readonly sandbox: Promise<Sandbox>;
  users: number;
  timer: NodeJS.Timeout | undefined;
}

export class VolumeKeeper implements VolumeContent {
  readonly #engine: Engine;
  readonly #log: Log;
  readonly #idleMs: number;
  /** By volume, the one that was not used for longest first. */
  readonly #kept = new Map<string, Kept>();
  /** Those that are being ended. */
  readonly #going = new Map<Kept, Promise<void>>();
  #closed = false;

  constructor(parts: { readonly engine: Engine; readonly log: Log; readonly idleMs?: number }) {
    this.#engine = parts.engine;
    this.#log = parts.log;
    this.#idleMs = parts.idleMs ?? IDLE_MS;
  }

  async use<T>(volume: Pick<Volume, "id" | "keyId">, work: (inside: InsideVolume) => Promise<T>): Promise<T> {
    const kept = this.#keep(volume);
    if (kept.users >= MOST_AT_ONCE) {
      throw new HoldfastError("rate_limited", `${MOST_AT_ONCE} requests about this volume are under way already`, {
        hint: "Try again when one of them is done.",
        details: { retryAfterSeconds: BUSY_SECONDS },
      });
    }
    clearTimeout(kept.timer);
    kept.users += 1;
    try {
      return await work(new InsideVolume(await kept.sandbox));
    } catch (error) {
      throw this.#kept.get(volume.id) === kept ? asShown(HoldfastError.from(error)) : gone(HoldfastError.from(error));
    } finally {
      kept.users -= 1;
      if (kept.users === 0 && this.#kept.get(volume.id) === kept) this.#goLater(kept);
    }
  }

  /** The sandboxes that the volume's content is or was served from, as far as they are there. */
  sandboxesOf(volumeId: string): SandboxId[] {
    return [...this.#kept.values(), ...this.#going.keys()].flatMap(({ volume, id }) =>
      volume.id === volumeId ? [id] : [],
    );
  }

  /** Ends what serves the volume; whatever is under way breaks off. Nothing has the volume when this is done. */
  async letGo(volumeId: string): Promise<void> {
    const kept = this.#kept.get(volumeId);
    if (kept !== undefined) void this.#end(kept);
    await Promise.all([...this.#going].flatMap(([{ volume }, ended]) => (volume.id === volumeId ? [ended] : [])));
  }

  async close(): Promise<void> {
    this.#closed = true;
    for (const kept of [...this.#kept.values()]) void this.#end(kept);
    await Promise.all(this.#going.values());
  }

  #keep(volume: Pick<Volume, "id" | "keyId">): Kept {
    if (this.#closed) throw new HoldfastError("server_stopping", "the server is being stopped");
    const kept = this.#kept.get(volume.id) ?? this.#make(volume);
    // Last in line.
    this.#kept.delete(volume.id);
    this.#kept.set(volume.id, kept);
    return kept;
  }

  #make(volume: Pick<Volume, "id" | "keyId">): Kept {
    this.#makeRoom((kept) => kept.volume.keyId === volume.keyId, MOST_KEPT_PER_KEY);
    this.#makeRoom(() => true, MOST_KEPT);
    const id = createSandboxId();
    const sandbox = this.#engine.create(
      {
        id,
        image: { kind: "host" },
        limits: LIMITS,
        mounts: [{ source: this.#engine.volumes.path(volume.id), target: INSIDE_PLACE, readOnly: false }],
        hostname: "volume",
        defaultUser: "root",
        // What nobody asks through any more need not be found again.
        whenOwnerDies: "end",
        labels: { volume: volume.id },
      },
      // One that nobody uses holds as much as this one needs.
      { admission: { lane: volume.keyId, waitMs: ROOM_WAIT_MS, onWaiting: () => this.#endIdle() } },
    );
    const kept: Kept = { volume, id, sandbox, users: 0, timer: undefined };
    const forget = () => this.#forget(kept);
    sandbox.then((made) => made.ended.then(forget), forget);
    return kept;
  }

  /** Ends one that nobody uses, if there are as many of these as there may be. */
  #makeRoom(isOne: (kept: Kept) => boolean, most: number): void {
    const these = [...this.#kept.values()].filter(isOne);
    if (these.length < most) return;
    const idle = these.find((kept) => kept.users === 0);
    if (idle === undefined) {
      throw new HoldfastError("host_capacity", `the contents of ${most} volumes are being read or written already`, {
        hint: "Try again when some of that is done.",
        details: { retryAfterSeconds: BUSY_SECONDS },
      });
    }
    void this.#end(idle);
  }

  #endIdle(): void {
    const idle = [...this.#kept.values()].find((kept) => kept.users === 0);
    if (idle !== undefined) void this.#end(idle);
  }

  #forget(kept: Kept): void {
    clearTimeout(kept.timer);
    if (this.#kept.get(kept.volume.id) === kept) this.#kept.delete(kept.volume.id);
  }

  #goLater(kept: Kept): void {
    kept.timer = setTimeout(() => void this.#end(kept), this.#idleMs);
    kept.timer.unref();
  }

  /** Never rejects: one that does not end is what `Volumes.remove` then finds in the way. */
  #end(kept: Kept): Promise<void> {
    this.#forget(kept);
    const ended = this.#kill(kept).catch((error: unknown) => {
      const { message } = HoldfastError.from(error);
      this.#log.warn({ volume: kept.volume.id, error: message }, "what served a volume's content did not end");
    });
    this.#going.set(kept, ended);
    void ended.then(() => this.#going.delete(kept));
    return ended;
  }

  async #kill(kept: Kept): Promise<void> {
    const sandbox = await kept.sandbox.catch(() => undefined);
    await sandbox?.kill("the end of its volume's use");
  }
}

const ENDED: ReadonlySet<string> = new Set(["sandbox_ended", "guest_fault", "canceled"]);

/** With paths as whoever asks knows them. */
function asShown(error: HoldfastError): HoldfastError {
  const message = error.message.replaceAll(QUOTED_PLACE, "'/");
  if (message === error.message) return error;
  return new HoldfastError(error.code, message, { cause: error, hint: error.hint, details: error.details });
}

/** For requests that were under way. A request that could not even begin keeps its own error. */
function gone(error: HoldfastError): HoldfastError {
  if (!ENDED.has(error.code)) return asShown(error);
  return new HoldfastError("volume_not_found", "the volume was removed, or what served its content has ended", {
    cause: error,
    hint: "Try again: if it is there, it will be served anew.",
  });
}
