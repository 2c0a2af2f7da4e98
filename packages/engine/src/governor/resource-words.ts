/** How amounts are spoken of. */
import { formatBytes } from "@holdfast/protocol";
import type { Resource } from "./amounts.js";
import type { Waiting } from "./types.js";

export const RESOURCE_WORDS: Readonly<
  Record<Resource, { readonly word: string; readonly show: (amount: number) => string }>
> = {
  memoryBytes: { word: "memory", show: formatBytes },
  pids: { word: "processes", show: String },
  diskBytes: { word: "disk", show: formatBytes },
};

/** "4 GiB of memory", "72 processes" */
export function describeAmount(resource: Resource, amount: number): string {
  const { word, show } = RESOURCE_WORDS[resource];
  return resource === "pids" ? `${show(amount)} ${word}` : `${show(amount)} of ${word}`;
}

/** "waits for memory on the host, at place 2: 4 GiB needed, 1.2 GiB free" */
export function describeWaiting({ position, resource, needed, free }: Waiting): string {
  const { word, show } = RESOURCE_WORDS[resource];
  return `waits for ${word} on the host, at place ${position}: ${show(needed)} needed, ${show(free)} free`;
}
