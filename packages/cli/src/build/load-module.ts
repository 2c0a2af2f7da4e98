/** A module whose default export is an image, or a function that gives one. */
import { createRequire, register } from "node:module";
import { relative } from "node:path";
import { pathToFileURL } from "node:url";
import { HoldfastError } from "@holdfast/protocol";
import { Image } from "@holdfast/recipe";
import type { HooksData } from "./module-hooks.js";

/** What a module may import without having it installed. All lead to one `Image`, whichever is imported. */
const OURS: Readonly<Record<string, string>> = {
  "@holdfast/sdk": "@holdfast/sdk",
  holdfast: "@holdfast/sdk",
  "@holdfast/recipe": "@holdfast/recipe",
  "@holdfast/protocol": "@holdfast/protocol",
};

export interface ModuleOptions {
  /** For a module that exports a function: what --build-arg says. */
  readonly args: Readonly<Record<string, string>>;
}

export async function loadImage(path: string, { args }: ModuleOptions): Promise<Image> {
  const shown = relative(process.cwd(), path) || path;
  const typescript = /\.[mc]?ts$/.test(path) ? findTypescript(path, shown) : undefined;
  const ours = Object.fromEntries(Object.entries(OURS).map(([name, target]) => [name, import.meta.resolve(target)]));
  register("./module-hooks.js", import.meta.url, { data: { ours, typescript } satisfies HooksData });
  const exported = await load(path, shown);
  if (typeof exported !== "function" && Object.keys(args).length > 0) {
    throw new HoldfastError("invalid_argument", `--build-arg: ${shown} takes no arguments`, {
      hint: "Let its default export be a function that takes them: export default ({ args }) => Image.base()…",
      details: { field: "--build-arg" },
    });
  }
  const image =
    typeof exported === "function" ? await call(exported as (given: ModuleOptions) => unknown, args, shown) : exported;
  if (image instanceof Image) return image;
  throw new HoldfastError("invalid_argument", `--file: the default export of ${shown} is ${describe(exported)}`, {
    hint: 'It has to be an image, or a function that returns one: import { Image } from "@holdfast/sdk"; export default Image.base();',
    details: { field: "--file" },
  });
}

async function load(path: string, shown: string): Promise<unknown> {
  try {
    return ((await import(pathToFileURL(path).href)) as { readonly default?: unknown }).default;
  } catch (error) {
    throw failed(error, `${shown} cannot be loaded`);
  }
}

async function call(
  make: (given: ModuleOptions) => unknown,
  args: ModuleOptions["args"],
  shown: string,
): Promise<unknown> {
  try {
    return await make({ args });
  } catch (error) {
    throw failed(error, `the function that ${shown} exports failed`);
  }
}

/** What it refuses of an image's declaration says what is wrong; the rest is the module's own business. */
function failed(error: unknown, what: string): HoldfastError {
  const message = error instanceof Error ? `${error.name}: ${error.message}` : String(error);
  const isOurs = error instanceof HoldfastError;
  return new HoldfastError("invalid_argument", `--file: ${what}: ${isOurs ? error.message : message}`, {
    hint: isOurs ? error.hint : "HOLDFAST_DEBUG=1 shows where.",
    details: { field: "--file" },
    cause: error,
  });
}

function describe(exported: unknown): string {
  if (exported === undefined) return "missing";
  return typeof exported === "function" ? "a function that returns something else" : "something else";
}

/** Undefined if Node reads TypeScript by itself. The module's own compiler comes first, then whatever comes with us. */
function findTypescript(path: string, shown: string): string | undefined {
  if ((process.features as { readonly typescript?: unknown }).typescript) return undefined;
  for (const from of [path, import.meta.url]) {
    try {
      return pathToFileURL(createRequire(from).resolve("typescript")).href;
    } catch {
      // Not installed there.
    }
  }
  throw new HoldfastError(
    "invalid_argument",
    `--file: ${shown} is TypeScript, and there is nothing here to read it with`,
    {
      hint: "Run `npm install typescript` beside it, use Node 22.18 or later, or write it as a .mjs file.",
      details: { field: "--file" },
    },
  );
}
