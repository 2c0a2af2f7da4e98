/** What the routes of images take. */
import { z } from "zod";
import { digits, flag, name, repeated, text, timeoutMs, whole } from "./schemas.js";

const MOST_NAMES = 32;
const MOST_DIGESTS = 10_000;
const MOST_FORKS = 100;
const MOST_REGISTRIES = 32;
const YEAR_MS = 366 * 24 * 3600 * 1000;

const digest = text.regex(/^sha256:[0-9a-f]{64}$/, "sha256: and 64 lower-case hex digits");
const compression = z.enum(["none", "gzip", "zstd"], { error: "none, gzip or zstd" });
/** Always the caller's own: what this host's operator has stored for registries is not for everybody. */
const auth = z
  .strictObject({ username: text.max(1024), password: text.max(65_536) })
  .transform((given) => ({ kind: "password" as const, ...given }));
const names = z.array(name).max(MOST_NAMES, `at most ${MOST_NAMES} names`);

export const imageParams = {
  image: z.object({ image: text }),
  build: z.object({ build: text }),
  digest: z.object({ digest }),
};

export const imageBodies = {
  missing: z.strictObject({ digests: z.array(digest).max(MOST_DIGESTS, `at most ${MOST_DIGESTS} digests`) }),
  build: z.strictObject({
    // What is in them is checked where they are understood.
    recipe: z.unknown().refine((value) => value !== undefined, "a recipe"),
    builder: z.unknown().optional(),
    names: names.default([]),
    forceFrom: whole(0, 1000).optional(),
    registryAuths: z
      .record(text.max(300), auth)
      .refine((given) => Object.keys(given).length <= MOST_REGISTRIES, `at most ${MOST_REGISTRIES} registries`)
      .default({}),
  }),
  name: z.strictObject({ name }),
  prune: z.strictObject({ all: z.boolean().optional(), unusedForMs: whole(0, YEAR_MS).optional() }),
  pull: z.strictObject({
    reference: name,
    names: names.default([]),
    auth: auth.optional(),
    plainHttp: z.boolean().optional(),
    platform: name.optional(),
  }),
  push: z.strictObject({
    reference: name,
    auth: auth.optional(),
    plainHttp: z.boolean().optional(),
    compression: compression.optional(),
  }),
  snapshot: z.strictObject({ name: name.optional() }),
  fork: z.strictObject({ count: whole(1, MOST_FORKS).default(1), timeoutMs: timeoutMs.optional() }),
};

export const imageQueries = {
  none: z.strictObject({}),
  log: z.strictObject({ from: digits(0, Number.MAX_SAFE_INTEGER).default(0), follow: flag.default(true) }),
  name: z.strictObject({ name }),
  import: z.strictObject({
    name: repeated(name),
    reference: name.optional(),
    platform: name.optional(),
  }),
  export: z.strictObject({
    format: z.enum(["oci", "docker"], { error: "oci or docker" }).default("oci"),
    compression: compression.optional(),
  }),
};
