/** Recipes from values that nobody vouches for. What comes out is in its normal form, and parsing it again changes nothing. */
import { HoldfastError } from "@holdfast/protocol";
import { canonicalJson } from "./canonical-json.js";
import { byteLength, type Members, member, readList, readObject, refuse } from "./fields.js";
import { parseBase, parseStep } from "./parse-step.js";
import { parseStartCommand } from "./ready-when.js";
import type { Recipe, RecipeStage } from "./recipe.js";

export const MAX_STEPS = 1000;
export const MAX_STAGES = 64;
export const MAX_RECIPE_BYTES = 4 * 1024 * 1024;

export function parseRecipe(value: unknown, field = ""): Recipe {
  const members = readObject(value, field, ["version", "base", "steps", "stages", "start"]);
  if (members.get("version") !== 1) throw refuse(members.at("version"), members.get("version"), "1");
  const given = members.get("stages");
  const stages = readList(given, members.at("stages"), (item) => item, { maxItems: MAX_STAGES, mayBeEmpty: true }).map(
    (stage, index) => parseStage(stage, `${members.at("stages")}[${index}]`, index),
  );
  const start = members.get("start");
  const recipe: Recipe = {
    version: 1,
    ...readStage(members, stages.length),
    stages,
    start: start === null ? null : parseStartCommand(start, members.at("start")),
  };
  const stepCount = recipe.steps.length + stages.reduce((sum, stage) => sum + stage.steps.length, 0);
  if (stepCount > MAX_STEPS) throw refuse(member(field, "steps"), `${stepCount} steps`, `at most ${MAX_STEPS} in all`);
  const sizeBytes = byteLength(canonicalJson(recipe));
  if (sizeBytes > MAX_RECIPE_BYTES) {
    throw new HoldfastError(
      "invalid_argument",
      `${field === "" ? "the recipe" : field} has ${sizeBytes} bytes, more than ${MAX_RECIPE_BYTES}`,
      { hint: "Add long texts as files: they travel beside the recipe.", details: { field, sizeBytes } },
    );
  }
  return recipe;
}

function parseStage(value: unknown, field: string, index: number): RecipeStage {
  return readStage(readObject(value, field, ["base", "steps"]), index);
}

function readStage(members: Members, stageCount: number): RecipeStage {
  return {
    base: parseBase(members.get("base"), members.at("base"), stageCount),
    steps: readList(members.get("steps"), members.at("steps"), (step, at) => parseStep(step, at, stageCount), {
      maxItems: MAX_STEPS,
      mayBeEmpty: true,
    }),
  };
}
