/** A recipe as a list of things to do: every step with its number, its title and the name of the state that it leads to. */
import {
  type BaseDigests,
  type Digest,
  neededStages,
  type Recipe,
  type RecipeBase,
  type RecipeStage,
  type RecipeStep,
  recipeChains,
  recipeHash,
  type StageChain,
} from "@holdfast/recipe";
import type { BuildStepStatus } from "../types.js";
import type { BuildOrder } from "./build-order.js";
import { sourceText, stepTitle } from "./step-title.js";

export const BASE_STEP = "base";
export const FINALIZE_STEP = "finalize";

export interface PlannedStep {
  /** Its name in the log. */
  readonly label: string;
  readonly title: string;
  readonly step: RecipeStep;
  readonly chain: Digest;
  /** Not to be taken from the cache. */
  readonly forced: boolean;
}

export interface PlannedStage {
  readonly base: RecipeBase;
  readonly steps: readonly PlannedStep[];
}

export interface BuildPlan {
  readonly digest: Digest;
  /** By index; undefined for those that the result does not depend on. */
  readonly stages: readonly (PlannedStage | undefined)[];
  readonly last: PlannedStage;
}

/** The stages that matter, in order, the result's own last. */
function usedStages(recipe: Recipe): { readonly stage: RecipeStage; readonly index: number | undefined }[] {
  return [
    ...neededStages(recipe).flatMap((index) => {
      const stage = recipe.stages[index];
      return stage === undefined ? [] : [{ stage, index }];
    }),
    { stage: recipe, index: undefined },
  ];
}

/** As it stands before anything has been done. */
export function initialSteps({ recipe, trees }: BuildOrder): BuildStepStatus[] {
  const waiting = { state: "waiting", startedAt: null, endedAt: null, memoryPeakBytes: null } as const;
  let number = 0;
  const steps = usedStages(recipe).flatMap(({ stage, index }) =>
    stage.steps.map((step) => {
      number += 1;
      const title = stepTitle(step, trees);
      return { ...waiting, step: String(number), title: index === undefined ? title : `[stage ${index}] ${title}` };
    }),
  );
  return [
    { ...waiting, step: BASE_STEP, title: `FROM ${sourceText(recipe.base)}` },
    ...steps,
    { ...waiting, step: FINALIZE_STEP, title: "FINALIZE" },
  ];
}

export async function planBuild(order: BuildOrder, bases: BaseDigests): Promise<BuildPlan> {
  const { recipe, trees, forceFrom } = order;
  const chains = await recipeChains(recipe, bases);
  let number = 0;
  const planned = (stage: RecipeStage, chain: StageChain, isForced: (index: number) => boolean): PlannedStage => ({
    base: stage.base,
    steps: stage.steps.map((step, index) => {
      number += 1;
      const after = chain.steps[index] ?? chain.end;
      return {
        label: String(number),
        title: stepTitle(step, trees),
        step,
        chain: after,
        forced: isForced(index),
      };
    }),
  });
  const stages: (PlannedStage | undefined)[] = recipe.stages.map(() => undefined);
  let last: PlannedStage | undefined;
  for (const { stage, index } of usedStages(recipe)) {
    const chain = index === undefined ? chains : chains.stages[index];
    if (chain === null || chain === undefined) continue;
    if (index === undefined) {
      last = planned(stage, chain, (step) => forceFrom !== undefined && step >= forceFrom);
    } else {
      // The steps of earlier stages have no numbers of their own to be named by: all or none.
      stages[index] = planned(stage, chain, () => forceFrom === 0);
    }
  }
  return {
    digest: await recipeHash(recipe, bases),
    stages,
    last: last ?? { base: recipe.base, steps: [] },
  };
}
