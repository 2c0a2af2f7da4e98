/**
 * The cells of the matrix: what the builder gets, what the image has to start in, what it is run with, and what it is made
 * of. All of them, or a selection in which every value of each meets every value of the others at least once.
 */
export const BUILDERS_MB = [1024, 2048, 4096, 8192, undefined] as const;
export const FLOORS_MB = [256, 512, 1024] as const;
/** `floor`: as little as it may have. `less`: more than that, by asking for less. */
export const RUNS_MB = ["less", "floor", 1024, 2048, 4096, 8192] as const;
export const KINDS = ["run", "apt", "npm", "pip", "env", "file", "multi", "big"] as const;

export type Kind = (typeof KINDS)[number];
export type RunMb = (typeof RUNS_MB)[number];

/** One build, and the sizes that its image is run with. */
export interface Cell {
  readonly name: string;
  readonly kind: Kind;
  readonly builderMb: number | undefined;
  readonly floorMb: number;
  readonly runsMb: readonly RunMb[];
}

function cell(kind: Kind, builderMb: number | undefined, floorMb: number, runsMb: readonly RunMb[]): Cell {
  const name = `${kind}, built with ${builderMb ?? "the default of"} MiB, floor ${floorMb} MiB`;
  return { name, kind, builderMb, floorMb, runsMb };
}

export function allCells(): Cell[] {
  return KINDS.flatMap((kind) =>
    BUILDERS_MB.flatMap((builderMb) => FLOORS_MB.map((floorMb) => cell(kind, builderMb, floorMb, RUNS_MB))),
  );
}

/** Every kind with every builder; floors and sizes go round, each at its own pace. */
export function coveringCells(): Cell[] {
  return KINDS.flatMap((kind, row) =>
    BUILDERS_MB.map((builderMb, column) => {
      const floorMb = FLOORS_MB[(row + column) % FLOORS_MB.length] ?? FLOORS_MB[0];
      const first = (row + 2 * column) % RUNS_MB.length;
      const runs = [first, (first + 3) % RUNS_MB.length].map((index) => RUNS_MB[index] ?? "floor");
      return cell(kind, builderMb, floorMb, runs);
    }),
  );
}

/** Each pair of values of two different dimensions, as text. */
export function pairsOf(cells: readonly Cell[]): Set<string> {
  const pairs = new Set<string>();
  for (const { kind, builderMb, floorMb, runsMb } of cells) {
    for (const run of runsMb) {
      const values = [`kind ${kind}`, `builder ${builderMb}`, `floor ${floorMb}`, `run ${run}`];
      for (const one of values) for (const other of values) if (one < other) pairs.add(`${one}, ${other}`);
    }
  }
  return pairs;
}
