/** Makes `base` on first use: mmdebstrap's tar goes straight into a layer, and nothing of its work stays on the host. */
import { spawn } from "node:child_process";
import { once } from "node:events";
import { join } from "node:path";
import { createInterface } from "node:readline";
import { findProgram, withHostLock } from "@holdfast/engine";
import { HoldfastError } from "@holdfast/protocol";
import { DEFAULT_PATH } from "../build/apply-step.js";
import type { ImagesContext } from "../context.js";
import { unpackLayer } from "../layers/unpack-layer.js";
import { untilAborted } from "../runtime/until-aborted.js";
import { openScratch } from "../scratch/scratch.js";
import { hostArchitecture } from "../snapshots/snapshot.js";
import { releaseClaims } from "../store/claims.js";
import { createImageId } from "../store/ids.js";
import { uniqueName } from "../store/process-tag.js";
import type { ImageName, ImageRecord } from "../types.js";
import { BASE_LABEL, BASE_PHASES, BASE_VERSION, baseArguments } from "./base-recipe.js";

/** What mmdebstrap needs beside the layer itself while it works. */
const SCRATCH_BYTES = 1536 * 1024 * 1024;
const TAIL_LINES = 15;
export const BASE_NAME: ImageName = { owner: null, name: "base", tag: "latest" };

export interface BaseProgress {
  readonly phase: string;
  /** From 0 to 1. */
  readonly share: number;
}

export interface BuildBaseOptions {
  readonly mirror: string;
  readonly securityMirror: string;
  readonly onLine: (text: string) => void;
  readonly onProgress?: ((progress: BaseProgress) => void) | undefined;
  readonly signal: AbortSignal;
}

/** The base as it is to be now; undefined if it has to be built first. */
export function findBase(context: ImagesContext): ImageRecord | undefined {
  const found = context.store.find("base", null);
  // An operator may have given the name to an image of their own.
  if (found === undefined || found.kind !== "base") return found;
  return found.config.labels[BASE_LABEL] === String(BASE_VERSION) ? found : undefined;
}

export async function ensureBase(context: ImagesContext, options: BuildBaseOptions): Promise<ImageRecord> {
  const found = findBase(context);
  if (found !== undefined) return found;
  options.onLine("building the base image (Debian 12), once");
  let begin = (): void => {};
  const begun = new Promise<void>((resolve) => {
    begin = resolve;
  });
  // Whoever comes second waits for the first and finds it done.
  const work = withHostLock(join(context.store.directory, "base.lock"), async () => {
    begin();
    options.signal.throwIfAborted();
    return findBase(context) ?? (await buildBase(context, options));
  });
  work.catch(() => undefined);
  // Waiting can be given up at once; what has begun is tidied up first.
  await untilAborted(Promise.race([begun, work]), options.signal);
  return work;
}

async function buildBase(context: ImagesContext, options: BuildBaseOptions): Promise<ImageRecord> {
  const program = findProgram("mmdebstrap");
  if (program === undefined) {
    throw new HoldfastError("host_unsupported", "mmdebstrap is not installed, and the base image is built with it", {
      hint: "apt-get install mmdebstrap, or import an image and name it base: holdfast image import FILE -t base",
    });
  }
  const scratch = await openScratch(context, { neededBytes: SCRATCH_BYTES, what: "building the base image" });
  const holder = `base-${uniqueName()}`;
  const tail: string[] = [];
  try {
    // In namespaces of its own: its mounts and processes go with it, however we end.
    const child = spawn(
      "setpriv",
      [
        ...["--pdeathsig", "KILL", "unshare", "--mount", "--pid", "--fork", "--kill-child", "--mount-proc"],
        ...["/bin/sh", "-c", WITHOUT_SYNCS, "base", program, ...baseArguments(options)],
      ],
      {
        stdio: ["ignore", "pipe", "pipe"],
        env: { ...proxies(), TMPDIR: scratch.directory, PATH: DEFAULT_PATH, LC_ALL: "C.UTF-8" },
      },
    );
    const exited = once(child, "exit") as Promise<[number | null, string | null]>;
    exited.catch(() => {});
    const stop = () => child.kill("SIGKILL");
    options.signal.addEventListener("abort", stop, { once: true });
    const reading = (async () => {
      for await (const line of createInterface({ input: child.stderr })) {
        options.onLine(line);
        tail.push(line);
        if (tail.length > TAIL_LINES) tail.shift();
        const phase = BASE_PHASES.find(([pattern]) => pattern.test(line));
        if (phase !== undefined) options.onProgress?.({ phase: phase[1], share: phase[2] });
      }
    })();
    try {
      const layer = await unpackLayer(context, child.stdout, {
        from: "base: Debian 12",
        signal: options.signal,
        holder,
      });
      const [code, signal] = await exited;
      await reading;
      if (code !== 0) {
        await context.engine.layers.remove(layer.id);
        throw failed(signal ?? `exit status ${code}`, tail);
      }
      return store(context, layer);
    } catch (error) {
      stop();
      const [code] = await exited.catch(() => [null]);
      await reading.catch(() => {});
      options.signal.throwIfAborted();
      // What the tar reader says of a tar that was cut off explains nothing.
      throw code === 0 || code === null || HoldfastError.from(error).code === "no_space"
        ? error
        : failed(`exit status ${code}`, tail);
    } finally {
      options.signal.removeEventListener("abort", stop);
    }
  } finally {
    releaseClaims(context.store.directory, holder);
    await scratch.close();
  }
}

/**
 * Debian's package manager syncs again and again, which on a busy disk takes most of the time, for files that are thrown
 * away. An overlay can be told not to; where the scratch directory cannot carry one, it takes as long as it takes.
 */
const WITHOUT_SYNCS = `set -eu
mkdir "$TMPDIR/lower" "$TMPDIR/upper" "$TMPDIR/work" "$TMPDIR/root"
if mount -t overlay -o "lowerdir=$TMPDIR/lower,upperdir=$TMPDIR/upper,workdir=$TMPDIR/work,volatile" overlay "$TMPDIR/root" 2>/dev/null
then TMPDIR="$TMPDIR/root"; fi
exec "$@"
`;

/** apt goes by these, and on some hosts nothing else leads to the mirror. */
function proxies(): Record<string, string> {
  const names = ["http_proxy", "https_proxy", "no_proxy"].flatMap((name) => [name, name.toUpperCase()]);
  return Object.fromEntries(
    names.flatMap((name) => (process.env[name] === undefined ? [] : [[name, process.env[name]]])),
  );
}

function failed(how: string, tail: readonly string[]): HoldfastError {
  return new HoldfastError("build_failed", `the base image could not be built (mmdebstrap: ${how})`, {
    hint: `It needs Debian's packages from the mirror that the server is configured with. Its last words:\n${tail.join("\n")}`,
    details: { step: "base", tail: [...tail] },
  });
}

function store(context: ImagesContext, layer: Awaited<ReturnType<typeof unpackLayer>>): ImageRecord {
  const record: ImageRecord = {
    version: 1,
    id: createImageId(),
    kind: "base",
    digest: layer.diffId ?? `sha256:${"0".repeat(64)}`,
    owner: null,
    createdAt: new Date().toISOString(),
    layers: [layer.id],
    below: null,
    disk: null,
    config: {
      env: { PATH: DEFAULT_PATH },
      workdir: null,
      user: "user",
      entrypoint: null,
      cmd: ["/bin/bash"],
      exposedPorts: [],
      labels: { [BASE_LABEL]: String(BASE_VERSION) },
      start: null,
      architecture: hostArchitecture(),
      os: "linux",
    },
    floor: null,
    parent: null,
    fromSandbox: null,
    buildId: null,
    limits: {},
  };
  context.store.put(record);
  context.store.setName(BASE_NAME, record.id);
  return record;
}
