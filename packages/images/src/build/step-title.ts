/** A step in the words of a person. */
import { formatBytes, printable } from "@holdfast/protocol";
import type { Digest, RecipeBase, RecipeStep } from "@holdfast/recipe";
import type { TreeSummary } from "./build-order.js";

const MAX_TITLE_CHARS = 160;

export function stepTitle(step: RecipeStep, trees: ReadonlyMap<Digest, TreeSummary>): string {
  const text = printable(titleText(step, trees).replaceAll(/\s+/g, " ").trim());
  return text.length <= MAX_TITLE_CHARS ? text : `${text.slice(0, MAX_TITLE_CHARS - 1)}…`;
}

function titleText(step: RecipeStep, trees: ReadonlyMap<Digest, TreeSummary>): string {
  switch (step.kind) {
    case "run":
      return `RUN ${step.command}`;
    case "exec":
      return `RUN ${JSON.stringify(step.argv)}`;
    case "apt":
    case "pip":
    case "npm":
      return `${step.kind.toUpperCase()} ${step.packages.join(" ")}`;
    // Values may be secrets, and titles go everywhere.
    case "env":
      return `ENV ${Object.keys(step.variables).join(" ")}`;
    case "workdir":
      return `WORKDIR ${step.path}`;
    case "user":
      return `USER ${step.name}`;
    case "copy":
      return `COPY ${step.name ?? "./"} -> ${step.to}${contentText(trees.get(step.tree))}`;
    case "copy-archive":
      return `COPY ${step.from} -> ${step.to}`;
    case "copy-from":
      return `COPY ${step.paths.join(" ")} -> ${step.to} (from ${sourceText(step.source)})`;
    case "entrypoint":
    case "cmd":
      return `${step.kind.toUpperCase()} ${JSON.stringify(step.argv)}`;
    case "expose":
      return `EXPOSE ${step.ports.join(" ")}`;
    case "label":
      return `LABEL ${Object.keys(step.labels).join(" ")}`;
  }
}

function contentText(summary: TreeSummary | undefined): string {
  if (summary === undefined) return "";
  const files = summary.files === 1 ? "1 file" : `${summary.files} files`;
  return ` (${files}, ${formatBytes(summary.sizeBytes)})`;
}

export function sourceText(source: RecipeBase): string {
  switch (source.kind) {
    case "base":
      return "base";
    case "image":
      return source.name;
    case "snapshot":
      return `snapshot ${source.id}`;
    case "stage":
      return `stage ${source.index}`;
  }
}
