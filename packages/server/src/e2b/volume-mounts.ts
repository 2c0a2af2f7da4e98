/** The volumes that a new sandbox is to have: `volumeMounts` of a create. */
import { posix } from "node:path";
import { HoldfastError } from "@holdfast/protocol";
import { z } from "zod";
import type { Caller } from "../sandboxes/types.js";
import type { VolumeMount } from "../store/store.js";
import type { Volumes } from "../volumes/volumes.js";

const MOST_MOUNTS = 16;
const LONGEST_PATH_BYTES = 1024;
const LONGEST_NAME_BYTES = 255;
/** Below these a mount would hide what the sandbox itself stands on. */
const TAKEN = /^\/(?:proc|dev|sys)(?:\/|$)|^\/$/;

function isPlace(path: string): boolean {
  return (
    path.startsWith("/") &&
    path === posix.normalize(path) &&
    (path === "/" || !path.endsWith("/")) &&
    !path.includes("\0") &&
    !/\p{Surrogate}/u.test(path) &&
    Buffer.byteLength(path) <= LONGEST_PATH_BYTES &&
    path.split("/").every((name) => Buffer.byteLength(name) <= LONGEST_NAME_BYTES)
  );
}

const mountSchema = z.strictObject({
  name: z.string({ error: "the name of a volume" }).min(1, { error: "the name of a volume" }),
  path: z
    .string({ error: "an absolute path" })
    .refine(isPlace, {
      error: `an absolute path of at most ${LONGEST_PATH_BYTES} bytes without //, . and .., and without / at its end`,
    })
    .refine((path) => !TAKEN.test(path), {
      error: "a place other than /, /proc, /dev and /sys",
    }),
});

/** One volume in another would have its place among files that sandboxes write, where a link could lead anywhere. */
function isIn(inner: string, outer: string): boolean {
  return inner === outer || inner.startsWith(`${outer}/`);
}

export const volumeMountsSchema = z
  .array(mountSchema, { error: "a list of volumes, each with name and path" })
  .max(MOST_MOUNTS, { error: `at most ${MOST_MOUNTS} volumes` })
  .superRefine((mounts, context) => {
    mounts.forEach(({ path }, index) => {
      const other = mounts.find((mount, at) => at !== index && isIn(path, mount.path));
      if (other === undefined) return;
      const message = `a path that is not, and is not below, another one of the list (${JSON.stringify(other.path)})`;
      context.addIssue({ code: "custom", path: [index, "path"], message });
    });
  });

export async function resolveVolumeMounts(
  volumes: Pick<Volumes, "find">,
  caller: Caller,
  mounts: z.output<typeof volumeMountsSchema>,
): Promise<VolumeMount[]> {
  return Promise.all(
    mounts.map(async ({ name, path }, index) => {
      try {
        const volume = await volumes.find(caller, name);
        return { volumeId: volume.id, name: volume.name, path };
      } catch (error) {
        const { code, message } = HoldfastError.from(error);
        if (code !== "volume_not_found") throw error;
        const field = `volumeMounts[${index}].name`;
        throw new HoldfastError(code, `${field}: ${message}`, {
          hint: "Make it first, with the key that the sandbox is made with.",
          details: { field },
        });
      }
    }),
  );
}
