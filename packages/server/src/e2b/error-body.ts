/** Every failure as E2B's clients read it: an integer `code` that equals the status, and a message. */
import { type ErrorCode, errorSpecs, HoldfastError } from "@holdfast/protocol";

export interface FailureContext {
  /** Stands in the log beside what is not said to the client. */
  readonly requestId: string;
  readonly sandboxId?: string | undefined;
  readonly contentType?: string | undefined;
}

export interface E2bFailure {
  readonly status: number;
  readonly retryAfterSeconds: number | undefined;
  readonly body: Readonly<Record<string, unknown>> & {
    readonly code: number;
    readonly message: string;
    readonly error_code?: string;
  };
}

/** E2B's clients know an ended sandbox as one that is not there, and a host that cannot as a server that failed. */
const STATUS: Partial<Record<ErrorCode, number>> = { sandbox_ended: 404, host_unsupported: 500 };

/** Their messages are for whoever runs the server: they may name its paths. */
const NOT_FOR_CLIENTS: ReadonlySet<ErrorCode> = new Set(["engine_fault", "guest_fault", "host_unsupported"]);

const MAX_SHOWN_ID_CHARACTERS = 64;

function notFoundMessage(sandboxId: string): string {
  const shown =
    sandboxId.length > MAX_SHOWN_ID_CHARACTERS ? `${sandboxId.slice(0, MAX_SHOWN_ID_CHARACTERS)}…` : sandboxId;
  return `Sandbox ${JSON.stringify(shown)} doesn't exist or you don't have access to it`;
}

function sentence(text: string): string {
  return /[.!?]$/.test(text) ? text : `${text}.`;
}

function messageOf(error: HoldfastError, context: FailureContext): string {
  if (context.sandboxId !== undefined) {
    if (error.code === "sandbox_not_found") return notFoundMessage(context.sandboxId);
    if (error.code === "sandbox_ended") return `${notFoundMessage(context.sandboxId)}. ${sentence(error.message)}`;
  }
  return error.hint === undefined ? error.message : `${sentence(error.message)} ${error.hint}`;
}

function retryAfterSeconds(status: number, error: HoldfastError): number | undefined {
  if (status !== 429 && status !== 503) return undefined;
  const wanted = error.details.retryAfterSeconds;
  return typeof wanted === "number" && Number.isFinite(wanted) ? Math.max(1, Math.ceil(wanted)) : 1;
}

function extras(error: HoldfastError): Record<string, unknown> {
  if (error.code !== "sandbox_ended") return {};
  const { endedAt, cause, ending } = error.details;
  return {
    state: "ended",
    ...(endedAt === undefined ? {} : { endedAt }),
    ...(cause === undefined ? {} : { cause }),
    ...(ending === undefined ? {} : { ending }),
  };
}

/** Fastify's own refusals, in words that name what was wrong. */
function fromFastify(reason: Error & { code?: unknown; statusCode?: unknown }, context: FailureContext) {
  const status = typeof reason.statusCode === "number" ? reason.statusCode : 500;
  if (status < 400 || status > 499) return undefined;
  if (reason.code === "FST_ERR_CTP_INVALID_MEDIA_TYPE") {
    const got = context.contentType === undefined ? "none" : JSON.stringify(context.contentType.slice(0, 100));
    return { status, message: `content-type: expected application/json, got ${got}`, code: "invalid_argument" };
  }
  return { status, message: `request: ${reason.message}`, code: "invalid_argument" };
}

function internal(context: FailureContext): E2bFailure {
  return {
    status: 500,
    retryAfterSeconds: undefined,
    body: {
      code: 500,
      message: `The server failed (request ${context.requestId}); its log says why.`,
      error_code: "engine_fault",
    },
  };
}

export function e2bFailure(reason: unknown, context: FailureContext): E2bFailure {
  if (reason instanceof HoldfastError) {
    if (NOT_FOR_CLIENTS.has(reason.code)) return internal(context);
    const status = STATUS[reason.code] ?? errorSpecs[reason.code].http;
    return {
      status,
      retryAfterSeconds: retryAfterSeconds(status, reason),
      body: {
        code: status,
        message: messageOf(reason, context),
        error_code: reason.code,
        ...extras(reason),
      },
    };
  }
  const refusal = reason instanceof Error ? fromFastify(reason, context) : undefined;
  if (refusal === undefined) return internal(context);
  return {
    status: refusal.status,
    retryAfterSeconds: refusal.status === 429 ? 1 : undefined,
    body: { code: refusal.status, message: refusal.message, error_code: refusal.code },
  };
}
