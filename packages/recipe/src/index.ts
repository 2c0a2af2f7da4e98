/** What an image is to be made of. Nothing here needs Node, except what reads local files: that is loaded when it is used. */
export { BlobList } from "./blob-list.js";
export { canonicalJson } from "./canonical-json.js";
export { digestOfBytes, digestOfJson, isDigest } from "./digest.js";
export { type ConvertOptions, convertDockerfile } from "./dockerfile/convert.js";
export type { CopiedTree, CopyContext, CopyRequest } from "./dockerfile/copy.js";
export type { DockerfileOptions, Draft, DraftBase, DraftStep, LocalStep } from "./draft.js";
export { type GlobOptions, type GlobPattern, globPattern, hasWildcard } from "./glob.js";
export { IgnoreRules, type RuleMatches } from "./ignore-rules.js";
export { Image, type LocalDirOptions } from "./image.js";
export { parseBuilderOptions } from "./parse-builder-options.js";
export { MAX_RECIPE_BYTES, MAX_STAGES, MAX_STEPS, parseRecipe } from "./parse-recipe.js";
export { parseStep } from "./parse-step.js";
export { MAX_TREE_ENTRIES, parseTree } from "./parse-tree.js";
export type { ReadyCondition } from "./ready-when.js";
export * from "./recipe.js";
export {
  type BaseDigests,
  baseKey,
  chainHash,
  type ExternalBase,
  externalBases,
  neededStages,
  type RecipeChains,
  recipeChains,
  recipeHash,
  type StageChain,
  stepChain,
} from "./recipe-hash.js";
export type { ResolvedImage } from "./resolve-draft.js";
export * from "./tree.js";
export { expandVariables } from "./variables.js";
