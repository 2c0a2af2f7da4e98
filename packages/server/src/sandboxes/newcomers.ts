/** Sandboxes that somebody asks for: what they are to be, from an image or with the files of another one. */
import { prepareFork } from "@holdfast/images";
import { createSandboxId } from "@holdfast/protocol";
import { waitForRoomMs } from "../config/budget-settings.js";
import type { SandboxRow } from "../store/store.js";
import { checkAgainstHost, checkPriority, checkTimeout } from "./check-request.js";
import type { Creations } from "./creations.js";
import { lifeFor, makeForks } from "./forks.js";
import { keyIdOf } from "./key-id.js";
import { lifeEvents } from "./life-events.js";
import type { SandboxLife } from "./sandbox-life.js";
import type { ServiceParts } from "./service-parts.js";
import type { Sources } from "./sources.js";
import type { Caller, CreateRequest, Forked } from "./types.js";

/** Whoever was cut off comes back within this, with the same token; what still waits then is made for somebody. */
const COME_BACK_MS = 5000;

export interface NewcomerParts extends Pick<ServiceParts, "config" | "engine" | "images" | "volumes"> {
  readonly sources: Sources;
  readonly creations: Creations;
  /** Throws while nothing new may be begun on the host. */
  readonly requireCalm: () => void;
  readonly findAlive: (caller: Caller, id: string) => Promise<SandboxRow>;
  readonly lifeOf: (caller: Caller, id: string) => Promise<SandboxLife>;
}

export class Newcomers {
  readonly #parts: NewcomerParts;

  constructor(parts: NewcomerParts) {
    this.#parts = parts;
  }

  async create(
    caller: Caller,
    request: CreateRequest,
    options: { readonly idempotencyToken?: string | undefined; readonly signal?: AbortSignal | undefined },
  ): Promise<SandboxRow> {
    const { config, engine, volumes, sources, creations } = this.#parts;
    checkTimeout(request.timeoutMs, config);
    checkPriority(request.metadata);
    this.#parts.requireCalm();
    const source = sources.resolve(caller, request);
    if (Object.keys(request.limits).length > 0) await checkAgainstHost(request.limits, engine);
    const keyId = keyIdOf(caller);
    const spec = { ...source.spec, mounts: volumes.mountsOf(request.volumes ?? []) };
    const warm = await creations.claim({ ...spec, limits: source.limits });
    const id = warm?.id ?? createSandboxId();
    const { idempotencyToken: token, signal } = options;
    if (token !== undefined) {
      let earlier: SandboxRow | undefined;
      try {
        earlier = await creations.earlier({ keyId, token, signal }, request, id);
      } catch (error) {
        warm?.release();
        throw error;
      }
      if (earlier !== undefined) {
        warm?.release();
        return earlier;
      }
    }
    const row: SandboxRow = {
      id,
      keyId,
      template: source.name,
      imageId: source.imageId,
      memory: source.memory,
      volumes: request.volumes ?? [],
      status: "creating",
      ...lifeFor(request.timeoutMs),
      timeoutMs: request.timeoutMs,
      onTimeout: request.onTimeout,
      autoResume: request.autoResume,
      limits: source.limits,
      env: request.env,
      metadata: request.metadata,
      network: request.network,
      memoryKept: null,
      boots: 1,
      endedAt: null,
      ending: null,
    };
    return creations.make(caller, row, spec, {
      waitForRoomMs: request.waitMs ?? waitForRoomMs(config),
      signal,
      comeBackMs: token === undefined ? 0 : COME_BACK_MS,
      warm,
    });
  }

  async fork(
    caller: Caller,
    id: string,
    options: { readonly count: number; readonly timeoutMs?: number | undefined },
  ): Promise<Forked> {
    const { config, images, creations, findAlive, lifeOf } = this.#parts;
    const timeoutMs = options.timeoutMs ?? (await findAlive(caller, id)).timeoutMs;
    checkTimeout(timeoutMs, config);
    this.#parts.requireCalm();
    const life = await lifeOf(caller, id);
    const point = await life.withSandbox(async (sandbox) => {
      const result = await prepareFork(images.context, sandbox);
      const { method, sizeBytes, frozenMs } = result.report;
      const data = { count: options.count, holds: result.restores, method, sizeBytes, frozenMs };
      return { result, event: lifeEvents.snapshotted("Its files were copied for new sandboxes.", data) };
    });
    try {
      const { spec, report } = point;
      const { count } = options;
      const forks = await makeForks(creations, {
        caller,
        source: life.row,
        spec,
        count,
        timeoutMs,
        waitForRoomMs: waitForRoomMs(config),
      });
      return { forks, report };
    } finally {
      await point.release();
    }
  }
}
