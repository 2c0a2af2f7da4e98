/** What E2B calls a template, as a recipe of ours. */
import { HoldfastError, invalidArgument } from "@holdfast/protocol";
import {
  type Digest,
  expandVariables,
  parseRecipe,
  parseStep,
  type Recipe,
  type RecipeBase,
  type RecipeStep,
  type StartCommand,
} from "@holdfast/recipe";
import { z } from "zod";

/** Whom commands run as, and where, if neither the image nor a step says. */
const DEFAULT_USER = "user";
const DEFAULT_WORKDIR = "/home/user";
/** How long a start command is waited for if nothing says when it is ready. */
const DEFAULT_READY_SECONDS = 20;
const SHELL = ["/bin/bash", "-l", "-c"];
const MAX_STEPS = 990;
const MAX_ARGUMENTS = 2000;

export const FILES_HASH = /^[0-9a-f]{64}$/;

const text = z.string({ error: "a text" });

const stepSchema = z.strictObject({
  type: text,
  args: z
    .array(text, { error: "a list of texts" })
    .max(MAX_ARGUMENTS, { error: `at most ${MAX_ARGUMENTS}` })
    .default([]),
  force: z.boolean().nullish(),
  filesHash: text.regex(FILES_HASH, { error: "64 lower-case hex digits" }).nullish(),
  // What clients keep for themselves and send along.
  forceUpload: z.boolean().nullish(),
  resolveSymlinks: z.boolean().nullish(),
  gzip: z.boolean().nullish(),
});

/** How a client says who it is to the registry of `fromImage`. */
const registrySchema = z.discriminatedUnion(
  "type",
  [
    z.strictObject({ type: z.literal("registry"), username: text.max(1024), password: text.max(65_536) }),
    z.strictObject({ type: z.literal("gcp"), serviceAccountJson: text.max(65_536) }),
    z.strictObject({
      type: z.literal("aws"),
      awsAccessKeyId: text.max(1024),
      awsSecretAccessKey: text.max(1024),
      awsRegion: text.max(100),
    }),
  ],
  { error: "credentials of type registry, gcp or aws" },
);

export const buildStartSchema = z.strictObject({
  startCmd: text.nullish(),
  readyCmd: text.nullish(),
  force: z.boolean().nullish(),
  fromImage: text.nullish(),
  fromTemplate: text.nullish(),
  fromImageRegistry: registrySchema.nullish(),
  steps: z
    .array(stepSchema, { error: "a list of steps" })
    .max(MAX_STEPS, { error: `at most ${MAX_STEPS} steps` })
    .default([]),
});

export type BuildStart = z.output<typeof buildStartSchema>;
type Step = BuildStart["steps"][number];

/** What it starts from, and what is in force there; null where the image does not say. */
export interface StartingPoint {
  readonly base: RecipeBase;
  readonly user: string | null;
  readonly workdir: string | null;
}

export interface TemplateRecipe {
  readonly recipe: Recipe;
  /** How many steps come before the first that was asked for. */
  readonly leadingSteps: number;
  readonly forceFrom: number | undefined;
}

export function recipeFromTemplate(
  body: BuildStart,
  from: StartingPoint,
  digestOf: (filesHash: string) => Digest,
): TemplateRecipe {
  const leading: RecipeStep[] = [];
  if (from.user === null) leading.push({ kind: "user", name: DEFAULT_USER, create: true });
  if (from.workdir === null) leading.push({ kind: "workdir", path: DEFAULT_WORKDIR });
  let user = from.user ?? DEFAULT_USER;
  const steps = body.steps.map((step, index) => {
    const field = `steps[${index}]`;
    const translated = parseStep(translate(step, { field, user, digestOf }), field);
    if (translated.kind === "user") user = translated.name;
    return translated;
  });
  const recipe = parseRecipe(
    { version: 1, base: from.base, steps: [...leading, ...steps], stages: [], start: startOf(body) },
    "template",
  );
  return { recipe, leadingSteps: leading.length, forceFrom: forceFrom(body, leading.length) };
}

/** A step that is forced is made anew, and so is everything after it. */
function forceFrom(body: BuildStart, leadingSteps: number): number | undefined {
  if (body.force === true) return 0;
  const first = body.steps.findIndex(({ force }) => force === true);
  return first === -1 ? undefined : leadingSteps + first;
}

interface InForce {
  readonly field: string;
  readonly user: string;
  readonly digestOf: (filesHash: string) => Digest;
}

function translate(step: Step, inForce: InForce): RecipeStep {
  const { field } = inForce;
  switch (step.type.toUpperCase()) {
    case "RUN":
      return runStep(step, field);
    case "ENV":
      return envStep(step, field);
    case "COPY":
      return copyStep(step, inForce);
    case "WORKDIR":
      return { kind: "workdir", path: argument(step, 0, field, "a path") };
    case "USER":
      return userStep(step, field);
    default:
      throw invalidArgument(`${field}.type`, step.type.slice(0, 100), "one of COPY, ENV, RUN, USER and WORKDIR");
  }
}

function argument(step: Step, index: number, field: string, expected: string): string {
  const given = step.args[index];
  if (given === undefined || given === "")
    throw invalidArgument(`${field}.args[${index}]`, given ?? "nothing", expected);
  return given;
}

function runStep(step: Step, field: string): RecipeStep {
  const user = step.args[1] ?? "";
  return {
    kind: "run",
    command: argument(step, 0, field, "a command"),
    shell: SHELL,
    user: user === "" ? undefined : user,
  };
}

function userStep(step: Step, field: string): RecipeStep {
  const name = argument(step, 0, field, "a user's name");
  if (step.args[1] === "true") {
    throw new HoldfastError("not_implemented", `${field}.args[1]: users are not made administrators by this server`, {
      hint: "Add a RUN step as root that changes /etc/sudoers.",
      details: { field: `${field}.args[1]` },
    });
  }
  // Numbers, and users with a group, are taken as they are: only names can be made.
  const create = name !== "root" && /^[A-Za-z_][A-Za-z0-9_.-]*$/.test(name);
  return { kind: "user", name, ...(create ? { create } : {}) };
}

function envStep(step: Step, field: string): RecipeStep {
  if (step.args.length === 0 || step.args.length % 2 !== 0) {
    throw invalidArgument(`${field}.args`, `${step.args.length} texts`, "names, each with a value after it");
  }
  const pairs = new Map<string, string>();
  for (let index = 0; index < step.args.length; index += 2) {
    pairs.set(step.args[index] ?? "", step.args[index + 1] ?? "");
  }
  const names = [...pairs.keys()];
  const expand = [...pairs.values()].some(speaksOfVariables);
  const values = [...pairs.values()].map((value) => (expand ? templateOf(value) : value));
  return {
    kind: "env",
    variables: Object.fromEntries(names.map((name, index) => [name, values[index] ?? ""])),
    ...(expand ? { expand } : {}),
  };
}

const VARIABLE = /\$(?:[A-Za-z_]|\{)/;

function speaksOfVariables(value: string): boolean {
  return VARIABLE.test(value) && isTemplate(withoutCommands(value));
}

/** E2B expands `$NAME` and `${NAME}`; commands in `$(…)` and backslashes are text there. */
function withoutCommands(value: string): string {
  return value.replace(/\\|\$(?![A-Za-z_{])/g, "\\$&");
}

function templateOf(value: string): string {
  const template = withoutCommands(value);
  return isTemplate(template) ? template : value.replace(/[\\$}]/g, "\\$&");
}

function isTemplate(value: string): boolean {
  try {
    expandVariables(value, () => "");
    return true;
  } catch {
    // What a shell could not read either stays as it is.
    return false;
  }
}

function copyStep(step: Step, { field, user, digestOf }: InForce): RecipeStep {
  const from = argument(step, 0, field, "what to copy");
  const to = argument(step, 1, field, "where to copy it to");
  const { filesHash } = step;
  if (filesHash === undefined || filesHash === null) {
    throw invalidArgument(`${field}.filesHash`, "nothing", "the hash of the files that were sent");
  }
  const mode = step.args[3] ?? "";
  if (mode !== "" && !/^[0-7]{1,5}$/.test(mode)) {
    throw invalidArgument(`${field}.args[3]`, mode.slice(0, 100), "an octal mode such as 0755");
  }
  const owner = step.args[2] ?? "";
  return {
    kind: "copy-archive",
    archive: digestOf(filesHash),
    from: withoutPattern(from),
    to,
    owner: owner === "" ? user : owner,
    mode: mode === "" ? undefined : Number.parseInt(mode, 8),
  };
}

/** What a pattern stands for was decided where the files were read: here what comes before it is copied, whole. */
function withoutPattern(path: string): string {
  const parts = path.split("/").filter((part) => part !== "" && part !== ".");
  const first = parts.findIndex((part) => /[*?[{\\]/.test(part));
  const fixed = first === -1 ? parts : parts.slice(0, first);
  return fixed.length === 0 ? "." : fixed.join("/");
}

function startOf(body: BuildStart): StartCommand | null {
  const start = body.startCmd ?? "";
  const ready = body.readyCmd ?? "";
  if (start === "" && ready === "") return null;
  return {
    // With nothing to start there can still be something to wait for.
    command: start === "" ? ":" : start,
    readyWhen: ready === "" ? { kind: "seconds", seconds: DEFAULT_READY_SECONDS } : readyWhen(ready),
  };
}

/** A command that only waits is not tried again and again. */
function readyWhen(command: string): NonNullable<StartCommand["readyWhen"]> {
  const seconds = /^\s*sleep\s+(\d{1,5}(?:\.\d{1,3})?)\s*$/.exec(command)?.[1];
  return seconds === undefined ? { kind: "command", command } : { kind: "seconds", seconds: Number(seconds) };
}
