/** `addLocalFile` and `addLocalDir`, when the image is resolved. */
import type { Stats } from "node:fs";
import { readFile, realpath, stat } from "node:fs/promises";
import { basename, join } from "node:path";
import { HoldfastError } from "@holdfast/protocol";
import type { BlobList } from "../blob-list.js";
import type { LocalStep } from "../draft.js";
import { defined } from "../fields.js";
import { IgnoreRules, linesOf } from "../ignore-rules.js";
import type { RecipeStep } from "../recipe.js";
import { localFault } from "./local-fault.js";
import { treeOf } from "./tree-of.js";
import { entryFrom, kindOf, walk } from "./walk.js";

const IGNORE_FILES = [".holdfastignore", ".dockerignore"];

export async function readLocalFile(
  step: Extract<LocalStep, { kind: "local-file" }>,
  blobs: BlobList,
): Promise<RecipeStep> {
  const { source, stats } = await follow(step.path);
  if (!stats.isFile()) {
    throw new HoldfastError("invalid_argument", `addLocalFile path: ${step.path} is ${kindOf(stats)}`, {
      hint: stats.isDirectory() ? "Use addLocalDir." : "Only files can be added.",
    });
  }
  const name = basename(step.path);
  const intoDirectory = step.to.endsWith("/");
  const found = { ...entryFrom(intoDirectory ? name : "", source, stats), type: "file" as const };
  const tree = await treeOf([{ ...found, mode: step.mode ?? found.mode }], { blobs, keepOwner: step.owner === "keep" });
  return defined({ kind: "copy", tree, to: step.to, name: intoDirectory ? undefined : name, owner: step.owner });
}

export async function readLocalDirectory(
  step: Extract<LocalStep, { kind: "local-dir" }>,
  blobs: BlobList,
): Promise<RecipeStep> {
  const { source, stats } = await follow(step.path);
  if (!stats.isDirectory()) {
    throw new HoldfastError("invalid_argument", `addLocalDir path: ${step.path} is not a directory`, {
      hint: "Use addLocalFile for a file.",
    });
  }
  const files = step.ignoreFile === undefined ? IGNORE_FILES.map((file) => join(source, file)) : [step.ignoreFile];
  const lines = await readIgnoreLines(files, { required: step.ignoreFile !== undefined });
  const rules = new IgnoreRules([...lines, ...(step.ignore ?? [])]);
  const found = await walk(source, { rules, rulePath: "" });
  const tree = await treeOf(found, { blobs, keepOwner: step.owner === "keep" });
  return defined({ kind: "copy", tree, to: step.to, owner: step.owner, mode: step.mode });
}

async function follow(path: string): Promise<{ source: string; stats: Stats }> {
  try {
    const source = await realpath(path);
    return { source, stats: await stat(source) };
  } catch (error) {
    throw localFault(path, error);
  }
}

/** Of the first of these files that there is. */
export async function readIgnoreLines(
  files: readonly string[],
  { required = false }: { readonly required?: boolean } = {},
): Promise<string[]> {
  for (const file of files) {
    try {
      return linesOf(await readFile(file, "utf8"));
    } catch (error) {
      const isAbsent = error instanceof Error && "code" in error && error.code === "ENOENT";
      if (!isAbsent || required) throw localFault(file, error);
    }
  }
  return [];
}
