import { describe, expect, test } from "vitest";
import { findFiles, packageNames, readText } from "./tree.js";

interface LockFile {
  readonly packages: Readonly<Record<string, { readonly optionalDependencies?: Readonly<Record<string, string>> }>>;
}

const MAX_LINES = 500;

test(`no source file is longer than ${MAX_LINES} lines`, () => {
  const long = findFiles(".", /\.(ts|c|h)$/)
    .map((path) => ({ path, lines: readText(path).trimEnd().split("\n").length }))
    .filter(({ lines }) => lines > MAX_LINES);
  expect(long).toEqual([]);
});

test("source files are named in lower case with hyphens", () => {
  const odd = findFiles(".", /\.(ts|mjs|c|h)$/).filter((path) => !/^[a-z0-9]+([-.][a-z0-9]+)*$/.test(baseName(path)));
  expect(odd).toEqual([]);
});

test("the documents name no path of a developer's machine", () => {
  // `/root` and `/home/user` are places inside a sandbox; what is forbidden is where somebody keeps this checkout.
  const personal = [/\/home\/(?!user\b)\w+/, /\/Users\/\w+/, /[A-Z]:\\Users/, /(?<![\w.~-])\/work\/\w+/];
  const found = findFiles(".", /\.md$/).flatMap((path) =>
    readText(path)
      .split("\n")
      .map((line, index) => ({ line, where: `${path}:${index + 1}` }))
      .filter(({ line }) => personal.some((pattern) => pattern.test(line)))
      .map(({ line, where }) => `${where}: ${line.trim()}`),
  );
  expect(found).toEqual([]);
});

test("the map in README.md lists every package", () => {
  const readme = readText("README.md");
  const listed = (name: string) => new RegExp(`packages/${name}\\b|^[\\s│├└─]*${name}/\\s`, "m").test(readme);
  expect(packageNames().filter((name) => !listed(name))).toEqual([]);
});

describe("npm", () => {
  test("package-lock.json names no registry", () => {
    expect(readText("package-lock.json").match(/"resolved": "(?!packages\/).*"/g)).toBeNull();
  });

  test("package-lock.json holds the optional packages of every platform", () => {
    // npm leaves out what the registry cannot supply, and then `npm ci` refuses the file on every machine.
    const { packages } = JSON.parse(readText("package-lock.json")) as LockFile;
    const locked = new Set(Object.keys(packages).map((path) => path.slice(path.lastIndexOf("node_modules/") + 13)));
    const optional = Object.values(packages).flatMap((entry) => Object.keys(entry.optionalDependencies ?? {}));
    expect(optional.filter((name) => !locked.has(name))).toEqual([]);
  });

  test(".npmrc names no registry and no secret", () => {
    expect(readText(".npmrc")).not.toMatch(/registry=|_auth|token/i);
  });

  test("CI and developers run the same command", () => {
    expect(readText(".ci/run").trimEnd().split("\n").at(-1)).toBe("npm test");
  });
});

function baseName(path: string): string {
  return path.slice(path.lastIndexOf("/") + 1);
}
