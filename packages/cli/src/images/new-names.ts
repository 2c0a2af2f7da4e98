/** Names that images are to get: two mean something already. */
import { HoldfastError } from "@holdfast/protocol";
import { note } from "../text/notes.js";

/** Before anything is done: `run --image host` means the programs of the host, and an image of that name could not be run. */
export function checkNewNames(names: readonly string[], field: string): void {
  const taken = names.find((name) => /^host(:|$)/.test(name));
  if (taken === undefined) return;
  throw new HoldfastError(
    "invalid_argument",
    `${field}: no image can be called ${taken}: \`host\` means the programs of this host itself`,
    { hint: "Choose another name.", details: { field } },
  );
}

/** When it is done. */
export function noteBase(names: readonly string[]): void {
  if (!names.some((name) => name === "base" || name === "base:latest")) return;
  note(
    "from now on `FROM base` and Image.base() mean this image; `holdfast image untag base` brings Holdfast's own back",
  );
}
