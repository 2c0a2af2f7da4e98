/** The table of `holdfast image ls`: a line for each name, and one for an image without. */
import { type ImageInfo, printable } from "@holdfast/protocol";
import type { Colours } from "../text/colours.js";
import { shortSize } from "../text/sizes.js";
import { formatTable } from "../text/table.js";
import { shortDuration } from "../text/times.js";

const HEAD = ["ID", "KIND", "SIZE", "UNIQUE", "FLOOR", "AGE"];

export function imageTable(
  images: readonly ImageInfo[],
  { colours, now, width }: { readonly colours: Colours; readonly now: number; readonly width: number | undefined },
): string {
  // Only the operator is told whose an image is, and only where keys have some does it matter.
  const hasOwners = images.some(({ owner }) => typeof owner === "string");
  const rows = images.flatMap((image) =>
    (image.names.length === 0 ? [colours.dim("-")] : image.names.map(printable)).map((name) => [
      image.id,
      image.kind,
      shortSize(image.sizeBytes),
      image.uniqueBytes === null ? "?" : shortSize(image.uniqueBytes),
      image.floor === null ? "-" : shortSize(image.floor.memoryBytes),
      shortDuration(now - Date.parse(image.createdAt)),
      ...(hasOwners ? [image.owner ?? "-"] : []),
      name,
    ]),
  );
  const head = [...HEAD, ...(hasOwners ? ["OWNER"] : []), "NAME"];
  return formatTable([head.map(colours.bold), ...rows], width === undefined ? {} : { width });
}
