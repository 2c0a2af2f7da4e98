/**
 * The names of what a recipe makes: one for the whole, and one for the state after each step, which is what a step cache
 * goes by. Each is the SHA-256 of canonical JSON. docs/images.md has the definition, golden/image-hash.json the vectors.
 *
 * A step's name covers its parent's, and so everything that was in force when it ran: the variables, the work directory
 * and the user that earlier steps have set.
 */
import { HoldfastError } from "@holdfast/protocol";
import { canonicalJson } from "./canonical-json.js";
import { digestOfBytes } from "./digest.js";
import { parseRecipe } from "./parse-recipe.js";
import { parseStep, readDigest } from "./parse-step.js";
import type { Digest, Recipe, RecipeBase, RecipeStage, RecipeStep } from "./recipe.js";

export type ExternalBase = Exclude<RecipeBase, { kind: "stage" }>;

/** What each base has turned out to be, by `baseKey`. */
export type BaseDigests = Readonly<Record<string, Digest>>;

/** `base`, `image:debian:12`, `snapshot:…`. */
export function baseKey(base: ExternalBase): string {
  switch (base.kind) {
    case "base":
      return "base";
    case "image":
      return `image:${base.name}`;
    case "snapshot":
      return `snapshot:${base.id}`;
  }
}

function sourcesOf({ base, steps }: RecipeStage): RecipeBase[] {
  return [base, ...steps.flatMap((step) => (step.kind === "copy-from" ? [step.source] : []))];
}

/** The stages that the result depends on, in the order in which they can be built. */
export function neededStages(recipe: Recipe): number[] {
  const needed = new Set<number>();
  const visit = (stage: RecipeStage): void => {
    for (const source of sourcesOf(stage)) {
      const used = source.kind === "stage" ? recipe.stages[source.index] : undefined;
      if (source.kind !== "stage" || used === undefined || needed.has(source.index)) continue;
      needed.add(source.index);
      visit(used);
    }
  };
  visit(recipe);
  return [...needed].sort((one, other) => one - other);
}

/** What has to be found before the recipe can be hashed or built, each once. */
export function externalBases(recipe: Recipe): ExternalBase[] {
  const stages = [...neededStages(recipe).map((index) => recipe.stages[index] as RecipeStage), recipe];
  const found = new Map<string, ExternalBase>();
  for (const source of stages.flatMap(sourcesOf)) if (source.kind !== "stage") found.set(baseKey(source), source);
  return [...found.values()];
}

/** The text that is hashed for a step. */
export function chainText(parent: Digest, step: RecipeStep, extra: { readonly source?: Digest } = {}): string {
  if (step.kind !== "copy-from") return canonicalJson({ parent, step: parseStep(step, "step"), version: 1 });
  const source = readDigest(extra.source, "source");
  // The source's name is replaced by what it stands for; the number of stages before has been checked with the recipe.
  const named = parseStep({ ...step, source: { kind: "base" } }, "step");
  return canonicalJson({ parent, step: { ...named, source }, version: 1 });
}

/** The state after `step` in the state `parent`. `source`: what a `copy-from` copies from. */
export async function chainHash(
  parent: Digest,
  step: RecipeStep,
  extra: { readonly source?: Digest } = {},
): Promise<Digest> {
  return hashOf(chainText(parent, step, extra));
}

/** The state after each of a stage's steps. */
export async function stepChain(
  base: Digest,
  stage: Pick<RecipeStage, "steps">,
  digestOfSource: (source: RecipeBase) => Digest,
): Promise<Digest[]> {
  const chain: Digest[] = [];
  let parent = base;
  for (const step of stage.steps) {
    parent = await chainHash(parent, step, step.kind === "copy-from" ? { source: digestOfSource(step.source) } : {});
    chain.push(parent);
  }
  return chain;
}

export interface StageChain {
  readonly base: Digest;
  /** After each step. */
  readonly steps: readonly Digest[];
  /** After the last; the base itself if there are none. */
  readonly end: Digest;
}

export interface RecipeChains extends StageChain {
  /** Null for stages that the result does not depend on. */
  readonly stages: readonly (StageChain | null)[];
}

export async function recipeChains(given: Recipe, bases: BaseDigests): Promise<RecipeChains> {
  const recipe = parseRecipe(given, "recipe");
  const stages: (StageChain | null)[] = recipe.stages.map(() => null);
  const digestOf = (source: RecipeBase): Digest => {
    if (source.kind !== "stage") return requireBase(source, bases);
    const end = stages[source.index]?.end;
    if (end === undefined) throw new HoldfastError("engine_fault", `stage ${source.index} has no hash yet`);
    return end;
  };
  const chainOf = async (stage: RecipeStage): Promise<StageChain> => {
    const base = digestOf(stage.base);
    const steps = await stepChain(base, stage, digestOf);
    return { base, steps, end: steps.at(-1) ?? base };
  };
  for (const index of neededStages(recipe)) stages[index] = await chainOf(recipe.stages[index] as RecipeStage);
  return { ...(await chainOf(recipe)), stages };
}

function requireBase(base: ExternalBase, bases: BaseDigests): Digest {
  const key = baseKey(base);
  if (!Object.hasOwn(bases, key)) {
    throw new HoldfastError("invalid_argument", `bases: there is no digest for ${JSON.stringify(key)}`, {
      details: { field: "bases", key },
      hint: "Give one for each of externalBases(recipe).",
    });
  }
  return readDigest(bases[key], `bases[${JSON.stringify(key)}]`);
}

/** The text that is hashed for the whole. */
export async function recipeText(recipe: Recipe, bases: BaseDigests): Promise<string> {
  const { start } = parseRecipe(recipe, "recipe");
  const { end } = await recipeChains(recipe, bases);
  return canonicalJson({ chain: end, start, version: 1 });
}

/** The content hash: alike for everything that gives the same image, whatever it is called and however it was built. */
export async function recipeHash(recipe: Recipe, bases: BaseDigests): Promise<Digest> {
  return hashOf(await recipeText(recipe, bases));
}

async function hashOf(text: string): Promise<Digest> {
  return digestOfBytes(new TextEncoder().encode(text));
}
