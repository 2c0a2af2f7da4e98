/** A Dockerfile as stages: what each starts from, and what it takes from others. */
import { HoldfastError } from "@holdfast/protocol";
import { parseBase } from "../parse-step.js";
import type { RecipeBase } from "../recipe.js";
import { expandWord, type Lookup, textOf } from "../variables.js";
import { dockerfileFault, type Place } from "./fault.js";
import type { Instruction, InstructionList } from "./instructions.js";
import { splitWords, takeFlags } from "./words.js";

export interface DockerfileStage {
  /** In lower case. */
  readonly name: string | undefined;
  readonly from: Instruction;
  /** Stages by their place in the file. */
  readonly base: RecipeBase;
  readonly instructions: readonly Instruction[];
}

export interface DockerfileStages {
  readonly stages: readonly DockerfileStage[];
  /** ARGs before the first FROM: for FROM, and the defaults of those declared again. */
  readonly globalArgs: ReadonlyMap<string, string | undefined>;
  readonly escapeCharacter: string;
}

const SUPPORTED = [
  "FROM",
  "RUN",
  "COPY",
  "ADD",
  "ENV",
  "WORKDIR",
  "USER",
  "ARG",
  "CMD",
  "ENTRYPOINT",
  "EXPOSE",
  "LABEL",
];
const STAGE_NAME = /^[a-z][a-z0-9_.-]*$/;
const NAMES_OF_X64 = ["amd64", "x86_64", "x86-64"];
const NAMES_OF_ARM64 = ["arm64", "aarch64", "arm64/v8"];

export interface StageOptions {
  readonly args: Readonly<Record<string, string>>;
  /** `linux/amd64`. */
  readonly platform: string;
}

/** ARGs that docker sets by itself, for this one platform. */
export function platformArgs(platform: string): Map<string, string> {
  const [os = "", architecture = ""] = platform.split("/");
  const parts = { PLATFORM: platform, OS: os, ARCH: architecture, VARIANT: "" };
  return new Map(
    Object.entries(parts).flatMap(([name, value]) => [
      [`TARGET${name}`, value],
      [`BUILD${name}`, value],
    ]),
  );
}

export function splitStages(
  { instructions, escapeCharacter }: InstructionList,
  options: StageOptions,
): DockerfileStages {
  const globalArgs = new Map<string, string | undefined>();
  const automatic = platformArgs(options.platform);
  const lookup: Lookup = (name) => globalArgs.get(name) ?? automatic.get(name);
  const stages: { name: string | undefined; from: Instruction; base: RecipeBase; instructions: Instruction[] }[] = [];
  for (const instruction of instructions) {
    if (!SUPPORTED.includes(instruction.name)) {
      throw dockerfileFault(instruction, `${instruction.name} is not supported`, `These are: ${SUPPORTED.join(", ")}.`);
    }
    const stage = stages.at(-1);
    if (instruction.name === "FROM") {
      stages.push({
        ...readFrom(instruction, { stages, lookup, escapeCharacter, platform: options.platform }),
        instructions: [],
      });
    } else if (stage !== undefined) {
      stage.instructions.push(instruction);
    } else if (instruction.name === "ARG") {
      for (const [name, value] of readArgs(instruction, escapeCharacter, lookup)) {
        globalArgs.set(name, Object.hasOwn(options.args, name) ? options.args[name] : value);
      }
    } else {
      throw dockerfileFault(instruction, `${instruction.name} stands before the first FROM`, "Begin with FROM.");
    }
  }
  const [last] = instructions.slice(-1);
  if (stages.length === 0) {
    throw dockerfileFault(last ?? { file: "Dockerfile", line: 1 }, "there is no FROM", "Begin with FROM.");
  }
  return { stages, globalArgs, escapeCharacter };
}

/** The text of a word whose variables all have to be known. */
export function expandText(
  word: string,
  options: { escapeCharacter: string; lookup: Lookup; place: Place; of: string },
): string {
  const { place, of } = options;
  let result: ReturnType<typeof textOf>;
  try {
    result = textOf(expandWord(word, options));
  } catch (error) {
    const { message, hint } = HoldfastError.from(error);
    throw dockerfileFault(place, `${of} ${word}: ${message}`, hint, error);
  }
  if ("text" in result) return result.text;
  throw dockerfileFault(
    place,
    `${of} ${word}: ${result.unknown} is set by no ENV or ARG before this line`,
    "What only the base image sets can be used in ENV and RUN. Elsewhere write it out, or declare it with ARG.",
  );
}

/** `ARG a=1 b`, with the defaults expanded. */
export function readArgs(
  instruction: Instruction,
  escapeCharacter: string,
  lookup: Lookup,
): [string, string | undefined][] {
  const words = splitWords(instruction.rest, escapeCharacter);
  if (words.length === 0) throw dockerfileFault(instruction, "ARG needs a name");
  return words.map((word) => {
    const [, name = "", value] = /^([^=]*)(?:=(.*))?$/s.exec(word) ?? [];
    if (!/^[A-Za-z_][A-Za-z0-9_]*$/.test(name)) {
      throw dockerfileFault(instruction, `ARG ${word}: expected a name such as VERSION`);
    }
    return [
      name,
      value === undefined ? undefined : expandText(value, { escapeCharacter, lookup, place: instruction, of: "ARG" }),
    ];
  });
}

function readFrom(
  from: Instruction,
  options: { stages: readonly DockerfileStage[]; lookup: Lookup; escapeCharacter: string; platform: string },
): Omit<DockerfileStage, "instructions"> {
  const { flags, rest } = takeFlags(from.rest);
  const expand = (word: string): string => expandText(word, { ...options, place: from, of: "FROM" });
  for (const [flag, value] of flags) {
    if (flag !== "platform") throw dockerfileFault(from, `FROM --${flag} is not supported`);
    requirePlatform(expand(value ?? ""), options.platform, from);
  }
  const words = splitWords(rest, options.escapeCharacter);
  const [given, as, name] = words;
  if (given === undefined || (words.length !== 1 && (words.length !== 3 || as?.toLowerCase() !== "as"))) {
    throw dockerfileFault(from, `FROM ${rest}: expected an image, or an image, AS and a name`);
  }
  const stageName = name?.toLowerCase();
  if (stageName !== undefined && !STAGE_NAME.test(stageName)) {
    throw dockerfileFault(from, `FROM … AS ${name}: a stage's name has letters, digits, "_", "." and "-"`);
  }
  const image = expand(given);
  return { name: stageName, from, base: findSource(image, options.stages, from, "FROM") };
}

function requirePlatform(platform: string, host: string, place: Place): void {
  const normal = (text: string): string => {
    const [os, ...architecture] = text.toLowerCase().split("/");
    const name = architecture.join("/");
    const known = NAMES_OF_X64.includes(name) ? "amd64" : NAMES_OF_ARM64.includes(name) ? "arm64" : name;
    return `${os}/${known}`;
  };
  if (normal(platform) !== normal(host)) {
    throw dockerfileFault(
      place,
      `FROM --platform=${platform}: this host is ${host}`,
      "Images run on the host's own CPU.",
    );
  }
}

/** A stage of this file by name, or an image. */
export function findSource(name: string, stages: readonly DockerfileStage[], place: Place, of: string): RecipeBase {
  if (name.toLowerCase() === "scratch") {
    throw dockerfileFault(place, `${of} scratch is not supported`, "Begin with an image that has a shell.");
  }
  const index = stages.findLastIndex((stage) => stage.name === name.toLowerCase());
  if (index !== -1) return { kind: "stage", index };
  try {
    return parseBase({ kind: "image", name }, "image", 0);
  } catch (error) {
    throw dockerfileFault(place, `${of} ${name}: ${HoldfastError.from(error).message}`, undefined, error);
  }
}
