/** From a declaration to a recipe and the blobs it needs. Only what lies in files needs Node. */
import { BlobList } from "./blob-list.js";
import type { Draft, DraftStep } from "./draft.js";
import { defined } from "./fields.js";
import { parseRecipe } from "./parse-recipe.js";
import type { BuilderOptions, Recipe, RecipeBase, RecipeStage, RecipeStep } from "./recipe.js";
import type { BlobSource } from "./tree.js";

export interface ResolvedImage {
  readonly recipe: Recipe;
  /** Everything that the recipe's trees speak of, and the trees themselves. */
  readonly blobs: readonly BlobSource[];
  readonly builder: BuilderOptions;
}

/** Loaded when a file is read, so that a browser never sees it. */
async function loadLocal(): Promise<typeof import("./local/index.js")> {
  return import("./local/index.js");
}

export async function resolveDraft(draft: Draft): Promise<ResolvedImage> {
  const blobs = new BlobList();
  const resolver = new Resolver(blobs);
  const top = await resolver.stage(draft);
  const recipe = parseRecipe({ version: 1, ...top, stages: resolver.stages, start: draft.start }, "image");
  return { recipe, blobs: blobs.list(), builder: draft.builder };
}

class Resolver {
  readonly stages: RecipeStage[] = [];
  readonly #blobs: BlobList;
  /** Images that files are copied from, by what they were declared as: two copies from one image are one stage. */
  readonly #indexes = new Map<Draft, number>();

  constructor(blobs: BlobList) {
    this.#blobs = blobs;
  }

  async stage(draft: Draft): Promise<RecipeStage> {
    const { base, steps } = await this.#base(draft);
    const resolved: RecipeStep[] = [...steps];
    for (const step of draft.steps) resolved.push(await this.#step(step));
    return { base, steps: resolved };
  }

  async #base({ base }: Draft): Promise<RecipeStage> {
    if (base.kind !== "dockerfile") return { base, steps: [] };
    const { path, kind: _, ...options } = base;
    const { readDockerfile } = await loadLocal();
    const { stages, ...top } = await readDockerfile(path, { ...options, blobs: this.#blobs });
    const offset = this.stages.length;
    this.stages.push(...stages.map((stage) => moveStage(stage, offset)));
    return moveStage(top, offset);
  }

  async #step(step: DraftStep): Promise<RecipeStep> {
    switch (step.kind) {
      case "inline-file": {
        const digest = await this.#blobs.addBytes(step.content);
        const entry = {
          path: "",
          type: "file",
          mode: step.mode ?? 0o644,
          sizeBytes: step.content.length,
          digest,
        } as const;
        const tree = await this.#blobs.addTree({ version: 1, entries: [entry] });
        return defined({ kind: "copy", tree, to: step.to, owner: step.owner });
      }
      case "local-file":
        return (await loadLocal()).readLocalFile(step, this.#blobs);
      case "local-dir":
        return (await loadLocal()).readLocalDirectory(step, this.#blobs);
      case "copy-image": {
        const { kind: _, source, ...copy } = step;
        return { kind: "copy-from", source: { kind: "stage", index: await this.#stageOf(source) }, ...copy };
      }
      default:
        return step;
    }
  }

  async #stageOf(draft: Draft): Promise<number> {
    const known = this.#indexes.get(draft);
    if (known !== undefined) return known;
    const stage = await this.stage(draft);
    const index = this.stages.push(stage) - 1;
    this.#indexes.set(draft, index);
    return index;
  }
}

/** The same stage when others have been put before it. */
function moveStage(stage: RecipeStage, offset: number): RecipeStage {
  const move = (base: RecipeBase): RecipeBase =>
    base.kind === "stage" ? { kind: "stage", index: base.index + offset } : base;
  return {
    base: move(stage.base),
    steps: stage.steps.map((step) => (step.kind === "copy-from" ? { ...step, source: move(step.source) } : step)),
  };
}
