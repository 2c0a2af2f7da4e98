/** What a build adds to the commands that it runs. */
import { mkdirSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { exportImage, type ImageRecord, type Images } from "@holdfast/images";
import type { Recipe, RecipeStep } from "@holdfast/recipe";
import { type Bench, compareInTurns, createRow, type Figure, type Peer, type Row, timed } from "./harness.js";
import { capture, findProgram, spawnAndWait } from "./processes.js";
import { addTinyImage, sharedImages } from "./tiny-image.js";

const STEPS = 10;
const NAME = "bench-build";
const BUILDER = { memoryMb: 256, diskMb: 512, runtimeMemoryMb: 64, network: "off" } as const;

const commands = (count: number, last: string): string[] =>
  Array.from({ length: count }, (_, index) => `echo ${index === count - 1 ? last : index} > /file-${index}`);

function recipeOf(lines: readonly string[]): Recipe {
  const steps = lines.map((command): RecipeStep => ({ kind: "run", command }));
  return { version: 1, base: { kind: "image", name: NAME }, steps, stages: [], start: null };
}

async function build(images: Images, lines: readonly string[], options: { readonly forced?: boolean } = {}) {
  const recipe = recipeOf(lines);
  const start = performance.now();
  const started = await images.builder.start({
    recipe,
    owner: null,
    builder: BUILDER,
    ...(options.forced === true ? { forceFrom: 0 } : {}),
  });
  const image = await started.image;
  return { ms: performance.now() - start, image, info: started.info() };
}

interface Buildah {
  run(lines: readonly string[], options: { readonly cached: boolean }): Promise<void>;
}

/** With storage of its own and no kernel features that may be missing here; `--layers` keeps one for each step, as we do. */
async function findBuildah(bench: Bench, images: Images, tiny: ImageRecord): Promise<Buildah | string> {
  if (findProgram("buildah") === undefined) return "not installed";
  const directory = join(bench.scratchDirectory, "buildah");
  mkdirSync(join(directory, "context"), { recursive: true });
  const storage = ["--root", join(directory, "root"), "--runroot", join(directory, "run"), "--storage-driver", "vfs"];
  const archive = join(directory, "tiny.tar");
  const names = [{ owner: null, name: NAME, tag: "latest" }];
  await exportImage(images.context, tiny, { format: "docker", to: { path: archive }, names });
  const pulled = await capture(["buildah", ...storage, "pull", "-q", `docker-archive:${archive}`]);
  if (pulled.code !== 0) return `does not work here: ${pulled.stderr.trim().split("\n").at(-1)?.slice(0, 60)}`;
  bench.onEnd(async () => {
    await capture(["buildah", ...storage, "rmi", "--all", "--force"]);
  });
  const dockerfile = join(directory, "Dockerfile");
  const base = pulled.stdout.trim();
  const run: Buildah["run"] = async (lines, { cached }) => {
    writeFileSync(dockerfile, [`FROM ${base}`, ...lines.map((line) => `RUN ${line}`), ""].join("\n"));
    const how = ["--isolation", "chroot", "--layers", ...(cached ? [] : ["--no-cache"])];
    await spawnAndWait(["buildah", ...storage, "build", "-q", ...how, "-f", dockerfile, join(directory, "context")]);
  };
  try {
    await run(commands(1, "first"), { cached: false });
  } catch (error) {
    return `does not work here: ${(error as Error).message.slice(0, 60)}`;
  }
  return { run };
}

export const imageBuild: Figure = {
  name: "image-build",
  title: `A build of ${STEPS} steps that do nothing but write a few bytes each`,
  async run(bench): Promise<Row[]> {
    const { quick, signal } = bench;
    const images = await sharedImages(bench);
    const tiny = await addTinyImage(images, NAME);
    const buildah = await findBuildah(bench, images, tiny);
    const turns = { rounds: quick ? 1 : 3, turns: quick ? 2 : 5, roundMs: 30_000, signal };
    const peerOf = (measure: (given: Buildah) => Promise<number>): Peer =>
      typeof buildah === "string"
        ? { name: "buildah", absent: buildah }
        : { name: "buildah", measure: () => measure(buildah) };

    const whole: number[] = [];
    const steps: number[] = [];
    const measureWhole = async (): Promise<number> => {
      const { ms, info } = await build(images, commands(STEPS, "last"), { forced: true });
      if (info.cached) throw new Error("the build ran nothing");
      whole.push(ms);
      for (const { step, startedAt, endedAt } of info.steps) {
        if (/^\d+$/.test(step)) steps.push(Date.parse(endedAt ?? "") - Date.parse(startedAt ?? ""));
      }
      return ms;
    };
    const rows = await compareInTurns(
      "nothing cached",
      { name: "ours", measure: measureWhole },
      [peerOf((given) => timed(() => given.run(commands(STEPS, "last"), { cached: false })))],
      turns,
    );
    rows.push(createRow("  of it: a step", "ms", [steps.slice(STEPS)]));
    rows.push(createRow("  of it: all but the steps (starting it once, records)", "ms", [remainders(whole, steps)]));

    let edit = 0;
    rows.push(
      ...(await compareInTurns(
        "the last step edited",
        { name: "ours", measure: async () => (await build(images, commands(STEPS, `edit-${edit++}`))).ms },
        [peerOf((given) => timed(() => given.run(commands(STEPS, `edit-${edit++}`), { cached: true })))],
        turns,
      )),
      ...(await compareInTurns(
        "everything cached",
        { name: "ours", measure: async () => (await build(images, commands(STEPS, "last"))).ms },
        [peerOf((given) => timed(() => given.run(commands(STEPS, "last"), { cached: true })))],
        turns,
      )),
    );
    return rows;
  },
};

/** Of each build but the first, which fills caches. */
function remainders(whole: readonly number[], steps: readonly number[]): number[] {
  return whole.slice(1).map((ms, index) => {
    const own = steps.slice((index + 1) * STEPS, (index + 2) * STEPS);
    return ms - own.reduce((sum, step) => sum + step, 0);
  });
}
