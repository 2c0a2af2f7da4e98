import { execFileSync } from "node:child_process";
import { readFileSync } from "node:fs";
import { fileURLToPath } from "node:url";
import fc from "fast-check";
import { describe, expect, test } from "vitest";
import { canonicalJson } from "./canonical-json.js";
import { digestOfJson } from "./digest.js";
import { Image } from "./image.js";
import { parseRecipe } from "./parse-recipe.js";
import { parseTree } from "./parse-tree.js";
import type { Digest, Recipe, RecipeStep } from "./recipe.js";
import {
  type BaseDigests,
  chainHash,
  chainText,
  externalBases,
  neededStages,
  recipeChains,
  recipeHash,
  recipeText,
  stepChain,
} from "./recipe-hash.js";
import type { Tree } from "./tree.js";

interface Vector {
  readonly name: string;
  readonly recipe: Recipe;
  /** The same, not in its normal form. */
  readonly given?: readonly Recipe[];
  readonly bases: BaseDigests;
  readonly trees: readonly { readonly tree: Tree; readonly canonical: string; readonly digest: Digest }[];
  readonly texts: readonly string[];
  readonly chain: readonly Digest[];
  readonly canonical: string;
  readonly hash: Digest;
}

const golden = (name: string): string => fileURLToPath(new URL(`../golden/${name}`, import.meta.url));
const vectors = JSON.parse(readFileSync(golden("image-hash.json"), "utf8")) as Vector[];

describe("the golden vectors", () => {
  test.each(vectors)("$name", async ({ recipe, given = [], bases, trees, texts, chain, canonical, hash }) => {
    expect(parseRecipe(recipe)).toEqual(recipe);
    const chains = await recipeChains(recipe, bases);
    expect(chains.steps).toEqual(chain);
    const sourceOf = (index: number): { source: Digest } | undefined => {
      const step = recipe.steps[index];
      if (step?.kind !== "copy-from") return undefined;
      const { source } = step;
      if (source.kind === "stage") return { source: chains.stages[source.index]?.end as Digest };
      return { source: bases[source.kind === "image" ? `image:${source.name}` : source.kind] as Digest };
    };
    const parents = [chains.base, ...chains.steps];
    expect(recipe.steps.map((step, index) => chainText(parents[index] as Digest, step, sourceOf(index)))).toEqual(
      texts,
    );
    expect(await recipeText(recipe, bases)).toBe(canonical);
    expect(await recipeHash(recipe, bases)).toBe(hash);
    for (const other of given) {
      expect(parseRecipe(other)).toEqual(recipe);
      expect(await recipeHash(other, bases)).toBe(hash);
    }
    for (const { tree, canonical: text, digest } of trees) {
      expect(canonicalJson(parseTree(tree))).toBe(text);
      expect(await digestOfJson(tree)).toBe(digest);
    }
  });

  test("a program that shares nothing with this one comes to the same", () => {
    const output = execFileSync("python3", ["-B", golden("check.py")], { encoding: "utf8" });
    expect(output).toBe(`${vectors.length} of ${vectors.length} vectors agree\n`);
  });

  test("two names of one image hash alike, and everything else differs", () => {
    const byName = new Map(vectors.map(({ name, hash }) => [name, hash]));
    expect(byName.get("an image by name")).toBe(byName.get("another name of the same image"));
    expect(new Set(byName.values()).size).toBe(byName.size - 1);
  });
});

const BASE: Digest = `sha256:${"b".repeat(64)}`;
const OTHER: Digest = `sha256:${"c".repeat(64)}`;
const TREE: Digest = `sha256:${"e".repeat(64)}`;

const text = fc.string({ unit: "grapheme", minLength: 1, maxLength: 20 }).filter((value) => !value.includes("\0"));
const packages = fc.array(
  text.filter((value) => value.trim() !== "" && !value.startsWith("-")),
  { minLength: 1, maxLength: 4 },
);
const names = fc.stringMatching(/^[A-Za-z_][A-Za-z0-9_]{0,8}$/);
const users = fc.constantFrom("user", "root", "dev:staff", "1000:1000");
const step = fc.oneof(
  fc.record({ kind: fc.constant("run" as const), command: text, user: fc.option(users, { nil: undefined }) }),
  fc.record({ kind: fc.constant("exec" as const), argv: fc.array(text, { minLength: 1, maxLength: 4 }) }),
  fc.record({ kind: fc.constant("apt" as const), packages }),
  fc.record({ kind: fc.constant("pip" as const), packages }),
  fc.record({ kind: fc.constant("env" as const), variables: fc.dictionary(names, text, { minKeys: 1, maxKeys: 4 }) }),
  fc.record({ kind: fc.constant("workdir" as const), path: fc.constantFrom("/app", "/srv/a", "sub") }),
  fc.record({ kind: fc.constant("user" as const), name: users }),
  fc.record({
    kind: fc.constant("copy" as const),
    tree: fc.constantFrom(TREE, OTHER),
    to: fc.constantFrom("/a", "/a/", "b"),
    mode: fc.option(fc.integer({ min: 0, max: 0o7777 }), { nil: undefined }),
    owner: fc.option(fc.constantFrom("user", "keep"), { nil: undefined }),
  }),
);
const steps = fc.array(step, { minLength: 1, maxLength: 6 });

function recipeOf(given: readonly RecipeStep[], changes: Partial<Recipe> = {}): Recipe {
  return { version: 1, base: { kind: "base" }, steps: given, stages: [], start: null, ...changes };
}

const hashOf = (recipe: Recipe, base: Digest = BASE): Promise<Digest> => recipeHash(recipe, { base });

describe("the hash", () => {
  test("does not depend on the order of members or on what is undefined", async () => {
    await fc.assert(
      fc.asyncProperty(steps, async (given) => {
        const shuffled = given.map((one) => reverseMembers(one)) as RecipeStep[];
        expect(await hashOf(recipeOf(shuffled))).toBe(await hashOf(recipeOf(given)));
      }),
    );
  });

  test("does not depend on what the builder gets, or on what the base is called", async () => {
    const image = Image.from("debian:12").aptInstall(["cmake"]);
    const { recipe } = await image.resolve();
    const hash = await recipeHash(recipe, { "image:debian:12": BASE });
    const big = image.builder({ memoryMb: 8192, cpus: 2, timeoutS: 60, retryOnOom: true }).runtimeMemory(512);
    expect(await recipeHash((await big.resolve()).recipe, { "image:debian:12": BASE })).toBe(hash);
    const other = await Image.from("mirror/debian").aptInstall(["cmake"]).resolve();
    expect(await recipeHash(other.recipe, { "image:mirror/debian": BASE })).toBe(hash);
  });

  test("depends on every text, number and place in the steps", async () => {
    await fc.assert(
      fc.asyncProperty(steps, fc.nat(), fc.nat(), async (given, which, where) => {
        const normal = parseRecipe(recipeOf(given));
        const index = which % normal.steps.length;
        const changed = changeSomething(normal.steps[index] as RecipeStep, where);
        const altered = recipeOf(normal.steps.map((one, at) => (at === index ? changed : one)));
        expect(await hashOf(altered)).not.toBe(await hashOf(normal));
      }),
    );
  });

  test("depends on the order and number of steps, on the base and on the start command", async () => {
    await fc.assert(
      fc.asyncProperty(steps, async (given) => {
        const normal = parseRecipe(recipeOf(given));
        const hash = await hashOf(normal);
        const others = [
          await hashOf(recipeOf([...normal.steps, { kind: "run", command: "true" }])),
          await hashOf(recipeOf(normal.steps.slice(1))),
          await hashOf(normal, OTHER),
          await hashOf(recipeOf(normal.steps, { start: { command: "x" } })),
          await hashOf(recipeOf(normal.steps, { start: { command: "x", readyWhen: { kind: "port", port: 1 } } })),
        ];
        const turned = [...normal.steps].reverse();
        if (canonicalJson(turned) !== canonicalJson(normal.steps)) others.push(await hashOf(recipeOf(turned)));
        expect(new Set([hash, ...others]).size).toBe(others.length + 1);
      }),
    );
  });
});

describe("the chain", () => {
  test("after a step is the same whatever comes later, and differs whatever came before", async () => {
    const noSources = (): Digest => {
      throw new Error("there is no source");
    };
    const one = await stepChain(BASE, { steps: [apt("a"), apt("b"), apt("c")] }, noSources);
    const two = await stepChain(BASE, { steps: [apt("a"), apt("x"), apt("c")] }, noSources);
    expect(one[0]).toBe(two[0]);
    expect(one[1]).not.toBe(two[1]);
    expect(one[2]).not.toBe(two[2]);
    expect(one[0]).toBe(await chainHash(BASE, apt("a")));
  });

  test("of a stage goes on from the end of the stage below it", async () => {
    const flat = await recipeChains(recipeOf([apt("a"), apt("b")]), { base: BASE });
    const staged = await recipeChains(
      recipeOf([apt("b")], {
        base: { kind: "stage", index: 0 },
        stages: [{ base: { kind: "base" }, steps: [apt("a")] }],
      }),
      { base: BASE },
    );
    expect(staged.end).toBe(flat.end);
  });

  test("covers what is copied from other stages and images", async () => {
    const recipe = (command: string): Recipe =>
      recipeOf([{ kind: "copy-from", source: { kind: "stage", index: 1 }, paths: ["/x"], to: "/x" }], {
        stages: [
          { base: { kind: "image", name: "nobody:1" }, steps: [] },
          { base: { kind: "image", name: "alpine" }, steps: [{ kind: "run", command }] },
        ],
      });
    expect(neededStages(recipe("a"))).toEqual([1]);
    expect(externalBases(recipe("a"))).toEqual([{ kind: "image", name: "alpine" }, { kind: "base" }]);
    const bases = { base: BASE, "image:alpine": OTHER };
    const hash = await recipeHash(recipe("a"), bases);
    expect(await recipeHash(recipe("b"), bases)).not.toBe(hash);
    expect(await recipeHash(recipe("a"), { ...bases, "image:alpine": TREE })).not.toBe(hash);
  });

  test("needs a digest for every base that matters", async () => {
    await expect(recipeHash(recipeOf([]), {})).rejects.toThrow('bases: there is no digest for "base"');
    await expect(recipeHash(recipeOf([]), { base: "sha256:x" })).rejects.toThrow('bases["base"]: expected "sha256:"');
  });
});

function apt(name: string): RecipeStep {
  return { kind: "apt", packages: [name] };
}

function reverseMembers(value: unknown): unknown {
  if (typeof value !== "object" || value === null || Array.isArray(value)) return value;
  const entries = Object.entries(value).map(([name, member]) => [name, reverseMembers(member)] as const);
  return Object.fromEntries([...entries.reverse(), ["nothing", undefined]]);
}

/** Another value at one of the leaves, which the rules still allow. */
function changeSomething(value: RecipeStep, where: number): RecipeStep {
  const leaves: (string | number)[][] = [];
  const visit = (at: unknown, path: (string | number)[]): void => {
    if (typeof at !== "object" || at === null) leaves.push(path);
    else for (const [name, member] of Object.entries(at)) if (name !== "kind") visit(member, [...path, name]);
  };
  visit(value, []);
  const path = leaves[where % leaves.length] ?? [];
  const change = (at: unknown, [name, ...rest]: (string | number)[]): unknown => {
    if (name === undefined) {
      if (typeof at === "number") return at === 0 ? 1 : at - 1;
      const given = String(at);
      if (given.startsWith("sha256:")) return `sha256:${"0".repeat(64)}`;
      return given === "keep" ? "kept" : `${given.replace(/\/$/, "")}x`;
    }
    if (Array.isArray(at))
      return at.map((item: unknown, index) => (String(index) === name ? change(item, rest) : item));
    return { ...(at as object), [name]: change((at as Record<string, unknown>)[name], rest) };
  };
  return change(value, path) as RecipeStep;
}
