/** An image in and out, in every direction: how fast beside `cat` of the same bytes on the same disk, in how much memory. */
import { fork } from "node:child_process";
import { once } from "node:events";
import { existsSync, mkdirSync, readdirSync } from "node:fs";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import type { LayerId } from "@holdfast/engine";
import { type ImageRecord, importImage } from "@holdfast/images";
import { type Docker, findDocker } from "./docker.js";
import { type Bench, compareInTurns, createRow, type Figure, type Peer, type Row, timed } from "./harness.js";
import type { Moved, MoveJob, MoverAnswer } from "./image-mover.js";
import { cat, forget, type ImageSources, makeSources, remove, SKOPEO, sync } from "./image-sources.js";
import { capture, exitOf, spawnAndWait } from "./processes.js";
import { type RegistryProcess, startRegistry } from "./registry-process.js";
import { sharedImages } from "./tiny-image.js";

const MIB = 1024 * 1024;
const MOVER = fileURLToPath(new URL("./image-mover.js", import.meta.url));
const GOALS = { cat: { kind: "ratio", atLeast: 0.7 } } as const;
const MAX_GROWTH_BYTES = 64 * MIB;
const PLAIN_HTTP = ["--src-tls-verify=false", "--dest-tls-verify=false"];

interface Surroundings {
  readonly bench: Bench;
  readonly sources: ImageSources;
  /** Where whatever lands beside our layers goes, and whatever lands beside the archives. */
  readonly inPool: string;
  readonly onDisk: string;
  readonly registry: RegistryProcess | string;
  readonly docker: Docker | string;
}

interface Direction {
  readonly name: string;
  readonly job: MoveJob;
  /** What is read, and leaves memory before. */
  readonly from: readonly string[];
  /** The same bytes elsewhere on the disk: `cat` would not copy them within a btrfs but share them. */
  readonly catFrom?: readonly string[];
  /** Where the result goes: `cat`'s name, on the same file system. */
  readonly to: string;
  readonly rivals: readonly (Peer | Rival)[];
  /** Before every turn of anybody. */
  reset?(): void;
  readonly note?: string;
}

/** From the first byte until all of it is on the disk, in MB/s of the layer's bytes. */
async function rate(place: Surroundings, direction: Direction, work: () => Promise<unknown>): Promise<number> {
  const { bench, sources } = place;
  direction.reset?.();
  await sync(direction.to.slice(0, direction.to.lastIndexOf("/")));
  // The pool is a file itself, which the kernel keeps as well as the files in it.
  await forget(...direction.from, ...(direction.catFrom ?? []), ...poolFiles(bench));
  const ms = await timed(async () => {
    await work();
    await sync(direction.to.slice(0, direction.to.lastIndexOf("/")));
  });
  return sources.sizeBytes / 1e6 / (ms / 1000);
}

function poolFiles(bench: Bench): string[] {
  return [join(bench.stateDirectory, "pool.btrfs")].filter((path) => existsSync(path));
}

async function ours(place: Surroundings, direction: Direction, all: Moved[]): Promise<number> {
  const { bench } = place;
  const profile =
    bench.profileDirectory === undefined ? [] : ["--cpu-prof", `--cpu-prof-dir=${bench.profileDirectory}`];
  const given = JSON.stringify({ stateDirectory: bench.stateDirectory, job: direction.job });
  const child = fork(MOVER, [given], { execArgv: ["--expose-gc", ...profile], detached: true });
  const ended = exitOf(child);
  const answer = async (): Promise<MoverAnswer> => {
    const message = once(child, "message").then(([said]) => said as MoverAnswer);
    const said = await Promise.race([message, ended.then(() => ({ error: "it ended without a word" }))]);
    if ("error" in said) throw new Error(`${direction.name}: ${said.error}`);
    return said;
  };
  try {
    await answer();
    const value = await rate(place, direction, async () => {
      child.send("go");
      const said = await answer();
      if ("moved" in said) all.push(said.moved);
    });
    child.send("undo");
    await ended;
    return value;
  } finally {
    child.kill("SIGTERM");
    await ended;
  }
}

function catPeer(place: Surroundings, direction: Direction): Peer {
  return {
    name: "cat",
    async measure() {
      try {
        return await rate(place, direction, () => cat(direction.catFrom ?? direction.from, direction.to));
      } finally {
        remove(direction.to);
      }
    },
  };
}

/** Whatever another program does instead, and what it takes to undo it, which is not measured. */
interface Rival {
  readonly name: string;
  readonly argv: readonly string[];
  undo(): unknown;
}

function rivalPeer(place: Surroundings, direction: Direction, { name, argv, undo }: Rival): Peer {
  return {
    name,
    async measure() {
      try {
        return await rate(place, direction, () => spawnAndWait(argv));
      } finally {
        await undo();
      }
    },
  };
}

/** `result`: what is to be removed afterwards. */
function skopeo(from: string, to: string, result?: string): Rival {
  const flags = ["-q", ...PLAIN_HTTP, "--dest-compress=false", "--dest-oci-accept-uncompressed-layers"];
  const argv = [...SKOPEO, "copy", ...flags, from, to];
  return { name: "skopeo copy", argv, undo: () => result !== undefined && remove(result) };
}

/** Into our store, which does not have the image yet: what it has it would only check. */
function inward({ sources, inPool, registry, docker }: Surroundings): Direction[] {
  const theirs = join(inPool, "theirs");
  const to = join(inPool, "cat");
  const { dockerArchive, ociArchive } = sources;
  const load: Peer | Rival =
    typeof docker === "string"
      ? { name: "docker load", absent: docker }
      : {
          name: "docker load",
          argv: [...docker.argv, "load", "-q", "-i", dockerArchive],
          undo: () => capture([...docker.argv, "rmi", "-f", "bench:latest"]),
        };
  const directions: Direction[] = [
    {
      name: "import of a docker archive",
      job: { do: "import", path: dockerArchive },
      from: [dockerArchive],
      to,
      rivals: [load, skopeo(`docker-archive:${dockerArchive}`, `oci:${theirs}:bench`, theirs)],
    },
    {
      name: "import of an OCI archive",
      job: { do: "import", path: ociArchive },
      from: [ociArchive],
      to,
      rivals: [skopeo(`oci-archive:${ociArchive}`, `oci:${theirs}:bench`, theirs)],
    },
  ];
  if (typeof registry === "string") return directions;
  const reference = `${registry.host}/bench:latest`;
  return [
    ...directions,
    {
      name: "pull",
      job: { do: "pull", reference },
      from: [registry.blobPath(sources.layerDigest)],
      to,
      rivals: [skopeo(`docker://${reference}`, `oci:${theirs}:bench`, theirs)],
    },
  ];
}

function outward(place: Surroundings, image: ImageRecord): Direction[] {
  const { bench, sources, inPool, onDisk, registry, docker } = place;
  const layer = bench.engine.layers.path(image.layers[0] as LayerId);
  const from = readdirSync(layer).map((name) => join(layer, name));
  const to = join(onDisk, "out.tar");
  const [saved, theirs] = [join(onDisk, "saved.tar"), join(onDisk, "theirs.tar")];
  const layout = `oci:${sources.layout}:bench`;
  const save: Peer | Rival =
    typeof docker === "string"
      ? { name: "docker save", absent: docker }
      : {
          name: "docker save",
          argv: [...docker.argv, "save", "-o", saved, "bench:latest"],
          undo: () => remove(saved),
        };
  const directions: Direction[] = [
    {
      name: "export to an OCI archive",
      job: { do: "export", image: image.id, path: to },
      from,
      to,
      rivals: [save, skopeo(layout, `oci-archive:${theirs}`, theirs)],
    },
    {
      name: "delivery of an image into a sandbox",
      job: { do: "deliver", image: image.id, sizeBytes: sources.sizeBytes },
      from,
      catFrom: [sources.ociArchive],
      to: join(inPool, "cat"),
      rivals: [],
    },
    {
      name: "an archive of unknown length, wrapped into a tar",
      job: { do: "wrap", path: sources.ociArchive, to },
      from: [sources.ociArchive],
      to,
      rivals: [],
      note: "its bytes are written twice: the header in front of them says how many there are",
    },
  ];
  if (typeof registry === "string") return directions;
  const reference = `${registry.host}/bench:latest`;
  return [
    ...directions,
    {
      name: "push",
      job: { do: "push", image: image.id, reference },
      from,
      to,
      rivals: [skopeo(layout, `docker://${reference}`)],
      reset: () => registry.empty(),
    },
  ];
}

function isWanted({ name }: Direction): boolean {
  const words = (process.env.HOLDFAST_BENCH_MOVES ?? "").split(",").filter((word) => word !== "");
  return words.length === 0 || words.some((word) => name.includes(word));
}

/** In the registry for those who pull, which is as skopeo pushes it: with its own bytes. */
async function fillRegistry({ sources, registry }: Surroundings): Promise<void> {
  if (typeof registry === "string") return;
  registry.empty();
  const to = `docker://${registry.host}/bench:latest`;
  const flags = ["-q", ...PLAIN_HTTP, "--dest-compress=false", "--preserve-digests"];
  await spawnAndWait([...SKOPEO, "copy", ...flags, `oci:${sources.layout}:bench`, to]);
}

async function measureDirection(place: Surroundings, direction: Direction): Promise<Row[]> {
  const { bench } = place;
  const moves: Moved[] = [];
  if (direction.name === "pull") await fillRegistry(place);
  bench.say(`${direction.name} ... `);
  const rivals = direction.rivals.map((rival) => ("argv" in rival ? rivalPeer(place, direction, rival) : rival));
  const rows = await compareInTurns(
    direction.name,
    { name: "ours", measure: () => ours(place, direction, moves) },
    [catPeer(place, direction), ...rivals],
    {
      rounds: bench.quick ? 1 : 3,
      turns: 1,
      roundMs: 1,
      signal: bench.signal,
      warmUp: false,
      unit: "MB/s",
      goals: GOALS,
      ...(direction.note === undefined ? {} : { note: direction.note }),
    },
  );
  const largest = (of: (moved: Moved) => number): number => Math.max(...moves.map(of));
  const seconds = (of: (moved: Moved) => number): string => (largest(of) / 1000).toFixed(1);
  rows.push(
    createRow("  its process grew by, at most", "bytes", [[largest((moved) => moved.grownBytes)]], {
      goal: { kind: "value", atMost: MAX_GROWTH_BYTES },
      note:
        `${(largest((moved) => moved.grownAnonymousBytes) / MIB).toFixed(1)} MiB of it not of files; ` +
        `CPU: ${seconds((moved) => moved.cpuMs)} s, and ${seconds((moved) => moved.childrenCpuMs)} s of its children`,
    }),
  );
  return rows;
}

export const imageMove: Figure = {
  name: "image-move",
  title: "An image in and out, uncompressed, from the disk to the disk",
  async run(bench): Promise<Row[]> {
    const gib = Number(process.env.HOLDFAST_BENCH_GIB ?? (bench.quick ? 0.25 : 4));
    if (!(gib > 0)) throw new Error(`HOLDFAST_BENCH_GIB: expected a number above 0, got ${gib}`);
    const directory = join(bench.scratchDirectory, "image-move");
    const sources = await makeSources(directory, gib);
    const images = await sharedImages(bench);
    const inPool = join(bench.stateDirectory, "pool", "bench-move");
    mkdirSync(inPool, { recursive: true });
    bench.onEnd(() => remove(inPool));
    const registry = await startRegistry(bench);
    const docker = await findDocker(bench);
    const place: Surroundings = { bench, sources, inPool, onDisk: directory, registry, docker };
    const rows: Row[] = [];
    const take = async (directions: readonly Direction[]): Promise<void> => {
      for (const direction of directions.filter(isWanted)) rows.push(...(await measureDirection(place, direction)));
    };
    await take(inward(place));
    const image = await importImage(images.context, { path: sources.ociArchive }, { owner: null, names: [] });
    if (typeof docker !== "string") await spawnAndWait([...docker.argv, "load", "-q", "-i", sources.dockerArchive]);
    await take(outward(place, image));
    await images.store.remove(image.id);
    remove(directory);
    return rows.map((row) => ({ ...row, what: row.what.startsWith(" ") ? row.what : `${gib} GiB: ${row.what}` }));
  },
};
