/** An image of layers: each is a read-only directory, and one of ours lies above them. */
import type { LayerId } from "../layers.js";
import { prepareAbove } from "./above.js";
import type { PreparedImage } from "./image.js";

export function prepareLayersImage(
  layers: readonly LayerId[],
  options: { readonly skeleton: string; readonly pathOf: (id: LayerId) => string },
): PreparedImage {
  // An overlay takes no directory twice. Nothing of a lower one would show that the upper one of the same does not show.
  const paths = [...new Set(layers)].map((id) => options.pathOf(id));
  return { layers: [prepareAbove(options.skeleton, paths), ...paths], mounts: [] };
}
