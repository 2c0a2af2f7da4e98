import { existsSync, readFileSync } from "node:fs";
import { dirname, join } from "node:path";
import { fileURLToPath } from "node:url";
import ts from "typescript";
import { expect, test } from "vitest";

const here = dirname(fileURLToPath(import.meta.url));

interface Loaded {
  readonly source: ts.SourceFile;
  readonly imports: readonly string[];
  readonly lazyImports: readonly string[];
}

/** Every module of this package that a browser would load at once. Types are left out: they are gone after the build. */
function loaded(entry: string): Map<string, Loaded> {
  const found = new Map<string, Loaded>();
  const waiting = [entry];
  for (let path = waiting.pop(); path !== undefined; path = waiting.pop()) {
    if (found.has(path)) continue;
    const built = ts.transpileModule(readFileSync(path, "utf8"), {
      compilerOptions: { module: ts.ModuleKind.ESNext, target: ts.ScriptTarget.ES2023, verbatimModuleSyntax: true },
    }).outputText;
    const source = ts.createSourceFile(path, built, ts.ScriptTarget.ES2023, true);
    const imports = source.statements.flatMap((statement) => {
      const isImport = ts.isImportDeclaration(statement) || ts.isExportDeclaration(statement);
      const from = isImport ? statement.moduleSpecifier : undefined;
      return from !== undefined && ts.isStringLiteral(from) ? [from.text] : [];
    });
    const lazyImports = [...built.matchAll(/\bimport\(\s*"([^"]+)"\s*\)/g)].map(([, name = ""]) => name);
    found.set(path, { source, imports, lazyImports });
    for (const name of imports) {
      if (name.startsWith(".")) waiting.push(join(dirname(path), name.replace(/\.js$/, ".ts")));
    }
  }
  return found;
}

const modules = loaded(join(here, "index.ts"));

test("nothing that the main entry loads needs Node", () => {
  const outside = [...modules].flatMap(([path, { imports }]) =>
    imports.filter((name) => !name.startsWith(".") && name !== "@holdfast/protocol").map((name) => `${path}: ${name}`),
  );
  expect(outside).toEqual([]);
  expect([...modules.keys()].every((path) => existsSync(path))).toBe(true);
  expect(modules.size).toBeGreaterThan(20);
});

test("local files are reached in one place, when they are needed", () => {
  expect([...modules.keys()].filter((path) => path.includes("/local/"))).toEqual([]);
  const lazy = [...modules].flatMap(([path, { lazyImports }]) =>
    lazyImports.map((name) => `${path.slice(here.length)}: ${name}`),
  );
  expect(lazy).toEqual(["/resolve-draft.ts: ./local/index.js"]);
});

test("nothing that the main entry loads uses a global that only Node has", () => {
  const uses = [...modules].flatMap(([path, { source }]) => {
    const found = new Set<string>();
    const visit = (node: ts.Node): void => {
      const isName = ts.isIdentifier(node) && ["Buffer", "process", "require", "setImmediate"].includes(node.text);
      const isMember = ts.isPropertyAccessExpression(node.parent) && node.parent.name === node;
      if (isName && !isMember) found.add(`${path}: ${node.text}`);
      ts.forEachChild(node, visit);
    };
    ts.forEachChild(source, visit);
    return [...found];
  });
  expect(uses).toEqual([]);
});
