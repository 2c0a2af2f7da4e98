/**
 * Build big, run small: whatever the builder had, the image has everything in it and runs with what is asked for, from its
 * floor on. `npm run matrix` goes through all of it; without it, through a selection.
 */
import { spawnSync } from "node:child_process";
import { readFileSync } from "node:fs";
import { GUEST_SHARE, type Sandbox } from "@holdfast/engine";
import { type ImageRecord, planSandbox } from "@holdfast/images";
import { HoldfastError } from "@holdfast/protocol";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { assertNoLeaks, takeInventory } from "../helpers/leaks.js";
import { type LocalIndexes, startLocalIndexes } from "../helpers/local-indexes.js";
import { IN_VM, patienceMs } from "../helpers/scale.js";
import { shell } from "../helpers/use-engine.js";
import { useBase } from "./base-helper.js";
import { allCells, type Cell, coveringCells, pairsOf, type RunMb } from "./matrix-cells.js";
import { hold, type KindOfImage, makeKind, run, said } from "./matrix-kinds.js";

const MIB = 1024 * 1024;
const IS_FULL = process.env.HOLDFAST_MATRIX === "full";
const CELLS = IS_FULL ? allCells() : IN_VM ? coveringCells().filter((_, index) => index % 8 === 0) : coveringCells();
/** What others on this machine may want meanwhile. */
const SPARED_BYTES = 1024 * MIB;
const CELL_MS = patienceMs(IS_FULL ? 300_000 : 60_000);
/** More takes a second for each GiB and proves nothing else; the whole matrix has it too. */
const MOST_HELD_MB = IS_FULL ? Number.POSITIVE_INFINITY : 1024;

describe("the selection of the matrix", () => {
  it("has every value of each dimension with every value of the others", () => {
    expect([...pairsOf(coveringCells())].sort()).toEqual([...pairsOf(allCells())].sort());
  });
});

describe("an image", () => {
  let indexes: LocalIndexes;
  beforeAll(async () => {
    indexes = await startLocalIndexes();
  });
  afterAll(() => indexes.close());
  const use = useBase(() => ({ builds: { network: { deny: ["0.0.0.0/0"], allow: [indexes.allow] } } }));

  it.for(CELLS.map((cell) => [cell.name, cell] as const))("%s", { timeout: CELL_MS }, async ([, cell]) => {
    const before = takeInventory();
    const kind = await makeKind(cell.kind, {
      indexes,
      blobs: use.images.store.blobs,
      heldMb: await heldMb(builtWith(cell)),
      cell: cell.name,
    });
    const image = await build(cell, kind);
    await assertNoLeaks(before);
    if (image === undefined) return;
    for (const runMb of cell.runsMb) await runWith(image, { cell, kind, runMb });
  });

  /** What can be held of so much memory, with programs around it and whatever else this machine does. */
  async function heldMb(mb: number): Promise<number> {
    const { memoryAvailableBytes } = await use.engine.capacity();
    const spareMb = Math.floor((memoryAvailableBytes - SPARED_BYTES) / MIB);
    return Math.max(16, Math.min(Math.floor(mb * 0.6), spareMb, MOST_HELD_MB));
  }

  async function canFill(mb: number): Promise<boolean> {
    const { memoryAvailableBytes } = await use.engine.capacity();
    return mb <= MOST_HELD_MB && memoryAvailableBytes - SPARED_BYTES > mb * MIB;
  }

  /** Whether so much is ever to be had on this host. */
  async function isHad(mb: number): Promise<boolean> {
    const { capacity } = await use.engine.budget({ reservations: false });
    return mb * MIB + GUEST_SHARE.memoryBytes <= capacity.memoryBytes;
  }

  const builderOf = ({ builderMb, floorMb }: Cell) => ({
    ...(builderMb === undefined ? {} : { memoryMb: builderMb }),
    runtimeMemoryMb: floorMb,
    diskMb: 1024,
  });

  /** Undefined where the host is too small for the builder, and says so. */
  async function build(cell: Cell, kind: KindOfImage): Promise<ImageRecord | undefined> {
    const label = { kind: "label", labels: { cell: cell.name } } as const;
    const order = { builder: builderOf(cell), ...(kind.more === undefined ? {} : { more: kind.more }) };
    if (!(await isHad(cell.builderMb ?? 0))) {
      await expect(use.start([label, ...kind.steps], order)).rejects.toMatchObject({
        code: "invalid_argument",
        message: expect.stringMatching(
          /^builder\.memoryMb: \d+ MiB were asked for, and this host has \d+ MiB of memory to give$/,
        ),
      });
      return undefined;
    }
    const building = await use.start([label, ...kind.steps], order);
    const image = await building.image.catch(async (reason: unknown) => {
      const lines: string[] = [];
      for await (const { step, text } of building.log()) lines.push(`${step} ${text}`);
      throw new Error(`${HoldfastError.from(reason).message}\n${lines.slice(-30).join("\n")}`);
    });
    expect(building.info().steps.filter(({ state }) => state === "cached")).toEqual([]);
    expect(image.floor?.memoryBytes).toBe(cell.floorMb * MIB);
    if (cell.kind === "multi") {
      expect(image.floor?.readyMs).toBeGreaterThan(0);
      expect(image.floor?.startPeakBytes).toBeLessThan(cell.floorMb * MIB);
    }
    if (cell.kind === "big") await expectLimit(cell);
    return image;
  }

  const builtWith = ({ builderMb }: Cell): number => builderMb ?? 4096;

  /** A step that needs more than the builder has ends for that reason. */
  async function expectLimit(cell: Cell): Promise<void> {
    const limitMb = builtWith(cell);
    if (!(await canFill(limitMb))) return;
    const tooMuch = await use.start([run(`: ${cell.name}; ${hold(limitMb + 16)}`)], { builder: builderOf(cell) });
    const error = await tooMuch.image.then(
      () => undefined,
      (reason: unknown) => HoldfastError.from(reason),
    );
    expect(error).toMatchObject({
      code: "build_failed",
      details: {
        step: "1",
        cause: { kind: "out_of_memory" },
        limitBytes: limitMb * MIB,
        suggestedMemoryMb: expect.any(Number),
      },
    });
    expect(error?.details.peakBytes).toBeGreaterThan(0.9 * limitMb * MIB);
  }

  async function runWith(
    image: ImageRecord,
    { cell, kind, runMb }: { readonly cell: Cell; readonly kind: KindOfImage; readonly runMb: RunMb },
  ): Promise<void> {
    const askedMb = runMb === "less" ? cell.floorMb / 2 : runMb === "floor" ? cell.floorMb : runMb;
    const effectiveMb = Math.max(askedMb, cell.floorMb);
    const { spec, memory } = planSandbox(image, { limits: { memoryBytes: askedMb * MIB } });
    expect(memory).toEqual({
      requestedBytes: askedMb * MIB,
      effectiveBytes: effectiveMb * MIB,
      floorBytes: cell.floorMb * MIB,
      reason: runMb === "less" ? expect.stringMatching(/^the image was made to start in .* and in no less$/) : null,
    });
    const create = () => use.engine.create({ ...spec, whenOwnerDies: "end" }, { admission: { waitMs: CELL_MS } });
    if (!(await isHad(effectiveMb))) {
      await expect(create()).rejects.toMatchObject({
        code: "invalid_argument",
        message: expect.stringMatching(/^limits\.memoryBytes: .* can never be had here: this host has .* to give/),
      });
      return;
    }
    const sandbox = await create();
    try {
      expect(await said(sandbox, "awk '/^MemTotal:/ { print $2 / 1024 }' /proc/meminfo")).toBe(`${effectiveMb}\n`);
      expect(limitOnHost(sandbox)).toBe(effectiveMb * MIB);
      expect((await sandbox.stats()).memoryLimitBytes).toBe(effectiveMb * MIB);
      await kind.check(sandbox);
      if (cell.kind === "big") await expectMemory(sandbox, effectiveMb);
    } finally {
      await sandbox.kill("the test");
    }
  }

  /** What it may have it can hold, and not more. */
  async function expectMemory(sandbox: Sandbox, limitMb: number): Promise<void> {
    const held = await heldMb(limitMb);
    expect(await said(sandbox, hold(held))).toBe(`${held}\n`);
    if (!(await canFill(limitMb))) return;
    const { cause } = await shell(sandbox, `exec ${hold(limitMb + 16)}`);
    expect(cause).toMatchObject({ kind: "out_of_memory", scope: "sandbox", limitBytes: limitMb * MIB });
  }
});

/** As the kernel has it, where commands run. */
function limitOnHost({ id }: Sandbox): number {
  const at = (name: string) => ["-path", `*/holdfast/${id}/cmd/${name}`];
  // It fails if a cgroup of somebody else goes while it looks.
  const { stdout } = spawnSync("find", ["/sys/fs/cgroup", ...at("memory.max"), "-o", ...at("memory.limit_in_bytes")]);
  return Number(readFileSync(stdout.toString().trim(), "utf8"));
}
