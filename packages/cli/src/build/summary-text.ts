/** What a build came to, and what to do with it. */
import { type BuildStepInfo, formatBytes, formatDuration, type ImageInfo } from "@holdfast/protocol";
import type { Colours } from "../text/colours.js";
import { howToCallUs } from "../text/how-to-call-us.js";
import { formatTable } from "../text/table.js";

export function summaryText(
  image: ImageInfo,
  options: {
    readonly names: readonly string[];
    readonly steps: readonly BuildStepInfo[];
    readonly cached: boolean;
    readonly tookMs: number;
    /** Whether the image is of this machine, where `run` finds it. */
    readonly isLocal: boolean;
    readonly colours: Colours;
  },
): string {
  const { names, steps, colours, isLocal } = options;
  const numbered = steps.filter(({ step }) => /^\d+$/.test(step));
  const cached = numbered.filter(({ state }) => state === "cached").length;
  const { floor } = image;
  const rows = [
    ["image", [image.id, ...names].join("  ")],
    ["digest", image.digest],
    ["size", sizeOf(image)],
    ["runs with", floor === null ? "no least memory" : `at least ${formatBytes(floor.memoryBytes)} of memory`],
    ...startRow(floor),
    [
      "took",
      options.cached
        ? `${formatDuration(options.tookMs)}, everything was there`
        : `${formatDuration(options.tookMs)}, ${cached} of ${numbered.length} steps from the cache`,
    ],
    [
      "run it",
      `${howToCallUs()} ${isLocal ? "run" : "create"} --image ${names[0] ?? image.id}${commandFor(image, isLocal)}`,
    ],
  ];
  return formatTable(rows.map(([name = "", text = ""]) => [colours.bold(name), text]));
}

function sizeOf({ sizeBytes, layers }: ImageInfo): string {
  return `${formatBytes(sizeBytes)} in ${layers === 1 ? "1 layer" : `${layers} layers`}`;
}

function startRow(floor: ImageInfo["floor"]): string[][] {
  if (floor === null || floor.startPeakBytes === null) return [];
  const after = floor.readyMs === null ? "" : `, ready after ${formatDuration(floor.readyMs)}`;
  return [["its start", `needed ${formatBytes(floor.startPeakBytes)}${after}`]];
}

function commandFor({ config }: ImageInfo, isLocal: boolean): string {
  const saysWhat = config.start !== null || config.entrypoint !== null || config.cmd !== null;
  return isLocal && !saysWhat ? " -- COMMAND" : "";
}
