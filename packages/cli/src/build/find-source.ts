/** What is to be built: a Dockerfile, or a module that declares an image; named by --file or found in the context. */
import { statSync } from "node:fs";
import { basename, join, resolve } from "node:path";
import { HoldfastError, invalidArgument } from "@holdfast/protocol";

export interface BuildSource {
  readonly kind: "dockerfile" | "module";
  /** Absolute. */
  readonly path: string;
  /** Absolute: what local paths start from. */
  readonly context: string;
}

const MODULE = /\.[mc]?[jt]s$/;
/** The first that is there is it. */
const FOUND_IN_CONTEXT = [
  "holdfast.image.ts",
  "holdfast.image.mts",
  "holdfast.image.js",
  "holdfast.image.mjs",
  "Dockerfile",
];

const isFile = (path: string): boolean => statSync(path, { throwIfNoEntry: false })?.isFile() === true;

export function findSource(contextText: string, file: string | undefined): BuildSource {
  const context = resolve(contextText);
  const there = statSync(context, { throwIfNoEntry: false });
  if (there?.isDirectory() !== true) {
    throw new HoldfastError(
      "invalid_argument",
      `CONTEXT: expected a directory, and ${contextText} ${there === undefined ? "does not exist" : "is none"}`,
      {
        hint: isFile(context) ? `To build from that file: holdfast build -f ${contextText} DIRECTORY` : undefined,
        details: { field: "CONTEXT" },
      },
    );
  }
  const path = file === undefined ? findIn(context, contextText) : checkFile(file, context);
  return { kind: MODULE.test(basename(path)) ? "module" : "dockerfile", path, context };
}

function checkFile(file: string, context: string): string {
  if (file === "-") throw invalidArgument("--file", file, "the path of a Dockerfile or of a module; stdin is not read");
  const path = resolve(file);
  if (isFile(path)) return path;
  throw new HoldfastError("invalid_argument", `--file: there is no file ${path}`, {
    hint: isFile(join(context, file)) ? `It starts here, not in the context: -f ${join(context, file)}` : undefined,
    details: { field: "--file" },
  });
}

function findIn(context: string, shown: string): string {
  const found = FOUND_IN_CONTEXT.find((name) => isFile(join(context, name)));
  if (found !== undefined) return join(context, found);
  throw new HoldfastError("invalid_argument", `CONTEXT: there is nothing to build from in ${shown}`, {
    hint: `It needs one of ${FOUND_IN_CONTEXT.join(", ")}; or name a file with --file.`,
    details: { field: "CONTEXT" },
  });
}
