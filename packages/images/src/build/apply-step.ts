/** What a step changes about how commands run from then on. Files are none of its business. */
import { posix } from "node:path";
import { expandVariables, type RecipeStep } from "@holdfast/recipe";
import type { ImageConfig } from "../types.js";

export interface StageConfig {
  readonly config: ImageConfig;
  /** Whether this stage has said what to run: else a new entry point takes the base's arguments away. */
  readonly cmdIsOwn: boolean;
}

export function applyStep({ config, cmdIsOwn }: StageConfig, step: RecipeStep): StageConfig {
  const changed = (change: Partial<ImageConfig>): StageConfig => ({ config: { ...config, ...change }, cmdIsOwn });
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
      return changed({ user: step.name });
    case "entrypoint":
      return changed({
        entrypoint: step.argv.length === 0 ? null : step.argv,
        ...(cmdIsOwn ? {} : { cmd: null }),
      });
    case "cmd":
      return { config: { ...config, cmd: step.argv.length === 0 ? null : step.argv }, cmdIsOwn: true };
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
      return { config, cmdIsOwn };
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
