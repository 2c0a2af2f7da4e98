import { createRandomId, invalidArgument } from "@holdfast/protocol";
import type { BuildId, ImageId } from "../types.js";

const IMAGE_ID = /^img[a-z0-9]{20}$/;
const BUILD_ID = /^b[a-z0-9]{20}$/;

export function createImageId(): ImageId {
  return createRandomId("img") as ImageId;
}

export function createBuildId(): BuildId {
  return createRandomId("b") as BuildId;
}

export function isImageId(text: unknown): text is ImageId {
  return typeof text === "string" && IMAGE_ID.test(text);
}

export function isBuildId(text: unknown): text is BuildId {
  return typeof text === "string" && BUILD_ID.test(text);
}

export function parseImageId(text: unknown, field = "image id"): ImageId {
  if (!isImageId(text)) throw invalidArgument(field, text, "`img` and 20 lower-case letters and digits");
  return text;
}

export function parseBuildId(text: unknown, field = "build id"): BuildId {
  if (!isBuildId(text)) throw invalidArgument(field, text, "`b` and 20 lower-case letters and digits");
  return text;
}
