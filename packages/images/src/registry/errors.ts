/** What a registry refuses or fails at, as an error that names the registry, what was asked for and what it said. */
import { HoldfastError } from "@holdfast/protocol";

const MAX_SHOWN = 300;

export interface RegistryAnswer {
  readonly status: number;
  /** Of the registry's own error, such as `MANIFEST_UNKNOWN`. */
  readonly code: string | null;
  readonly message: string | null;
}

export interface RegistryFailure {
  readonly registry: string;
  /** What did not work, as a clause: `reading the manifest of team/app:1`. */
  readonly doing: string;
  readonly answer?: RegistryAnswer | undefined;
  readonly problem?: string | undefined;
  readonly hint?: string | undefined;
  readonly cause?: unknown;
  readonly details?: Readonly<Record<string, unknown>> | undefined;
}

export const CREDENTIALS_HINT =
  "Give credentials with --username and --password-stdin, or have them in docker's config.json (`docker login`).";

export function registryFailed(failure: RegistryFailure): HoldfastError {
  const { registry, doing, answer } = failure;
  const said = answer === undefined ? (failure.problem ?? "it failed") : describeAnswer(answer);
  return new HoldfastError("registry_failed", `registry ${registry}: ${doing}: ${said}`, {
    hint: failure.hint ?? (answer === undefined ? undefined : hintFor(answer, doing)),
    details: {
      registry,
      ...(answer === undefined
        ? {}
        : { status: answer.status, registryCode: answer.code, registryMessage: answer.message }),
      ...failure.details,
    },
    cause: failure.cause,
  });
}

/** The registry answered, but not with what was asked for: nothing of it is used, and asking again is of no use. */
export function wrongContent(registry: string, problem: string, details: Record<string, unknown> = {}): HoldfastError {
  return new HoldfastError("image_invalid", `registry ${registry}: ${problem}`, {
    hint: "The registry, or something between it and this host, serves wrong content. Nothing of it was kept.",
    details: { registry, ...details },
  });
}

export function parseAnswer(status: number, body: Buffer): RegistryAnswer {
  let first: unknown;
  try {
    const { errors, ...flat } = JSON.parse(body.toString("utf8")) as { errors?: unknown };
    first = Array.isArray(errors) ? errors[0] : flat;
  } catch {
    // A page for people, or nothing at all: the status has to do.
  }
  const field = (name: string): string | null => {
    const value: unknown = typeof first === "object" && first !== null ? Reflect.get(first, name) : undefined;
    return typeof value === "string" && value !== "" ? printable(value) : null;
  };
  return { status, code: field("code"), message: field("message") ?? field("details") };
}

/** For a terminal: no control characters, not endless. */
export function printable(text: string): string {
  const clean = text.replace(/[\p{Cc}\p{Cf}\p{Zl}\p{Zp}]+/gu, " ").trim();
  return clean.length > MAX_SHOWN ? `${clean.slice(0, MAX_SHOWN)}…` : clean;
}

function describeAnswer({ status, code, message }: RegistryAnswer): string {
  return [`status ${status}`, code, message].filter((part) => part !== null).join(", ");
}

function hintFor({ status }: RegistryAnswer, doing: string): string | undefined {
  if (status === 401) return CREDENTIALS_HINT;
  if (status === 403) return `These credentials do not allow it. ${CREDENTIALS_HINT}`;
  if (status === 404)
    return `Not found: ${doing.replace(/^\w+ /, "")}. Check its spelling; private ones need credentials.`;
  if (status === 413) return "A proxy in front of the registry limits the size of uploads.";
  if (status === 429)
    return "The registry limits how often it is asked. Wait, or give credentials: limits are often wider then.";
  if (status >= 500) return "The registry itself has a problem. Try again later, or look at its log.";
  return undefined;
}
