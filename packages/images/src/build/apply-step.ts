/** What a step changes about how commands run from then on. Files are none of its business. */
import { posix } from "node:path";
import { expandVariables, type RecipeStep } from "@holdfast/recipe";
import { BASE_LABEL } from "../base/base-recipe.js";
import type { ImageConfig, ImageRecord } from "../types.js";

export interface StageConfig {
  readonly config: ImageConfig;
  /** Whether this stage has said what to run: else a new entry point takes the base's arguments away. */
  readonly cmdIsOwn: boolean;
  /** Whom the finished image runs commands as if no step says: another than steps run as. Absent: the same. */
  readonly runsAs?: string | null | undefined;
}

/** Ours; one that came from another host as an archive is known by its label. */
export function isBaseImage({ kind, config }: Pick<ImageRecord, "kind" | "config">): boolean {
  return kind === "base" || (kind === "imported" && Object.hasOwn(config.labels, BASE_LABEL));
}

/** Steps on `base` begin as root, as those of a Dockerfile do; what is made of it runs as base's own user. */
export function configOnBase(image: Pick<ImageRecord, "kind" | "config">): StageConfig {
  const { config } = image;
  if (!isBaseImage(image)) return { config, cmdIsOwn: false };
  const { [BASE_LABEL]: _, ...labels } = config.labels;
  return { config: { ...config, labels, user: null }, cmdIsOwn: false, runsAs: config.user };
}

/** What the image is in the end. */
export function finishedConfig({ config, runsAs }: StageConfig): ImageConfig {
  return runsAs === undefined ? config : { ...config, user: runsAs };
}

export function applyStep(stage: StageConfig, step: RecipeStep): StageConfig {
  const { config, cmdIsOwn, runsAs } = stage;
  const changed = (change: Partial<ImageConfig>): StageConfig => ({
    config: { ...config, ...change },
    cmdIsOwn,
    runsAs,
  });
  switch (step.kind) {
    case "env": {
      const entries = Object.entries(step.variables).map(
        ([name, value]) =>
          [name, step.expand === true ? expandVariables(value, (known) => inForce(config, known)) : value] as const,
      );
      return changed({ env: { ...config.env, ...Object.fromEntries(entries) } });
    }
    case "workdir":
      return changed({ workdir: insidePath(config, step.path) });
    case "user":
      return { config: { ...config, user: step.name }, cmdIsOwn };
    case "entrypoint":
      return changed({
        entrypoint: step.argv.length === 0 ? null : step.argv,
        ...(cmdIsOwn ? {} : { cmd: null }),
      });
    case "cmd":
      return { config: { ...config, cmd: step.argv.length === 0 ? null : step.argv }, cmdIsOwn: true, runsAs };
    case "expose":
      return changed({ exposedPorts: [...new Set([...config.exposedPorts, ...step.ports])] });
    case "label":
      return changed({ labels: { ...config.labels, ...step.labels } });
    case "run":
    case "exec":
    case "apt":
    case "pip":
    case "npm":
    case "copy":
    case "copy-archive":
    case "copy-from":
      return { config, cmdIsOwn, runsAs };
  }
}

/** What commands have in any case, whether or not the image says so; `PATH=/opt/bin:$PATH` is to add to it. */
export const DEFAULT_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";

function inForce({ env }: ImageConfig, name: string): string | undefined {
  if (Object.hasOwn(env, name)) return env[name];
  return name === "PATH" ? DEFAULT_PATH : undefined;
}

/** A path of a step as an absolute one; one that ends with a slash keeps it. */
export function insidePath(config: Pick<ImageConfig, "workdir">, path: string): string {
  return posix.resolve("/", config.workdir ?? "/", path) + (path.endsWith("/") && path !== "/" ? "/" : "");
}

/** Whether a step may write files, and so needs a sandbox. */
export function writesFiles(step: RecipeStep): boolean {
  switch (step.kind) {
    case "env":
    case "entrypoint":
    case "cmd":
    case "expose":
    case "label":
      return false;
    case "user":
      return step.create === true;
    case "workdir":
    case "run":
    case "exec":
    case "apt":
    case "pip":
    case "npm":
    case "copy":
    case "copy-archive":
    case "copy-from":
      return true;
  }
}
