/** COPY, and ADD of local files. */
import { HoldfastError } from "@holdfast/protocol";
import type { Digest, RecipeBase, RecipeStep } from "../recipe.js";
import { dockerfileFault } from "./fault.js";
import type { Instruction } from "./instructions.js";
import type { Scope } from "./scope.js";
import { type DockerfileStage, findSource } from "./stages.js";
import { parseJsonForm, takeFlags } from "./words.js";

export interface CopyRequest {
  /** As written: relative to the context, with wildcards. */
  readonly sources: readonly string[];
  /** The target is a directory, so that single files keep their names. */
  readonly intoDirectory: boolean;
  /** ADD would unpack them. */
  readonly refuseArchives: boolean;
}

export interface CopiedTree {
  readonly tree: Digest;
  /** Of a single file that becomes the target itself. */
  readonly name?: string | undefined;
}

/** Where the files of a Dockerfile are. Nothing is read that no COPY names. */
export interface CopyContext {
  copy(request: CopyRequest): Promise<CopiedTree>;
}

interface CopyEnvironment {
  readonly scope: Scope;
  readonly stages: readonly DockerfileStage[];
  readonly expand: (word: string) => string;
  readonly context: CopyContext;
}

const FLAGS: Readonly<Record<string, readonly string[]>> = {
  COPY: ["from", "chown", "chmod"],
  ADD: ["chown", "chmod"],
};
const REMOTE = /^(?:[a-z][a-z0-9+.-]*:\/\/|git@)/i;

/** The other stage or image that a COPY reads from. */
export function copySource(instruction: Instruction, stages: readonly DockerfileStage[]): RecipeBase | undefined {
  if (instruction.name !== "COPY") return undefined;
  const from = takeFlags(instruction.rest).flags.get("from");
  if (from === undefined) return undefined;
  if (from === null || from === "" || from.includes("$")) {
    throw dockerfileFault(instruction, "COPY --from needs the name of a stage or an image, without variables");
  }
  if (!/^\d+$/.test(from)) return findSource(from, stages, instruction, "COPY --from");
  if (stages[Number(from)] === undefined)
    throw dockerfileFault(instruction, `COPY --from=${from}: there is no such stage before`);
  return { kind: "stage", index: Number(from) };
}

export async function convertCopy(instruction: Instruction, environment: CopyEnvironment): Promise<RecipeStep> {
  const { scope, stages, expand, context } = environment;
  const { name } = instruction;
  if (instruction.heredocs.length > 0) {
    throw dockerfileFault(
      instruction,
      `${name} with a heredoc is not supported`,
      "COPY a file, or RUN cat with a heredoc.",
    );
  }
  const { flags, rest } = takeFlags(instruction.rest);
  for (const flag of flags.keys()) {
    if (FLAGS[name]?.includes(flag) !== true) throw dockerfileFault(instruction, `${name} --${flag} is not supported`);
  }
  const words = readWords(instruction, rest).map(expand);
  const target = words.pop();
  if (target === undefined || words.length === 0) {
    throw dockerfileFault(instruction, `${name} needs at least one source and a target`);
  }
  if (words.includes("") || target === "")
    throw dockerfileFault(instruction, `${name}: a source or the target is empty`);
  const to = scope.fromWorkdir(target);
  const intoDirectory = /(^|\/)\.{0,2}$/.test(target);
  if (words.length > 1 && !intoDirectory) {
    throw dockerfileFault(instruction, `${name} ${rest}: several sources need a target that ends with a slash`);
  }
  const mode = readChmod(flags.get("chmod"), instruction, expand);
  const owner = flags.has("chown") ? expand(flags.get("chown") ?? "") : undefined;
  const source = copySource(instruction, stages);
  if (source !== undefined) {
    // Owners in another image are kept unless somebody says otherwise; those of the context are nobody's in the image.
    return { kind: "copy-from", source, paths: words, to, owner: owner ?? "keep", mode };
  }
  const remote = words.find((word) => REMOTE.test(word));
  if (remote !== undefined) {
    throw dockerfileFault(instruction, `${name} of a URL is not supported: ${remote}`, "RUN curl or git instead.");
  }
  try {
    const copied = await context.copy({ sources: words, intoDirectory, refuseArchives: name === "ADD" });
    return { kind: "copy", ...copied, to, owner, mode };
  } catch (error) {
    const { code, message, hint } = HoldfastError.from(error);
    if (code !== "invalid_argument") throw error;
    throw dockerfileFault(instruction, `${name}: ${message}`, hint, error);
  }
}

/** White space separates them, whatever the quotes: paths with spaces need the JSON form. */
function readWords(instruction: Instruction, rest: string): string[] {
  const json = parseJsonForm(rest);
  if (json === null) {
    throw dockerfileFault(instruction, `${instruction.name}: the list may hold nothing but texts in double quotes`);
  }
  return json ?? rest.split(/\s+/).filter((word) => word !== "");
}

function readChmod(
  flag: string | null | undefined,
  instruction: Instruction,
  expand: (word: string) => string,
): number | undefined {
  if (flag === undefined) return undefined;
  const text = expand(flag ?? "");
  if (!/^[0-7]{3,4}$/.test(text)) {
    throw dockerfileFault(instruction, `${instruction.name} --chmod=${text}: expected an octal mode such as 755`);
  }
  return Number.parseInt(text, 8);
}
