/** What is to be built, checked: nothing of it can turn out to be nonsense after something has run. */
import { readFileSync } from "node:fs";
import { setImmediate as immediate } from "node:timers/promises";
import { formatBytes, HoldfastError, invalidArgument, resolveSandboxLimits } from "@holdfast/protocol";
import { type Digest, parseRecipe, parseTree, type Recipe, type RecipeStep, type Tree } from "@holdfast/recipe";
import type { ImagesContext } from "../context.js";
import { parseBuildId } from "../store/ids.js";
import { parseImageName, parseImageTag } from "../store/reference.js";
import type { BlobStore, BuildId, BuildRequest, ImageName, ImageRecord, Owner } from "../types.js";
import { type BuildSettings, resolveBuildSettings } from "./build-settings.js";

/** A manifest is held in memory while it is copied, and nothing else goes on while it is read. */
const MAX_TREE_BYTES = 64 * 1024 * 1024;
/** Of all that a recipe names. */
const MAX_TREES_BYTES = 2 * MAX_TREE_BYTES;
const SHOWN_DIGESTS = 20;
const MOST_DIGESTS = 1000;

export interface TreeSummary {
  /** One file, and no directory around it. */
  readonly isFile: boolean;
  readonly files: number;
  readonly sizeBytes: number;
}

export interface BuildOrder {
  readonly recipe: Recipe;
  readonly owner: Owner;
  readonly names: readonly ImageName[];
  readonly settings: BuildSettings;
  readonly id: BuildId | undefined;
  readonly forceFrom: number | undefined;
  readonly limits: ImageRecord["limits"];
  readonly trees: ReadonlyMap<Digest, TreeSummary>;
}

export async function checkRequest(context: ImagesContext, request: BuildRequest): Promise<BuildOrder> {
  const recipe = parseRecipe(request.recipe, "recipe");
  const { forceFrom, limits = {} } = request;
  if (forceFrom !== undefined && (!Number.isSafeInteger(forceFrom) || forceFrom < 0)) {
    throw invalidArgument("forceFrom", forceFrom, "the index of a step, from 0");
  }
  resolveSandboxLimits(limits);
  const names = (request.names ?? []).map((name, index) => ({
    owner: name.owner,
    name: parseImageName(name.name, `names[${index}].name`),
    tag: parseImageTag(name.tag, `names[${index}].tag`),
  }));
  const id = request.id === undefined ? undefined : parseBuildId(request.id, "id");
  const settings = resolveBuildSettings(request.builder, await context.engine.budget());
  const trees = await checkBlobs(recipe, context.store.blobs);
  return { recipe, owner: request.owner, names, settings, id, forceFrom, limits, trees };
}

async function checkBlobs(recipe: Recipe, blobs: BlobStore): Promise<Map<Digest, TreeSummary>> {
  const steps = [...recipe.stages, recipe].flatMap(({ steps }) => steps);
  const archives = steps.flatMap((step) => (step.kind === "copy-archive" ? [step.archive] : []));
  const treeDigests = [...new Set(steps.flatMap((step) => (step.kind === "copy" ? [step.tree] : [])))];
  requireBlobs(blobs, [...archives, ...treeDigests]);
  const summaries = new Map<Digest, TreeSummary>();
  const missing: Digest[] = [];
  const sizeBytes = treeDigests.reduce((sum, digest) => sum + blobs.sizeBytes(digest), 0);
  if (sizeBytes > MAX_TREES_BYTES) throw tooLarge("the manifests of the recipe's files", sizeBytes, MAX_TREES_BYTES);
  for (const digest of treeDigests) {
    // Others have their turn between two of them.
    await immediate();
    const { entries } = readTree(blobs, digest);
    missing.push(...blobs.missing(entries.flatMap((entry) => entry.digest ?? [])));
    summaries.set(digest, {
      isFile: entries.length === 1 && entries[0]?.path === "",
      files: entries.filter(({ type }) => type !== "directory").length,
      sizeBytes: entries.reduce((sum, entry) => sum + (entry.sizeBytes ?? 0), 0),
    });
  }
  refuseMissing(missing);
  for (const step of steps) requireName(step, summaries);
  return summaries;
}

/** A single file that goes into a directory has to be called something there. */
function requireName(step: RecipeStep, trees: ReadonlyMap<Digest, TreeSummary>): void {
  if (step.kind !== "copy" || step.name !== undefined || !step.to.endsWith("/")) return;
  if (trees.get(step.tree)?.isFile !== true) return;
  throw new HoldfastError("invalid_argument", `recipe: a single file is copied into ${step.to}, and has no name`, {
    hint: "Give the step a name, or a destination without a slash at its end.",
    details: { field: "recipe.steps" },
  });
}

function requireBlobs(blobs: BlobStore, digests: readonly Digest[]): void {
  refuseMissing(blobs.missing(digests));
}

function refuseMissing(digests: readonly Digest[]): void {
  const missing = [...new Set(digests)];
  if (missing.length === 0) return;
  const shown = missing.slice(0, SHOWN_DIGESTS).join(", ");
  const more = missing.length > SHOWN_DIGESTS ? ` and ${missing.length - SHOWN_DIGESTS} more` : "";
  throw new HoldfastError("invalid_argument", `recipe: the content of some of its files is not here: ${shown}${more}`, {
    hint: "Send the blobs first; only those that are missing.",
    details: { field: "recipe", missing: missing.slice(0, MOST_DIGESTS), missingCount: missing.length },
  });
}

function tooLarge(what: string, sizeBytes: number, mostBytes: number): HoldfastError {
  return new HoldfastError(
    "invalid_argument",
    `recipe: ${what} came to ${formatBytes(sizeBytes)}, more than ${formatBytes(mostBytes)}`,
    {
      hint: "That is several hundred thousand files. Leave out with an ignore file what is not needed, or add them as an archive.",
      details: { field: "recipe", sizeBytes, mostBytes },
    },
  );
}

export function readTree(blobs: BlobStore, digest: Digest): Tree {
  const size = blobs.sizeBytes(digest);
  if (size > MAX_TREE_BYTES) throw tooLarge(`the manifest ${digest}`, size, MAX_TREE_BYTES);
  let value: unknown;
  try {
    value = JSON.parse(readFileSync(blobs.path(digest), "utf8"));
  } catch (error) {
    if (!(error instanceof SyntaxError)) throw error;
    throw invalidArgument(`tree ${digest}`, "other bytes", "a manifest in JSON");
  }
  return parseTree(value, `tree ${digest}`);
}
