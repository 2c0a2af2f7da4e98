import { describe, expect, test } from "vitest";
import { findFiles, importsOf, isBuiltin, packageNames, packageOf, readText } from "./tree.js";

/** Which packages each package may know. A new package needs a line here: that is the moment to think about it. */
const MAY_USE: Record<string, readonly string[]> = {
  protocol: [],
  recipe: ["protocol"],
  engine: ["protocol"],
  images: ["engine", "protocol", "recipe"],
  server: ["engine", "images", "protocol", "recipe"],
  sdk: ["protocol", "recipe"],
  cli: ["engine", "images", "protocol", "recipe", "sdk", "server"],
};

const NAMES_WITHOUT_A_SUBJECT = ["utils", "util", "common", "shared", "helpers", "misc", "lib"];
const MODULES_WITH_IO = ["fs", "fs/promises", "net", "http", "https", "http2", "tls", "dgram", "dns", "child_process"];

interface Manifest {
  readonly name: string;
  readonly dependencies?: Readonly<Record<string, string>>;
}

function manifestOf(name: string): Manifest {
  return JSON.parse(readText(`packages/${name}/package.json`)) as Manifest;
}

function productionSources(name: string): string[] {
  return findFiles(`packages/${name}/src`, /\.ts$/).filter((path) => !path.endsWith(".test.ts"));
}

test("every package has its place in the order", () => {
  expect(packageNames().sort()).toEqual(Object.keys(MAY_USE).sort());
});

test("no package is named after nothing in particular", () => {
  expect(packageNames().filter((name) => NAMES_WITHOUT_A_SUBJECT.includes(name))).toEqual([]);
});

test("the workspace, the build and the packages are the same list", () => {
  const { workspaces } = JSON.parse(readText("package.json")) as { workspaces: string[] };
  const { references } = JSON.parse(readText("tsconfig.json")) as { references: { path: string }[] };
  const directories = packageNames().map((name) => `packages/${name}`);
  expect([...workspaces].sort()).toEqual(directories.sort());
  expect(references.map(({ path }) => path).filter((path) => path.startsWith("packages/"))).toEqual(workspaces);
});

describe.each(Object.keys(MAY_USE))("package %s", (name) => {
  const allowed = (MAY_USE[name] ?? []).map((other) => manifestOf(other).name);

  test("depends only on packages below it", () => {
    const ours = packageNames().map((other) => manifestOf(other).name);
    const used = Object.keys(manifestOf(name).dependencies ?? {}).filter((dependency) => ours.includes(dependency));
    expect(used.filter((dependency) => !allowed.includes(dependency))).toEqual([]);
  });

  test("imports only what its package.json declares", () => {
    const declared = Object.keys(manifestOf(name).dependencies ?? {});
    const undeclared = productionSources(name).flatMap((path) =>
      importsOf(path)
        .filter((specifier) => !specifier.endsWith(".ts") && !isBuiltin(specifier))
        .filter((specifier) => !declared.includes(packageOf(specifier)))
        .map((specifier) => `${path} imports ${specifier}`),
    );
    expect(undeclared).toEqual([]);
  });

  test("reaches other packages by their names, not their paths", () => {
    const outside = findFiles(`packages/${name}/src`, /\.ts$/).flatMap((path) =>
      importsOf(path)
        .filter((target) => target.endsWith(".ts") && target.startsWith("packages/"))
        .filter((target) => !target.startsWith(`packages/${name}/src/`))
        .map((target) => `${path} imports ${target}`),
    );
    expect(outside).toEqual([]);
  });
});

test("protocol does no I/O", () => {
  const found = productionSources("protocol").flatMap((path) =>
    importsOf(path)
      .filter((specifier) => MODULES_WITH_IO.includes(specifier))
      .map((specifier) => `${path} imports ${specifier}`),
  );
  expect(found).toEqual([]);
});

test("no module imports itself in a circle", () => {
  const sources = [...findFiles("packages", /\.ts$/), ...findFiles("tests", /\.ts$/), ...findFiles("bench", /\.ts$/)];
  const graph = new Map(sources.map((path) => [path, importsOf(path).filter((target) => target.endsWith(".ts"))]));
  expect(findCircle(graph)).toBeUndefined();
});

/** The first circle found, as the chain of files that closes it. */
function findCircle(graph: ReadonlyMap<string, readonly string[]>): string | undefined {
  const finished = new Set<string>();
  const visit = (path: string, chain: readonly string[]): string | undefined => {
    if (chain.includes(path)) return [...chain.slice(chain.indexOf(path)), path].join(" -> ");
    if (finished.has(path)) return undefined;
    for (const target of graph.get(path) ?? []) {
      const circle = visit(target, [...chain, path]);
      if (circle !== undefined) return circle;
    }
    finished.add(path);
    return undefined;
  };
  for (const path of graph.keys()) {
    const circle = visit(path, []);
    if (circle !== undefined) return circle;
  }
  return undefined;
}
