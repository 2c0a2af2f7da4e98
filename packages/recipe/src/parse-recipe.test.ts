import { describe, expect, test } from "vitest";
import { parseBuilderOptions } from "./parse-builder-options.js";
import { parseRecipe } from "./parse-recipe.js";

const DIGEST = `sha256:${"a".repeat(64)}`;

function withSteps(...steps: unknown[]): unknown {
  return { version: 1, base: { kind: "base" }, steps, stages: [], start: null };
}

function changed(changes: object): unknown {
  return { ...(withSteps() as object), ...changes };
}

test("a recipe of every kind of step comes out as it went in", () => {
  const recipe = {
    version: 1,
    base: { kind: "image", name: "localhost:5000/team/app:1.2" },
    steps: [
      { kind: "run", command: "echo 'a b' \"$X\" > /out\n", shell: ["/bin/bash", "-c"], user: "user", env: { A: "" } },
      { kind: "exec", argv: ["printf", "", "a\nb"], env: { A: "1" } },
      { kind: "apt", packages: ["g++", "libc6:amd64", "vim=2:9.0"] },
      {
        kind: "pip",
        packages: ["requests>=2.31", 'a[b]; python_version < "3.13"'],
        indexUrl: "http://127.0.0.1/simple",
      },
      { kind: "npm", packages: ["@scope/a@^1"], registryUrl: "https://r.example/" },
      { kind: "env", variables: { A: "$B `x` \"'\n" } },
      { kind: "workdir", path: "/a b/c" },
      { kind: "user", name: "user", create: true },
      { kind: "copy", tree: DIGEST, to: "/a/", name: "x", owner: "user:1000", mode: 0o7777 },
      { kind: "copy-archive", archive: DIGEST, from: "**/*.py", to: "b" },
      { kind: "copy-from", source: { kind: "stage", index: 0 }, paths: ["/a", "/b/*"], to: "./" },
      { kind: "entrypoint", argv: [] },
      { kind: "cmd", argv: ["a"] },
      { kind: "expose", ports: ["1/tcp", "65535/udp"] },
      { kind: "label", labels: { "a b": "" } },
    ],
    stages: [{ base: { kind: "snapshot", id: "img01" }, steps: [] }],
    start: { command: "x", readyWhen: { kind: "seconds", seconds: 0.5 } },
  };
  expect(parseRecipe(recipe)).toEqual(recipe);
  expect(parseRecipe(JSON.parse(JSON.stringify(recipe)))).toEqual(recipe);
});

test("names that objects have by themselves survive as variables", () => {
  const recipe = parseRecipe(withSteps({ kind: "env", variables: JSON.parse('{"__proto__":"1","constructor":"2"}') }));
  expect(JSON.stringify(recipe.steps[0])).toBe('{"kind":"env","variables":{"__proto__":"1","constructor":"2"}}');
});

describe("refuses, by the field's path,", () => {
  test.each<[string, unknown]>([
    ["the value: expected an object", null],
    ["the value: expected an object", []],
    ["the value: expected a plain object", new Map()],
    ["version: expected 1, got 2", changed({ version: 2 })],
    ["builder: there is no such field", changed({ builder: {} })],
    ["base: expected an object, got undefined", changed({ base: undefined })],
    ["base.kind: expected one of base, image, snapshot, stage", changed({ base: { kind: "scratch" } })],
    ["base.name: there is no such field", changed({ base: { kind: "base", name: "x" } })],
    [
      'base.name: expected the name of an image such as "debian:12"',
      changed({ base: { kind: "image", name: "../x" } }),
    ],
    ["base.name: expected the name", changed({ base: { kind: "image", name: "a//b" } })],
    ["base.name: expected the name", changed({ base: { kind: "image", name: "-a" } })],
    ["base.index: expected an earlier stage, and there is none", changed({ base: { kind: "stage", index: 0 } })],
    ["steps: expected a list", changed({ steps: "x" })],
    ["steps: expected at most 1000 items", changed({ steps: new Array(1001) })],
    ["stages: expected a list, got undefined", changed({ stages: undefined })],
    ["stages: expected at most 64 items", changed({ stages: new Array(65) })],
    [
      "stages[0].base.index: expected an earlier stage",
      changed({ stages: [{ base: { kind: "stage", index: 0 }, steps: [] }] }),
    ],
    [
      "stages[0].start: there is no such field",
      changed({ stages: [{ base: { kind: "base" }, steps: [], start: null }] }),
    ],
    ["start: expected an object, got undefined", changed({ start: undefined })],
    ["start.readyWhen.kind: expected one of", changed({ start: { command: "x", readyWhen: { port: 1 } } })],
    [
      "start.readyWhen.port: expected a whole number from 1 to 65535, got 65536",
      changed({ start: { command: "x", readyWhen: { kind: "port", port: 65_536 } } }),
    ],
    [
      "start.readyWhen.command: there is no such field",
      changed({ start: { command: "x", readyWhen: { kind: "port", port: 1, command: "y" } } }),
    ],
    ["steps[0]: expected an object, got null", withSteps(null)],
    ["steps[0].kind: expected one of run, exec", withSteps({ kind: "volume" })],
    ["steps[0].kind: expected one of", withSteps(Object.create({ kind: "run" }))],
    ["steps[0].command: expected a command, got undefined", withSteps({ kind: "run" })],
    ["steps[0].command: expected a command that is not empty", withSteps({ kind: "run", command: "" })],
    ["steps[0].command: expected a command without NUL bytes", withSteps({ kind: "run", command: "a\0b" })],
    [
      "steps[0].command: expected a command of at most 65536 bytes",
      withSteps({ kind: "run", command: "é".repeat(32_769) }),
    ],
    ["steps[0].command: expected a command without halves", withSteps({ kind: "run", command: "\ud800" })],
    ["steps[0].cwd: there is no such field", withSteps({ kind: "run", command: "a", cwd: "/" })],
    [
      "steps[0].env: name: expected a letter or underscore",
      withSteps({ kind: "run", command: "a", env: { "A=B": "" } }),
    ],
    ["steps[0].shell: expected at least one item", withSteps({ kind: "run", command: "a", shell: [] })],
    ["steps[0].user: expected a user", withSteps({ kind: "run", command: "a", user: "-x" })],
    ["steps[0].argv[0]: expected a program", withSteps({ kind: "exec", argv: [""] })],
    ["steps[0].packages: expected at least one item", withSteps({ kind: "apt", packages: [] })],
    [
      "steps[1].packages[1]: expected a package, not an option",
      withSteps({ kind: "cmd", argv: [] }, { kind: "apt", packages: ["a", "-y"] }),
    ],
    ["steps[0].packages[0]: expected a package", withSteps({ kind: "pip", packages: [" "] })],
    ["steps[0].packages[0]: expected a package, got 7", withSteps({ kind: "npm", packages: [7] })],
    ["steps[0].indexUrl: expected a URL", withSteps({ kind: "pip", packages: ["a"], indexUrl: "--extra" })],
    ["steps[0].indexUrl: expected a URL with http", withSteps({ kind: "pip", packages: ["a"], indexUrl: "ftp://a" })],
    ["steps[0].variables.A: expected a text, got 1", withSteps({ kind: "env", variables: { A: 1 } })],
    ["steps[0].variables: name: expected", withSteps({ kind: "env", variables: { "1A": "" } })],
    ["steps[0].variables.A: expected a template", withSteps({ kind: "env", variables: { A: "${" }, expand: true })],
    ["steps[0].path: expected a path that does not lead out", withSteps({ kind: "workdir", path: "a/../../b" })],
    ["steps[0].path: expected a path without NUL bytes", withSteps({ kind: "workdir", path: "/a\0" })],
    ["steps[0].path: expected a path whose names", withSteps({ kind: "workdir", path: `/${"a".repeat(256)}` })],
    ["steps[0].name: expected a user", withSteps({ kind: "user", name: "a b" })],
    ["steps[0].name: expected a user", withSteps({ kind: "user", name: "a:b:c" })],
    ["steps[0].name: expected a name of at most 32", withSteps({ kind: "user", name: "1000", create: true })],
    ["steps[0].create: expected true or false", withSteps({ kind: "user", name: "a", create: "yes" })],
    ['steps[0].tree: expected "sha256:" and 64', withSteps({ kind: "copy", tree: DIGEST.toUpperCase(), to: "/" })],
    ["steps[0].to: expected a path that does not lead out", withSteps({ kind: "copy", tree: DIGEST, to: "../x" })],
    ["steps[0].mode: expected a file mode", withSteps({ kind: "copy", tree: DIGEST, to: "/", mode: 0o10000 })],
    ["steps[0].mode: expected a file mode", withSteps({ kind: "copy", tree: DIGEST, to: "/", mode: "755" })],
    ["steps[0].name: expected a file's name", withSteps({ kind: "copy", tree: DIGEST, to: "/a", name: "../x" })],
    [
      "steps[0].source.index: expected an earlier stage",
      withSteps({ kind: "copy-from", source: { kind: "stage", index: 0 }, paths: ["/a"], to: "/" }),
    ],
    [
      "steps[0].to: expected a path that ends with a slash",
      withSteps({ kind: "copy-from", source: { kind: "base" }, paths: ["/a", "/b"], to: "/c" }),
    ],
    [
      'has a "[" that is not ended well',
      withSteps({ kind: "copy-from", source: { kind: "base" }, paths: ["/[a"], to: "/c" }),
    ],
    ["steps[0].ports[0]: expected a port", withSteps({ kind: "expose", ports: ["0"] })],
    ["steps[0].ports[0]: expected a port", withSteps({ kind: "expose", ports: ["80/icmp"] })],
    [
      "steps[0].labels: name: expected the name of a label that is not empty",
      withSteps({ kind: "label", labels: { "": "x" } }),
    ],
  ])("%s", (message, value) => {
    expect(() => parseRecipe(value)).toThrow(message);
    expect(() => parseRecipe(value)).toThrow(expect.objectContaining({ code: "invalid_argument" }) as Error);
  });

  test("more steps in all than a recipe may have", () => {
    const steps = new Array(400).fill({ kind: "cmd", argv: [] });
    const stage = { base: { kind: "base" }, steps };
    expect(() => parseRecipe(changed({ steps, stages: [stage, stage] }), "recipe")).toThrow(
      'recipe.steps: expected at most 1000 in all, got "1200 steps"',
    );
  });

  test("more bytes in all than a recipe may have", () => {
    const steps = new Array(100).fill({ kind: "run", command: "x".repeat(60_000) });
    expect(() => parseRecipe(changed({ steps }))).toThrow(/the recipe has \d+ bytes, more than 4194304/);
  });

  test("a long value without repeating all of it", () => {
    const value = withSteps({ kind: "user", name: "x y".repeat(10_000) });
    expect(() => parseRecipe(value)).toThrow(/\(30000 characters\)$/);
    try {
      parseRecipe(value);
    } catch (error) {
      expect((error as Error).message.length).toBeLessThan(300);
    }
  });
});

describe("builder options", () => {
  test("come out as they went in", () => {
    const options = {
      memoryMb: 8192,
      cpus: 0.5,
      diskMb: 20_000,
      timeoutS: 1800,
      runtimeMemoryMb: 512,
      retryOnOom: true,
      network: "off",
    };
    expect(parseBuilderOptions(options)).toEqual(options);
    expect(parseBuilderOptions({})).toEqual({});
  });

  test.each<[string, unknown]>([
    ["builder: expected an object", 8192],
    ["builder.memory: there is no such field", { memory: 1 }],
    ["builder.memoryMb: expected a whole number of MiB from 16", { memoryMb: 0 }],
    ["builder.memoryMb: expected a whole number", { memoryMb: 1.5 }],
    ["builder.memoryMb: expected a whole number", { memoryMb: "8192" }],
    ["builder.memoryMb: expected a whole number", { memoryMb: null }],
    ["builder.cpus: expected a number from 0.01", { cpus: Number.NaN }],
    ["builder.diskMb: expected", { diskMb: -1 }],
    ["builder.timeoutS: expected", { timeoutS: Number.POSITIVE_INFINITY }],
    ["builder.retryOnOom: expected true or false", { retryOnOom: 1 }],
    ['builder.network: expected "on" or "off"', { network: "host" }],
  ])("%s", (message, value) => {
    expect(() => parseBuilderOptions(value)).toThrow(message);
  });
});
