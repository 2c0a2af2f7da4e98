/** The body of a create, v1 and v2, as the request that it amounts to. */
import { HoldfastError, invalidArgument } from "@holdfast/protocol";
import { z } from "zod";
import { boundTexts, MAX_ENVIRONMENT_BYTES, MAX_METADATA_BYTES } from "../http/text-record.js";
import type { CreateRequest } from "../sandboxes/types.js";
import { networkFromCreate, networkSchema } from "./network.js";
import { timeoutSeconds } from "./request-input.js";
import { volumeMountsSchema } from "./volume-mounts.js";

const NUL = "\0";

/** The kernel starts no program with a longer variable: one would break every command. */
const MAX_ENV_BYTES = 128 * 1024 - 1024;

const envValue = z.string().refine((value) => !value.includes(NUL) && Buffer.byteLength(value) <= MAX_ENV_BYTES, {
  error: `a text of at most ${MAX_ENV_BYTES} bytes without NUL characters`,
});

const envName = z
  .string()
  .refine((name) => /^[^=\0]{1,256}$/.test(name), { error: "a variable's name, of at most 256 characters" });

const metadataKey = z.string().min(1, { error: "a key that is not empty" });

export function createBodySchema(options: { readonly maxTimeoutSeconds: number }) {
  return z.strictObject({
    templateID: z.string().min(1, { error: "a template's name" }),
    timeout: timeoutSeconds(1, options.maxTimeoutSeconds).optional(),
    metadata: z.record(metadataKey, z.string()).superRefine(boundTexts(MAX_METADATA_BYTES)).optional(),
    envVars: z.record(envName, envValue).superRefine(boundTexts(MAX_ENVIRONMENT_BYTES)).optional(),
    // Every sandbox is secured, whatever is asked for.
    secure: z.boolean().optional(),
    allow_internet_access: z.boolean().optional(),
    autoPause: z.boolean().optional(),
    autoPauseMemory: z.boolean().optional(),
    autoResume: z.strictObject({ enabled: z.boolean() }).optional(),
    network: networkSchema.nullish(),
    volumeMounts: volumeMountsSchema.nullish(),
    // E2B's clients start the gateway themselves, as a command, and say here what with. A template without one fails there.
    mcp: z.record(z.string(), z.unknown()).nullish(),
    iam: z.strictObject({ tokens: z.record(z.string(), z.unknown()).optional() }).nullish(),
  });
}

export type CreateBody = z.output<ReturnType<typeof createBodySchema>>;

function notImplemented(field: string, instead: string): HoldfastError {
  return new HoldfastError("not_implemented", `${field} is not implemented by this server yet`, {
    hint: instead,
    details: { field },
  });
}

/** What would change the sandbox and cannot be honoured is refused, never dropped. */
function refuseWhatIsMissing(body: CreateBody): void {
  if (Object.keys(body.iam?.tokens ?? {}).length > 0) {
    throw notImplemented("iam", "Leave it out, and pass credentials as envVars.");
  }
}

function onTimeoutOf(body: CreateBody): CreateRequest["onTimeout"] {
  if (body.autoPauseMemory === false && body.autoPause !== true) {
    throw invalidArgument("autoPauseMemory", false, "autoPause: true beside it, or nothing");
  }
  if (body.autoPauseMemory === false && body.autoResume?.enabled === true) {
    throw invalidArgument(
      "autoResume.enabled",
      true,
      "false with autoPauseMemory: false, because a request cannot wake a sandbox of which only the files are kept",
    );
  }
  if (body.autoPause !== true) return "kill";
  return body.autoPauseMemory === false ? "stop" : "pause";
}

export function createRequestFrom(
  body: CreateBody,
  options: {
    readonly template: string;
    readonly limits: CreateRequest["limits"];
    readonly volumes?: CreateRequest["volumes"];
    readonly defaultTimeoutSeconds: number;
  },
): CreateRequest {
  refuseWhatIsMissing(body);
  return {
    template: options.template,
    timeoutMs: (body.timeout ?? options.defaultTimeoutSeconds) * 1000,
    onTimeout: onTimeoutOf(body),
    autoResume: body.autoResume?.enabled ?? false,
    limits: options.limits,
    volumes: options.volumes,
    env: body.envVars ?? {},
    metadata: body.metadata ?? {},
    network: networkFromCreate(body.network ?? undefined, body.allow_internet_access),
  };
}
