import { existsSync, readFileSync } from "node:fs";
import { builtinModules } from "node:module";
import { dirname, join } from "node:path";
import { fileURLToPath } from "node:url";
import ts from "typescript";
import { expect, test } from "vitest";

const here = dirname(fileURLToPath(import.meta.url));
/** The packages that are part of the client. */
const OURS: Readonly<Record<string, string>> = {
  "@holdfast/protocol": join(here, "../../protocol/src/index.ts"),
  "@holdfast/recipe": join(here, "../../recipe/src/index.ts"),
};

/**
 * Every module that a browser would load at once, with what it imports. Types are left out: they are gone after the build.
 * What is imported only when it is called is left out too; packages/recipe sees to it that this is local files alone.
 */
function loaded(entry: string): Map<string, string[]> {
  const found = new Map<string, string[]>();
  const waiting = [entry];
  for (let path = waiting.pop(); path !== undefined; path = waiting.pop()) {
    if (found.has(path)) continue;
    const built = ts.transpileModule(readFileSync(path, "utf8"), {
      compilerOptions: { module: ts.ModuleKind.ESNext, target: ts.ScriptTarget.ES2023, verbatimModuleSyntax: true },
    }).outputText;
    const { statements } = ts.createSourceFile(path, built, ts.ScriptTarget.ES2023);
    const imports = statements.flatMap((statement) => {
      const isImport = ts.isImportDeclaration(statement) || ts.isExportDeclaration(statement);
      const from = isImport ? statement.moduleSpecifier : undefined;
      return from !== undefined && ts.isStringLiteral(from) ? [from.text] : [];
    });
    found.set(path, imports);
    for (const name of imports) {
      const ours = OURS[name];
      if (ours !== undefined) waiting.push(ours);
      else if (name.startsWith(".")) waiting.push(join(dirname(path), name.replace(/\.js$/, ".ts")));
    }
  }
  return found;
}

const modules = loaded(join(here, "index.ts"));

test("nothing that the client loads needs Node", () => {
  const others = [...modules].flatMap(([path, imports]) =>
    imports.filter((name) => !name.startsWith(".") && !Object.hasOwn(OURS, name)).map((name) => `${path}: ${name}`),
  );
  expect(others).toEqual([]);
  expect([...modules.values()].flat().filter((name) => builtinModules.includes(name.replace(/^node:/, "")))).toEqual(
    [],
  );
  expect([...modules.keys()].every((path) => existsSync(path))).toBe(true);
  expect(modules.size).toBeGreaterThan(40);
});

test("nothing that the client loads uses a global that only Node has", () => {
  const uses = [...modules.keys()].flatMap((path) => {
    const found = new Set<string>();
    const visit = (node: ts.Node): void => {
      const isName = ts.isIdentifier(node) && ["Buffer", "process", "require", "setImmediate"].includes(node.text);
      const isMember =
        node.parent !== undefined && ts.isPropertyAccessExpression(node.parent) && node.parent.name === node;
      const isDeclared = node.parent !== undefined && ts.isPropertySignature(node.parent);
      if (isName && !isMember && !isDeclared) found.add(`${path}: ${node.text}`);
      ts.forEachChild(node, visit);
    };
    visit(ts.createSourceFile(path, readFileSync(path, "utf8"), ts.ScriptTarget.ES2023, true));
    return [...found];
  });
  expect(uses).toEqual([]);
});
