/** A root file system directory as an image: one read-only layer, plus a small one of ours above it. */
import { existsSync, lstatSync, realpathSync, statSync } from "node:fs";
import { isAbsolute, join } from "node:path";
import { HoldfastError, invalidArgument } from "@holdfast/protocol";
import { prepareAbove } from "./above.js";
import type { PreparedImage } from "./image.js";

export function prepareRootfsImage(path: string, skeleton: string): PreparedImage {
  if (!isAbsolute(path)) throw invalidArgument("image", path, "an absolute path of a root file system directory");
  if (!existsSync(path) || !statSync(path).isDirectory()) {
    throw new HoldfastError("image_not_found", `no directory at ${path}`, {
      hint: "An image is `host` or a root file system directory.",
    });
  }
  // Its own layers lie below /: an overlay of itself is no image, and all of the host is nothing to show.
  if (realpathSync(path) === "/") {
    throw invalidArgument("image", path, "`host` for this machine's programs, or a directory other than /");
  }
  // Everything needs at least a place for programs; an empty directory is more likely a mistake than an image.
  if (!["bin", "usr"].some((name) => existsSync(join(path, name)) || isLink(join(path, name)))) {
    throw new HoldfastError("image_not_found", `${path} holds neither bin nor usr, so it is not a root file system`);
  }
  return { layers: [prepareAbove(skeleton, [path]), path], mounts: [] };
}

function isLink(path: string): boolean {
  try {
    return lstatSync(path).isSymbolicLink();
  } catch {
    return false;
  }
}
