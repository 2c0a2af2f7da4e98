import { readdirSync, readFileSync } from "node:fs";
import { builtinModules } from "node:module";
import { dirname, join, relative } from "node:path";
import { fileURLToPath } from "node:url";
import ts from "typescript";

export const root = fileURLToPath(new URL("../..", import.meta.url)).replace(/\/$/, "");

/** What tools and builds leave in the tree; nothing of it is ours to judge. */
const GENERATED = new Set(["node_modules", ".git", "dist", "build", "coverage"]);

export function readText(path: string): string {
  return readFileSync(join(root, path), "utf8");
}

/** Every file of the repository below `directory` whose name ends like this, as paths from the root, sorted. */
export function findFiles(directory: string, pattern: RegExp): string[] {
  const found: string[] = [];
  for (const entry of readdirSync(join(root, directory), { withFileTypes: true })) {
    const path = join(directory, entry.name);
    if (entry.isDirectory() && !GENERATED.has(entry.name)) found.push(...findFiles(path, pattern));
    if (entry.isFile() && pattern.test(entry.name)) found.push(path);
  }
  return found.sort();
}

export function packageNames(): string[] {
  const entries = readdirSync(join(root, "packages"), { withFileTypes: true });
  return entries.filter((entry) => entry.isDirectory()).map((entry) => entry.name);
}

/** What a module imports, types included: a relative import as the path of the source it names, others as written. */
export function importsOf(path: string): string[] {
  const { importedFiles } = ts.preProcessFile(readText(path), true, true);
  return importedFiles.map(({ fileName }) =>
    fileName.startsWith(".")
      ? relative(root, join(root, dirname(path), fileName)).replace(/\.js$/, ".ts")
      : fileName.replace(/^node:/, ""),
  );
}

export function isBuiltin(specifier: string): boolean {
  return builtinModules.includes(specifier);
}

/** `@scope/name/sub` and `name/sub` without the sub path. */
export function packageOf(specifier: string): string {
  return specifier
    .split("/")
    .slice(0, specifier.startsWith("@") ? 2 : 1)
    .join("/");
}
