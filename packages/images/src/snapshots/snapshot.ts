/**
 * A sandbox's files as an image, and copies of a running sandbox. Both keep files only: processes, their memory and open
 * connections stay with the original. Every result says so.
 */
import { createHash } from "node:crypto";
import { createLayerId, type Sandbox, type SandboxSpec, type SnapshotReport } from "@holdfast/engine";
import { ceilingBytesOf, HoldfastError } from "@holdfast/protocol";
import type { ImagesContext } from "../context.js";
import { removeNewLayer } from "../layers/remove-new-layer.js";
import { claimLayer, releaseClaims } from "../store/claims.js";
import { createImageId } from "../store/ids.js";
import { uniqueName } from "../store/process-tag.js";
import { putNamed } from "../store/put-named.js";
import { checkImageName } from "../store/reference.js";
import type { ImageConfig, ImageName, ImageRecord, Owner } from "../types.js";

/** How what was kept comes back. There is one way on this engine; a caller that needs memory must not be misled. */
export const RESTORES = "files" as const;

export interface TakenSnapshot {
  readonly image: ImageRecord;
  readonly report: SnapshotReport;
  readonly holds: typeof RESTORES;
}

const PLAIN_CONFIG: Omit<ImageConfig, "architecture"> = {
  env: {},
  workdir: null,
  user: null,
  entrypoint: null,
  cmd: null,
  exposedPorts: [],
  labels: {},
  start: null,
  os: "linux",
};

/** Node's names of processors, as OCI spells them. */
const ARCHITECTURES: Readonly<Record<string, string>> = { x64: "amd64", arm64: "arm64" };
export const hostArchitecture = (): string => ARCHITECTURES[process.arch] ?? process.arch;

export async function takeSnapshot(
  context: ImagesContext,
  sandbox: Sandbox,
  options: {
    readonly owner: Owner;
    readonly names?: readonly ImageName[] | undefined;
    /** What the sandbox was made of; undefined if that is not an image. */
    readonly parent?: ImageRecord | undefined;
  },
): Promise<TakenSnapshot> {
  const { store, log } = context;
  const { parent } = options;
  const { image: source } = sandbox.spec;
  const names = options.names ?? [];
  for (const name of names) checkImageName(name);
  const layer = createLayerId();
  const holder = `snapshot-${uniqueName()}`;
  claimLayer(store.directory, holder, layer);
  const id = createImageId();
  try {
    const report = await sandbox.snapshot(layer);
    store.putLayer({
      version: 1,
      id: layer,
      createdAt: new Date().toISOString(),
      diffId: null,
      sizeBytes: report.sizeBytes,
      from: `snapshot of ${sandbox.id}`,
    });
    const image: ImageRecord = {
      version: 1,
      id,
      kind: "snapshot",
      // Nothing else has it, and nothing ever will: a snapshot is what it is by having been taken.
      digest: `sha256:${createHash("sha256").update(`snapshot ${id}`).digest("hex")}`,
      owner: options.owner,
      createdAt: new Date().toISOString(),
      layers: source.kind === "layers" ? source.layers : [],
      below: source.kind === "layers" ? null : source,
      disk: layer,
      config: {
        ...PLAIN_CONFIG,
        architecture: hostArchitecture(),
        ...parent?.config,
        user: parent?.config.user ?? sandbox.spec.defaultUser,
        workdir: parent?.config.workdir ?? sandbox.spec.workdir ?? null,
      },
      floor: parent?.floor ?? null,
      parent: parent?.id ?? null,
      fromSandbox: sandbox.id,
      buildId: null,
      limits: {
        memoryBytes: ceilingBytesOf(sandbox.limits),
        cpuMillis: sandbox.limits.cpuMillis,
        diskBytes: sandbox.limits.diskBytes,
      },
    };
    putNamed(store, image, names);
    return { image, report, holds: RESTORES };
  } catch (error) {
    await removeNewLayer(context, layer, holder).catch((reason: unknown) => {
      log.warn(
        { left: "layer", layer, error: HoldfastError.from(reason).message },
        "a failed snapshot's layer is left; prune removes it",
      );
    });
    throw error;
  } finally {
    releaseClaims(store.directory, holder);
  }
}

/** The files of a running sandbox as of one moment, to make others of. */
export interface ForkPoint {
  /** What makes a new sandbox a copy. */
  readonly spec: Partial<SandboxSpec>;
  readonly report: SnapshotReport;
  readonly restores: typeof RESTORES;
  /** To be called when all copies are made: their disks are their own by then. */
  release(): Promise<void>;
}

export async function prepareFork(context: ImagesContext, sandbox: Sandbox): Promise<ForkPoint> {
  const { engine, store, log } = context;
  const layer = createLayerId();
  const holder = `fork-${uniqueName()}`;
  claimLayer(store.directory, holder, layer);
  const report = await sandbox.snapshot(layer).catch((error: unknown) => {
    releaseClaims(store.directory, holder);
    throw error;
  });
  const { id: _, ...spec } = sandbox.spec;
  return {
    spec: { ...spec, limits: sandbox.limits, disk: { from: layer } },
    report,
    restores: RESTORES,
    release: async () => {
      try {
        await engine.layers.remove(layer);
      } catch (error) {
        log.warn(
          { left: "layer", layer, error: HoldfastError.from(error).message },
          "a fork's own layer is left; prune removes it",
        );
      } finally {
        releaseClaims(store.directory, holder);
      }
    },
  };
}
