/** What our own API takes. Every object is strict: a field that we do not know is refused by name, never dropped. */
import { MAX_TIMEOUT_MS } from "@holdfast/protocol";
import { z } from "zod";
import { boundTexts, MAX_ENVIRONMENT_BYTES, MAX_METADATA_BYTES } from "../http/text-record.js";

const MAX_WAIT_MS = 86_400_000;
const MAX_GRACE_MS = 600_000;
const MAX_TERMINAL_SIZE = 65_535;
const MAX_PAGE = 100;
const MAX_EVENTS = 1000;
const MAX_DEPTH = 1000;

/** Goes to the kernel or to the guest as UTF-8 that ends at a NUL. */
export const text = z
  .string()
  .refine((value) => !value.includes("\0") && !/\p{Surrogate}/u.test(value), "valid Unicode text without NUL");
export const name = text.min(1, "a text that is not empty").max(256, "a text of at most 256 characters");
const path = text.min(1, "a path, not empty and without NUL").max(8192, "a path of at most 8192 characters");
export const whole = (min: number, max: number) => {
  const expected = `a whole number from ${min} to ${max}`;
  return z.number({ error: expected }).int(expected).min(min, expected).max(max, expected);
};
export const timeoutMs = whole(1, MAX_TIMEOUT_MS);
/** Their ranges are the limits' own business, which names them too. */
const amount = z.number().int("a whole number");
const mode = whole(0, 0o7777);

const environment = z.record(z.string(), text).superRefine((env, context) => {
  boundTexts(MAX_ENVIRONMENT_BYTES)(env, context);
  for (const key of Object.keys(env)) {
    if (!/^[^=\0]+$/.test(key)) {
      context.addIssue({ code: "custom", path: [key], message: "a name without '=' and NUL" });
    }
  }
});

/** Query values are texts. */
export const digits = (min: number, max: number) => {
  const expected = `a whole number from ${min} to ${max}`;
  return z
    .string({ error: expected })
    .regex(/^\d{1,16}$/, expected)
    .transform(Number)
    .refine((value) => value >= min && value <= max, expected);
};
const offset = digits(0, Number.MAX_SAFE_INTEGER);
export const flag = z
  .enum(["0", "1", "true", "false"], { error: "0, 1, true or false" })
  .transform((value) => value === "1" || value === "true");
const octal = z
  .string()
  .regex(/^0?[0-7]{1,4}$/, "an octal mode such as 0644")
  .transform((value) => Number.parseInt(value, 8));
export const repeated = <Item extends z.ZodType>(item: Item) =>
  z.preprocess((value) => (value === undefined || Array.isArray(value) ? value : [value]), z.array(item).optional());

export const params = {
  /** Whether it is an id is checked where it is looked up. */
  sandbox: z.object({ id: z.string() }),
  command: z.object({ id: z.string(), command: digits(1, Number.MAX_SAFE_INTEGER) }),
};

export const bodies = {
  create: z
    .strictObject({
      template: name.optional(),
      image: name.optional(),
      strict: z.boolean().optional(),
      limits: z
        .strictObject({
          memoryBytes: amount.optional(),
          memoryMaxBytes: amount.optional(),
          pids: amount.optional(),
          cpuMillis: amount.optional(),
          diskBytes: amount.optional(),
          outputBytes: amount.optional(),
        })
        .default({}),
      env: environment.default({}),
      metadata: z.record(z.string(), text).superRefine(boundTexts(MAX_METADATA_BYTES)).default({}),
      timeoutMs: timeoutMs.default(300_000),
      onTimeout: z.enum(["kill", "pause", "stop"], { error: "kill, pause or stop" }).default("kill"),
      autoResume: z.boolean().default(false),
      waitMs: whole(0, MAX_WAIT_MS).optional(),
    })
    .refine(({ template, image }) => template === undefined || image === undefined, {
      path: ["image"],
      error: "nothing beside a template: a sandbox is made of the one or of the other",
    }),
  timeout: z.strictObject({ timeoutMs }),
  pause: z.strictObject({ memory: z.boolean().default(true) }),
  resume: z.strictObject({ timeoutMs: timeoutMs.optional(), memory: z.boolean().optional() }),
  limits: z
    .strictObject({
      memoryBytes: amount.optional(),
      memoryMaxBytes: amount.optional(),
      cpuMillis: amount.optional(),
      pids: amount.optional(),
    })
    .refine((limits) => Object.keys(limits).length > 0, "at least one of memoryBytes, memoryMaxBytes, cpuMillis, pids"),
  command: z.strictObject({
    argv: z.array(text).min(1, "a program and its arguments"),
    env: environment.optional(),
    cwd: path.optional(),
    user: name.optional(),
    stdin: z.enum(["open", "closed"], { error: "open or closed" }).optional(),
    pty: z.strictObject({ columns: whole(1, MAX_TERMINAL_SIZE), rows: whole(1, MAX_TERMINAL_SIZE) }).optional(),
    limits: z
      .strictObject({ memoryBytes: amount.optional(), pids: amount.optional(), wallMs: amount.optional() })
      .optional(),
    graceMs: whole(0, MAX_GRACE_MS).optional(),
    tag: name.optional(),
    whenReaderIsSlow: z.enum(["block", "drop"], { error: "block or drop" }).default("block"),
  }),
  signal: z.strictObject({
    signal: z.union([z.string(), z.number()], { error: "a signal's name such as SIGTERM, or its number" }),
    whole: z.boolean().default(false),
  }),
  resize: z.strictObject({ columns: whole(1, MAX_TERMINAL_SIZE), rows: whole(1, MAX_TERMINAL_SIZE) }),
  makeDirectory: z.strictObject({
    path,
    user: name.optional(),
    mode: mode.optional(),
    parents: z.boolean().default(true),
  }),
  move: z.strictObject({ from: path, to: path, user: name.optional() }),
  none: z.strictObject({}),
};

export const queries = {
  none: z.strictObject({}),
  list: z.strictObject({
    status: repeated(
      z.enum(["creating", "running", "paused", "ended"], { error: "creating, running, paused or ended" }),
    ),
    metadata: repeated(z.string()),
    template: name.optional(),
    limit: digits(1, MAX_PAGE).default(MAX_PAGE),
    cursor: z.string().optional(),
  }),
  output: z.strictObject({
    stdout: offset.default(0),
    stderr: offset.default(0),
    /** Without it only the ending is told. */
    data: flag.default(true),
    whenReaderIsSlow: z.enum(["block", "drop"], { error: "block or drop" }).default("block"),
  }),
  stdin: z.strictObject({ close: flag.default(false) }),
  cancel: z.strictObject({ graceMs: digits(0, MAX_GRACE_MS).optional() }),
  readFile: z.strictObject({ path, user: name.optional(), offset: offset.optional(), length: offset.optional() }),
  writeFile: z.strictObject({ path, user: name.optional(), mode: octal.optional(), parents: flag.default(true) }),
  removeFile: z.strictObject({ path, user: name.optional(), recursive: flag.default(false) }),
  fileInfo: z.strictObject({ path, user: name.optional() }),
  listFiles: z.strictObject({ path, user: name.optional(), depth: digits(1, MAX_DEPTH).default(1) }),
  watchFiles: z.strictObject({ path, user: name.optional(), recursive: flag.default(false) }),
  events: z.strictObject({
    after: offset.optional(),
    /** Begins with so many of the newest instead. */
    tail: digits(0, MAX_EVENTS).optional(),
    follow: flag.default(true),
    limit: digits(1, MAX_EVENTS).default(MAX_EVENTS),
  }),
};
