/** A sandbox of an image beside one of the host's own files. */
import { type ImageRecord, type Images, planSandbox } from "@holdfast/images";
import { type Bench, compareInTurns, type Figure, type Peer, type Row } from "./harness.js";
import { addTinyImage, sharedImages } from "./tiny-image.js";

const GOAL = { host: { kind: "ratio", atMost: 2 } } as const;
const LAYER_COUNTS = [1, 5, 20];

/** Only the create: what ends it is the same whatever it stands on. */
async function create(bench: Bench, image?: ImageRecord): Promise<number> {
  const spec = image === undefined ? {} : planSandbox(image).spec;
  const start = performance.now();
  const sandbox = await bench.engine.create(spec);
  const spent = performance.now() - start;
  await sandbox.kill("the benchmark");
  return spent;
}

/** Debian as sandboxes are meant to have it, if this run may take the time and reaches a mirror. */
async function findBase(bench: Bench, images: Images): Promise<ImageRecord | undefined> {
  if (process.env.HOLDFAST_BENCH_BASE === undefined) return undefined;
  bench.say("building the base ... ");
  const { signal } = bench;
  return images.bases.resolve({ kind: "base" }, { owner: null, onLine: () => {}, signal });
}

export const imageCreate: Figure = {
  name: "image-create",
  title: "A sandbox of an image: create alone, beside a create from the host's own files",
  async run(bench): Promise<Row[]> {
    const { quick, signal } = bench;
    const images = await sharedImages(bench);
    const host: Peer = { name: "host", measure: () => create(bench) };
    const turns = { rounds: quick ? 1 : 3, turns: quick ? 5 : 30, roundMs: quick ? 2000 : 4000, signal, goals: GOAL };
    const rows: Row[] = [];
    const take = async (what: string, image: ImageRecord): Promise<void> => {
      const ours = { name: "ours", measure: () => create(bench, image) };
      rows.push(...(await compareInTurns(what, ours, [host], turns)));
    };
    for (const count of LAYER_COUNTS) {
      const image = await addTinyImage(images, `bench-${count}`, count);
      await take(`an image of ${count} layer${count === 1 ? "" : "s"}, one after the other`, image);
      if (count !== 1) continue;
      const ours = { name: "ours", measure: () => create(bench, image) };
      const quiet = { ...turns, turns: quick ? 3 : 12, pauseMs: 100 };
      rows.push(...(await compareInTurns("  … each after 100 ms of quiet", ours, [host], quiet)));
    }
    const base = await findBase(bench, images);
    if (base !== undefined) await take("the base image, one after the other", base);
    return rows;
  },
};
