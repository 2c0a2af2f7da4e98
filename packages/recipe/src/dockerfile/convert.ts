/** From a Dockerfile to a recipe, or a refusal by name and line: nothing is passed over in silence. */
import { HoldfastError } from "@holdfast/protocol";
import { parseRecipe } from "../parse-recipe.js";
import { parseStep } from "../parse-step.js";
import type { Recipe, RecipeBase, RecipeStage, RecipeStep } from "../recipe.js";
import { expandWord, templateOf, textOf, UNKNOWN } from "../variables.js";
import { type CopyContext, convertCopy, copySource } from "./copy.js";
import { dockerfileFault } from "./fault.js";
import { type Instruction, splitInstructions } from "./instructions.js";
import { Scope } from "./scope.js";
import {
  type DockerfileStage,
  type DockerfileStages,
  expandText,
  platformArgs,
  readArgs,
  splitStages,
} from "./stages.js";
import { parseJsonForm, splitWords, takeFlags } from "./words.js";

export interface ConvertOptions {
  /** For messages: `Dockerfile`. */
  readonly file: string;
  readonly target?: string | undefined;
  readonly args?: Readonly<Record<string, string>> | undefined;
  /** `linux/amd64`: the one that the image is for. */
  readonly platform: string;
  /** Where COPY and ADD find their files. */
  readonly context: CopyContext;
}

export async function convertDockerfile(text: string, options: ConvertOptions): Promise<Recipe> {
  const { args = {}, file, platform } = options;
  const list = splitInstructions(text, file);
  if (list.instructions.length === 0) throw dockerfileFault({ file, line: 1 }, "there is no instruction");
  const dockerfile = splitStages(list, { args, platform });
  requireDeclared(args, list.instructions, list.escapeCharacter, platform);
  const target = findTarget(dockerfile.stages, options);
  const needed = neededFor(target, dockerfile.stages);
  const converter = new Converter(dockerfile, options);
  const converted = new Map<number, RecipeStage>();
  for (const index of needed) converted.set(index, await converter.convert(index));
  // Stages that nothing needs are left out, and the others move up.
  const positions = new Map(needed.filter((index) => index !== target).map((index, position) => [index, position]));
  const stages = needed.map((index) => renumber(converted.get(index) as RecipeStage, positions));
  const top = stages.pop() as RecipeStage;
  return parseRecipe({ version: 1, ...top, stages, start: null }, file);
}

/** A value for an ARG that the file does not have would be lost in silence. */
function requireDeclared(
  args: Readonly<Record<string, string>>,
  instructions: readonly Instruction[],
  escapeCharacter: string,
  platform: string,
): void {
  const declared = instructions
    .filter(({ name }) => name === "ARG")
    .flatMap((instruction) => splitWords(instruction.rest, escapeCharacter).map((word) => word.replace(/=.*$/s, "")));
  const unknown = Object.keys(args).find((name) => !declared.includes(name));
  if (unknown !== undefined) {
    throw new HoldfastError("invalid_argument", `args.${unknown}: the Dockerfile has no ARG of this name`, {
      details: { field: `args.${unknown}` },
      hint: `It has ${declared.filter((name) => !platformArgs(platform).has(name)).join(", ") || "none"}.`,
    });
  }
}

function findTarget(stages: readonly DockerfileStage[], { target, file }: ConvertOptions): number {
  if (target === undefined) return stages.length - 1;
  const byName = stages.findLastIndex(({ name }) => name === target.toLowerCase());
  const index = byName === -1 && /^\d+$/.test(target) ? Number(target) : byName;
  if (stages[index] === undefined) {
    const names = stages.flatMap(({ name }) => name ?? []);
    throw new HoldfastError("invalid_argument", `target: ${file} has no stage ${JSON.stringify(target)}`, {
      details: { field: "target" },
      hint: names.length === 0 ? "None of its stages has a name." : `It has ${names.join(", ")}.`,
    });
  }
  return index;
}

/** In the order of the file, the target last. */
function neededFor(target: number, stages: readonly DockerfileStage[]): number[] {
  const needed = new Set<number>();
  const visit = (index: number): void => {
    const stage = stages[index];
    if (stage === undefined || needed.has(index)) return;
    needed.add(index);
    const before = stages.slice(0, index);
    const sources = stage.instructions.flatMap((instruction) => copySource(instruction, before) ?? []);
    for (const source of [stage.base, ...sources]) if (source.kind === "stage") visit(source.index);
  };
  visit(target);
  return [...needed].sort((one, other) => one - other);
}

function renumber(stage: RecipeStage, positions: ReadonlyMap<number, number>): RecipeStage {
  const move = (base: RecipeBase): RecipeBase =>
    base.kind === "stage" ? { kind: "stage", index: positions.get(base.index) as number } : base;
  return {
    base: move(stage.base),
    steps: stage.steps.map((step) => (step.kind === "copy-from" ? { ...step, source: move(step.source) } : step)),
  };
}

class Converter {
  readonly #dockerfile: DockerfileStages;
  readonly #options: ConvertOptions;
  readonly #scopes = new Map<number, Scope>();

  constructor(dockerfile: DockerfileStages, options: ConvertOptions) {
    this.#dockerfile = dockerfile;
    this.#options = options;
  }

  async convert(index: number): Promise<RecipeStage> {
    const { base, instructions } = this.#dockerfile.stages[index] as DockerfileStage;
    const scope = Scope.after(base.kind === "stage" ? this.#scopes.get(base.index) : undefined);
    this.#scopes.set(index, scope);
    const before = this.#dockerfile.stages.slice(0, index);
    const steps: RecipeStep[] = [];
    for (const instruction of instructions) {
      for (const step of await this.#steps(instruction, scope, before)) {
        steps.push(check(step, instruction, index));
        if (step.kind === "workdir") scope.setWorkdir(step.path);
      }
    }
    // As docker has it: a new entrypoint does away with the base's command, which was meant for the base's entrypoint.
    const entrypoint = steps.findIndex(({ kind }) => kind === "entrypoint");
    if (entrypoint !== -1 && !steps.some(({ kind }) => kind === "cmd")) {
      steps.splice(entrypoint + 1, 0, { kind: "cmd", argv: [] });
    }
    return { base, steps };
  }

  async #steps(
    instruction: Instruction,
    scope: Scope,
    before: readonly DockerfileStage[],
  ): Promise<readonly RecipeStep[]> {
    const { escapeCharacter } = this.#dockerfile;
    const { name, rest } = instruction;
    const { lookup } = scope;
    const expand = (word: string): string =>
      expandText(word, { escapeCharacter, lookup, place: instruction, of: name });
    if (rest === "") throw dockerfileFault(instruction, `${name} needs an argument`);
    switch (name) {
      case "ARG":
        this.#declareArgs(instruction, scope);
        return [];
      case "RUN":
        return [convertRun(instruction, scope)];
      case "COPY":
      case "ADD":
        return [await convertCopy(instruction, { scope, stages: before, expand, context: this.#options.context })];
      case "ENV":
        return [convertEnv(instruction, scope, escapeCharacter)];
      case "LABEL":
        return [
          {
            kind: "label",
            labels: Object.fromEntries(
              readPairs(instruction, escapeCharacter).map(([key, value]) => [expand(key), expand(value)]),
            ),
          },
        ];
      case "WORKDIR":
        return [{ kind: "workdir", path: scope.fromWorkdir(expand(rest)) }];
      case "USER":
        return [{ kind: "user", name: expand(rest) }];
      case "EXPOSE":
        return [
          {
            kind: "expose",
            ports: splitWords(rest, escapeCharacter).flatMap((word) => readPorts(expand(word), instruction)),
          },
        ];
      case "CMD":
        return [{ kind: "cmd", argv: readCommand(instruction) }];
      case "ENTRYPOINT":
        return [{ kind: "entrypoint", argv: readCommand(instruction) }];
      default:
        throw dockerfileFault(instruction, `${name} is not supported`);
    }
  }

  #declareArgs(instruction: Instruction, scope: Scope): void {
    const { globalArgs, escapeCharacter } = this.#dockerfile;
    const { args = {}, platform } = this.#options;
    for (const [name, fallback] of readArgs(instruction, escapeCharacter, scope.lookup)) {
      const given = Object.hasOwn(args, name) ? args[name] : undefined;
      scope.setArg(name, given ?? fallback ?? globalArgs.get(name) ?? platformArgs(platform).get(name));
    }
  }
}

/** The normal form, and what is wrong with it by line. */
function check(step: RecipeStep, instruction: Instruction, stageCount: number): RecipeStep {
  try {
    return parseStep(step, "", stageCount);
  } catch (error) {
    const { message, hint } = HoldfastError.from(error);
    throw dockerfileFault(instruction, `${instruction.name}: ${message}`, hint, error);
  }
}

function readJson(instruction: Instruction, text: string): string[] | undefined {
  const json = parseJsonForm(text);
  if (json !== null) return json;
  throw dockerfileFault(instruction, `${instruction.name}: the list may hold nothing but texts in double quotes`);
}

function convertRun(instruction: Instruction, scope: Scope): RecipeStep {
  const { flags, rest } = takeFlags(instruction.rest);
  for (const flag of flags.keys()) throw dockerfileFault(instruction, `RUN --${flag} is not supported`);
  const env = scope.runEnvironment();
  const argv = readJson(instruction, rest);
  if (argv !== undefined) return { kind: "exec", argv, env };
  const { heredocs } = instruction;
  const [only] = heredocs;
  if (only === undefined) return { kind: "run", command: rest, env };
  if (heredocs.length > 1 || /\s/.test(rest)) {
    // A command with heredocs in it: the shell can read them itself.
    const command = [rest, ...heredocs.map(({ content, name }) => `${content}${name}`)].join("\n");
    return { kind: "run", command, env };
  }
  if (only.content.startsWith("#!")) {
    throw dockerfileFault(
      instruction,
      "RUN with a heredoc that begins with #! is not supported",
      "COPY the script, then RUN it.",
    );
  }
  return { kind: "run", command: only.chomps ? only.content.replace(/^\t+/gm, "") : only.content, env };
}

function convertEnv(instruction: Instruction, scope: Scope, escapeCharacter: string): RecipeStep {
  const pairs = readPairs(instruction, escapeCharacter).map(([key, value]) => {
    const name = expandText(key, { escapeCharacter, lookup: scope.lookup, place: instruction, of: "ENV" });
    try {
      return { name, parts: expandWord(value, { escapeCharacter, lookup: scope.lookup }) };
    } catch (error) {
      const { message, hint } = HoldfastError.from(error);
      throw dockerfileFault(instruction, `ENV ${name}: ${message}`, hint, error);
    }
  });
  const expand = pairs.some(({ parts }) => "unknown" in textOf(parts));
  for (const { name, parts } of pairs) {
    const result = textOf(parts);
    scope.setEnv(name, "text" in result ? result.text : UNKNOWN);
  }
  const written = pairs.map(({ name, parts }) => [name, expand ? templateOf(parts) : parts.join("")]);
  return { kind: "env", variables: Object.fromEntries(written) as Record<string, string>, expand };
}

/** `a=1 b="2 3"`, or the old form with one name and the rest of the line. */
function readPairs(instruction: Instruction, escapeCharacter: string): [string, string][] {
  const { name, rest } = instruction;
  const words = splitWords(rest, escapeCharacter);
  if (words[0]?.includes("=") !== true) {
    const [, key, value] = /^(\S+)\s+(.+)$/s.exec(rest) ?? [];
    if (key === undefined || value === undefined)
      throw dockerfileFault(instruction, `${name} ${rest}: a value is missing`);
    return [[key, value]];
  }
  return words.map((word) => {
    const equals = word.indexOf("=");
    if (equals < 1) throw dockerfileFault(instruction, `${name}: expected name=value, got ${word}`);
    return [word.slice(0, equals), word.slice(equals + 1)];
  });
}

function readCommand(instruction: Instruction): string[] {
  return readJson(instruction, instruction.rest) ?? ["/bin/sh", "-c", instruction.rest];
}

/** `8000-8002/tcp` is three ports. */
function readPorts(text: string, instruction: Instruction): string[] {
  const [, first, last, protocol = ""] = /^(\d{1,5})-(\d{1,5})(\/\w+)?$/.exec(text) ?? [];
  if (first === undefined || last === undefined) return [text];
  const count = Number(last) - Number(first) + 1;
  if (count < 1 || count > 1000)
    throw dockerfileFault(instruction, `EXPOSE ${text}: expected a range of 1 to 1000 ports`);
  return Array.from({ length: count }, (_, index) => `${Number(first) + index}${protocol}`);
}
