/** The table of `holdfast image ls`: a line for each name, and one for an image without. */
import { type ImageInfo, printable } from "@holdfast/protocol";
import type { Colours } from "../text/colours.js";
import { shortSize } from "../text/sizes.js";
import { formatTable } from "../text/table.js";
import { shortDuration } from "../text/times.js";

const HEAD = ["ID", "KIND", "SIZE", "UNIQUE", "FLOOR", "AGE", "NAME"];

export function imageTable(
  images: readonly ImageInfo[],
  { colours, now, width }: { readonly colours: Colours; readonly now: number; readonly width: number | undefined },
): string {
  const rows = images.flatMap((image) =>
    (image.names.length === 0 ? [colours.dim("-")] : image.names.map(printable)).map((name) => [
      image.id,
      image.kind,
      shortSize(image.sizeBytes),
      image.uniqueBytes === null ? "?" : shortSize(image.uniqueBytes),
      image.floor === null ? "-" : shortSize(image.floor.memoryBytes),
      shortDuration(now - Date.parse(image.createdAt)),
      name,
    ]),
  );
  return formatTable([HEAD.map(colours.bold), ...rows], width === undefined ? {} : { width });
}
