/** The settings as a list: what the command line, the environment and `--print-config` need to know about each. */
import type { z } from "zod";
import { type ConfigField, serverConfigSchema } from "./schema.js";

export const FIELD_KINDS = ["text", "path", "number", "boolean", "choice", "object"] as const;
export type FieldKind = (typeof FIELD_KINDS)[number];

export interface FieldInfo {
  readonly field: ConfigField;
  readonly description: string;
  /** Without the dashes. */
  readonly flag: string;
  readonly variable: string;
  readonly kind: FieldKind;
  /** Whether it may be null, which is `none` on the command line and in the environment. */
  readonly nullable: boolean;
  readonly choices: readonly string[];
}

export const VARIABLE_PREFIX = "HOLDFAST_SERVE_";

/** What other commands of ours read too has one name for all of them. */
const SHARED: Partial<Record<ConfigField, { flag: string; variable: string }>> = {
  stateDirectory: { flag: "state-dir", variable: "HOLDFAST_STATE_DIR" },
  pool: { flag: "pool", variable: "HOLDFAST_POOL" },
};

const PATHS: readonly ConfigField[] = ["stateDirectory", "tlsCertificate", "tlsKey", "scratchDirectory"];

const KINDS: Readonly<Record<string, FieldKind>> = {
  string: "text",
  number: "number",
  boolean: "boolean",
  enum: "choice",
  record: "object",
  array: "object",
};

type Schema = z.core.$ZodType;

/** What is left of a schema without its default, its null and its transformation. */
function coreOf(schema: Schema): { readonly core: z.core.$ZodTypes; readonly nullable: boolean } {
  const { def } = (schema as z.core.$ZodTypes)._zod;
  if (def.type === "nullable") return { ...coreOf(def.innerType), nullable: true };
  if (def.type === "default") return coreOf(def.innerType);
  if (def.type === "pipe") return coreOf(def.in);
  return { core: schema as z.core.$ZodTypes, nullable: false };
}

function infoOf(field: ConfigField): FieldInfo {
  const schema = serverConfigSchema.shape[field];
  const { core, nullable } = coreOf(schema);
  const { def } = core._zod;
  const kebab = field.replace(/[A-Z]/g, (letter) => `-${letter.toLowerCase()}`);
  const shared = SHARED[field];
  return {
    field,
    description: schema.description ?? "",
    flag: shared?.flag ?? kebab,
    variable: shared?.variable ?? VARIABLE_PREFIX + kebab.toUpperCase().replaceAll("-", "_"),
    kind: PATHS.includes(field) ? "path" : (KINDS[def.type] ?? "text"),
    nullable,
    choices: def.type === "enum" ? Object.keys(def.entries) : [],
  };
}

export const configFields: readonly FieldInfo[] = (Object.keys(serverConfigSchema.shape) as ConfigField[]).map(infoOf);
