/**
 * Moves one image in a process of its own, which does nothing else, so that its memory is that of the move:
 *   node --expose-gc image-mover.js '{"stateDirectory": …, "job": …}', with a channel to whoever measures it.
 * It says when it is ready, moves when told to, says what that took, and undoes it when told to.
 */
import { once } from "node:events";
import { createReadStream, readFileSync, rmSync, writeFileSync } from "node:fs";
import { open, rm } from "node:fs/promises";
import { join } from "node:path";
import { BubblewrapEngine } from "@holdfast/engine";
import {
  deliverImage,
  exportImage,
  type Images,
  importImage,
  openImages,
  pullImage,
  pushImage,
  wrapAsTar,
} from "@holdfast/images";
import { DEFAULT_SANDBOX_LIMITS } from "@holdfast/protocol";

export type MoveJob =
  | { readonly do: "import"; readonly path: string }
  | { readonly do: "export"; readonly image: string; readonly path: string }
  | { readonly do: "push"; readonly image: string; readonly reference: string }
  | { readonly do: "pull"; readonly reference: string }
  /** Into a file of a sandbox that is made for it. */
  | { readonly do: "deliver"; readonly image: string; readonly sizeBytes: number }
  /** A file, as a stream of unknown length, into a tar of its own. */
  | { readonly do: "wrap"; readonly path: string; readonly to: string };

export interface Moved {
  readonly ms: number;
  /** The peak of what is resident, less what was before. */
  readonly grownBytes: number;
  /** The same without what the kernel keeps of files. */
  readonly grownAnonymousBytes: number;
  /** Of this process, and of those that it has started and that have ended. */
  readonly cpuMs: number;
  readonly childrenCpuMs: number;
}

export type MoverAnswer = { readonly ready: true } | { readonly moved: Moved } | { readonly error: string };

interface Prepared {
  move(): Promise<void>;
  undo(): Promise<void>;
}

const SAMPLE_MS = 20;
const TICKS_PER_SECOND = 100;
const CHUNK_BYTES = 1024 * 1024;

function residentBytes(name: "VmRSS" | "VmHWM" | "RssAnon"): number {
  const found = new RegExp(`^${name}:\\s+(\\d+) kB$`, "m").exec(readFileSync("/proc/self/status", "utf8"));
  return Number(found?.[1]) * 1024;
}

function childrenCpuMs(): number {
  const fields = readFileSync("/proc/self/stat", "utf8")
    .replace(/^.*\) /s, "")
    .split(" ");
  return ((Number(fields[13]) + Number(fields[14])) * 1000) / TICKS_PER_SECOND;
}

async function prepare(engine: BubblewrapEngine, images: Images, job: MoveJob): Promise<Prepared> {
  const { context, store } = images;
  const nothing = async (): Promise<void> => undefined;
  switch (job.do) {
    case "import":
    case "pull": {
      let made: string | undefined;
      return {
        async move() {
          const options = { owner: null, names: [] };
          const record =
            job.do === "import"
              ? await importImage(context, { path: job.path }, options)
              : await pullImage(context, job.reference, { ...options, plainHttp: true });
          made = record.id;
        },
        async undo() {
          if (made !== undefined) await store.remove(store.require(made, null).id);
        },
      };
    }
    case "export": {
      const image = store.require(job.image, null);
      return {
        async move() {
          await exportImage(context, image, { format: "oci", to: { path: job.path } });
        },
        undo: () => rm(job.path, { force: true }),
      };
    }
    case "push": {
      const image = store.require(job.image, null);
      return {
        async move() {
          await pushImage(context, image, job.reference, { compression: "none", plainHttp: true });
        },
        undo: nothing,
      };
    }
    case "deliver": {
      const image = store.require(job.image, null);
      const limits = { ...DEFAULT_SANDBOX_LIMITS, diskBytes: 2 * job.sizeBytes + 1024 ** 3 };
      const sandbox = await engine.create({ limits });
      return {
        move: () => deliverImage(context, image, { to: { kind: "sandbox", sandbox, path: "/root/image.tar" } }),
        async undo() {
          await sandbox.kill("the benchmark");
        },
      };
    }
    case "wrap":
      return {
        async move() {
          const content = createReadStream(job.path, { highWaterMark: CHUNK_BYTES });
          const tar = await wrapAsTar(context, content, { name: "image.tar" });
          const file = await open(job.to, "w");
          try {
            for await (const chunk of tar.stream) await file.appendFile(chunk);
          } finally {
            await file.close();
          }
        },
        undo: () => rm(job.to, { force: true }),
      };
  }
}

async function measure(move: () => Promise<void>): Promise<Moved> {
  globalThis.gc?.();
  const before = { all: residentBytes("VmRSS"), anonymous: residentBytes("RssAnon") };
  // The peak begins anew.
  writeFileSync("/proc/self/clear_refs", "5");
  let anonymous = before.anonymous;
  const timer = setInterval(() => {
    anonymous = Math.max(anonymous, residentBytes("RssAnon"));
  }, SAMPLE_MS);
  const cpu = process.cpuUsage();
  const children = childrenCpuMs();
  const start = performance.now();
  try {
    await move();
  } finally {
    clearInterval(timer);
  }
  const ms = performance.now() - start;
  const { user, system } = process.cpuUsage(cpu);
  return {
    ms,
    grownBytes: residentBytes("VmHWM") - before.all,
    grownAnonymousBytes: anonymous - before.anonymous,
    cpuMs: (user + system) / 1000,
    childrenCpuMs: childrenCpuMs() - children,
  };
}

async function main(): Promise<void> {
  const { stateDirectory, job } = JSON.parse(process.argv[2] ?? "") as { stateDirectory: string; job: MoveJob };
  const say = (answer: MoverAnswer): void => void process.send?.(answer);
  const engine = await BubblewrapEngine.open({ stateDirectory });
  try {
    const images = await openImages({ engine, stateDirectory });
    // What earlier moves have found out of the image would save this one some work: every move is the first.
    rmSync(join(images.store.directory, "packed"), { recursive: true, force: true });
    const prepared = await prepare(engine, images, job);
    try {
      say({ ready: true });
      await once(process, "message");
      say({ moved: await measure(() => prepared.move()) });
      await once(process, "message");
    } finally {
      await prepared.undo();
      await images.close();
    }
  } catch (error) {
    say({ error: (error as Error).stack ?? String(error) });
  } finally {
    await engine.close({ sandboxes: "kill" });
    process.disconnect();
  }
}

await main();
