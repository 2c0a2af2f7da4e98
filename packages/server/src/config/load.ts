/** Puts the settings together: defaults, then the file, then the environment, then the command line. */
import { readFileSync } from "node:fs";
import { dirname, resolve } from "node:path";
import { HoldfastError } from "@holdfast/protocol";
import { configFields, type FieldInfo, VARIABLE_PREFIX } from "./fields.js";
import { type Problem, refusal, refusalFrom, unknownName } from "./refusal.js";
import { type ConfigField, type ServerConfig, serverConfigSchema, TEMPLATE_KEYS } from "./schema.js";
import { keepSources, type Source } from "./sources.js";

export interface LoadConfigOptions {
  /** By the name of the field; a text is read as in the environment. Undefined is not given. */
  readonly flags?: Readonly<Record<string, unknown>> | undefined;
  readonly env: Readonly<Record<string, string | undefined>>;
  /** The path of a JSON file; else HOLDFAST_CONFIG names it; else there is none. */
  readonly file?: string | undefined;
}

interface Given {
  readonly values: Record<string, unknown>;
  readonly sources: Partial<Record<ConfigField, Source>>;
  readonly problems: Problem[];
}

const FILE_VARIABLE = "HOLDFAST_CONFIG";
const NUMBER = /^-?\d+(\.\d+)?$/;
const TRUTH: Readonly<Record<string, boolean>> = { true: true, "1": true, false: false, "0": false };

/** What cannot be read stays a text, and the schema says what it should have been. */
function valueFromText(info: FieldInfo, text: string): unknown {
  if (info.nullable && text === "none") return null;
  if (info.kind === "number" && NUMBER.test(text)) return Number(text);
  if (info.kind === "boolean" && Object.hasOwn(TRUTH, text)) return TRUTH[text];
  if (info.kind === "object") {
    try {
      return parseObject(text);
    } catch {
      return text;
    }
  }
  return text;
}

/** A key named `__proto__` would be lost without a word on the way. */
function parseObject(text: string): unknown {
  return JSON.parse(text, (key, value: unknown) => {
    if (key === "__proto__") throw new SyntaxError('a key cannot be named "__proto__"');
    return value;
  });
}

function give(given: Given, info: FieldInfo, value: unknown, source: Source, base: string): void {
  const isPath = info.kind === "path" && typeof value === "string" && value !== "" && !value.includes("\0");
  given.values[info.field] = isPath ? resolve(base, value) : value;
  given.sources[info.field] = source;
}

function readFile(path: string, namedBy: string): Record<string, unknown> {
  const fail = (what: string, cause: unknown) =>
    new HoldfastError("invalid_argument", `the configuration ${path} (named by ${namedBy}) ${what}`, {
      hint: 'It is one JSON object, such as {"port": 3000}. `holdfast serve --print-config` shows the settings there are.',
      details: { field: "config", path },
      cause,
    });
  let text: string;
  try {
    text = readFileSync(path, "utf8");
  } catch (error) {
    throw fail(`cannot be read: ${error instanceof Error ? error.message : String(error)}`, error);
  }
  let value: unknown;
  try {
    value = parseObject(text);
  } catch (error) {
    throw fail(`is not JSON: ${error instanceof Error ? error.message : String(error)}`, error);
  }
  if (typeof value !== "object" || value === null || Array.isArray(value))
    throw fail("is not a JSON object", undefined);
  return value as Record<string, unknown>;
}

function addFile(given: Given, options: LoadConfigOptions): void {
  const fromVariable = options.env[FILE_VARIABLE];
  const named = options.file ?? (fromVariable === "" ? undefined : fromVariable);
  if (named === undefined) return;
  const path = resolve(named);
  const names: readonly string[] = configFields.map(({ field }) => field);
  for (const [key, value] of Object.entries(readFile(path, options.file === undefined ? FILE_VARIABLE : "--config"))) {
    const info = configFields.find(({ field }) => field === key);
    if (info === undefined) given.problems.push(unknownName({ name: key, where: path, known: names }));
    else give(given, info, value, { kind: "file", path, key }, dirname(path));
  }
}

function addEnvironment(given: Given, env: LoadConfigOptions["env"]): void {
  const variables = configFields.map(({ variable }) => variable);
  for (const name of Object.keys(env)) {
    if (name.startsWith(VARIABLE_PREFIX) && !variables.includes(name)) {
      given.problems.push(unknownName({ name, where: "the environment", known: variables }));
    }
  }
  for (const info of configFields) {
    const text = env[info.variable];
    // Empty is how many tools write "not set".
    if (text === undefined || text === "") continue;
    give(given, info, valueFromText(info, text), { kind: "environment", variable: info.variable }, process.cwd());
  }
}

function addFlags(given: Given, flags: Readonly<Record<string, unknown>>): void {
  const names: readonly string[] = configFields.map(({ field }) => field);
  for (const [name, value] of Object.entries(flags)) {
    if (value === undefined) continue;
    const info = configFields.find(({ field }) => field === name);
    if (info === undefined) {
      given.problems.push(unknownName({ name, where: "the command line", known: names }));
      continue;
    }
    const read = typeof value === "string" ? valueFromText(info, value) : value;
    give(given, info, read, { kind: "flag", flag: info.flag }, process.cwd());
  }
  // `--tls` alone: with the certificate that was given, else with one of our own.
  if (given.values.tls === true && given.sources.tls?.kind === "flag") {
    given.values.tls = (given.values.tlsCertificate ?? null) === null ? "self" : "files";
  }
}

export function loadConfig(options: LoadConfigOptions): ServerConfig {
  const given: Given = { values: {}, sources: {}, problems: [] };
  addFile(given, options);
  addEnvironment(given, options.env);
  addFlags(given, options.flags ?? {});
  if (given.problems.length > 0) throw refusal(given.problems);
  const { values, sources } = given;
  const result = serverConfigSchema.safeParse(values);
  if (!result.success) throw refusalFrom(result.error, { values, sources, templateKeys: TEMPLATE_KEYS });
  const config = Object.freeze(result.data);
  keepSources(config, sources);
  return config;
}
