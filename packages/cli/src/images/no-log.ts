import { HoldfastError } from "@holdfast/protocol";

export function noLog(image: string, buildId: string | null): HoldfastError {
  return new HoldfastError(
    "build_not_found",
    buildId === null ? `image ${image} was not built, so it has no log` : `the log of image ${image} is gone`,
    { hint: "`holdfast image inspect` says where an image is from." },
  );
}
