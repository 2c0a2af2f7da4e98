/**
 * What went wrong that is not the sandboxed program's doing: the caller asked for something impossible, or we failed.
 * What the *program* did is never an error; it is a value, see causes.ts.
 *
 * Codes are never reused. Each one is explained in docs/errors.md; a test compares the two lists.
 */

interface ErrorSpec {
  /** The status an HTTP API answers with. */
  readonly http: number;
  /** Whether the same call may succeed later, unchanged. */
  readonly retry: boolean;
}

export const errorSpecs = {
  invalid_argument: { http: 400, retry: false },
  sandbox_not_found: { http: 404, retry: false },
  sandbox_ended: { http: 410, retry: false },
  sandbox_exists: { http: 409, retry: false },
  sandbox_frozen: { http: 409, retry: true },
  sandbox_paused: { http: 409, retry: false },
  sandbox_busy: { http: 409, retry: true },
  command_not_found: { http: 404, retry: false },
  command_failed_to_start: { http: 400, retry: false },
  image_not_found: { http: 404, retry: false },
  image_in_use: { http: 409, retry: true },
  image_invalid: { http: 400, retry: false },
  build_failed: { http: 422, retry: false },
  build_not_found: { http: 404, retry: false },
  registry_failed: { http: 502, retry: true },
  volume_not_found: { http: 404, retry: false },
  volume_exists: { http: 409, retry: false },
  volume_in_use: { http: 409, retry: true },
  route_not_found: { http: 404, retry: false },
  unauthenticated: { http: 401, retry: false },
  access_denied: { http: 403, retry: false },
  idempotency_conflict: { http: 409, retry: false },
  request_too_large: { http: 413, retry: false },
  request_too_slow: { http: 408, retry: true },
  rate_limited: { http: 429, retry: true },
  limit_reached: { http: 429, retry: true },
  not_implemented: { http: 501, retry: false },
  server_stopping: { http: 503, retry: true },
  user_not_found: { http: 400, retry: false },
  file_not_found: { http: 404, retry: false },
  file_exists: { http: 409, retry: false },
  file_wrong_type: { http: 400, retry: false },
  file_access_denied: { http: 403, retry: false },
  no_space: { http: 507, retry: false },
  connection_refused: { http: 502, retry: true },
  server_unreachable: { http: 502, retry: true },
  canceled: { http: 499, retry: false },
  host_unsupported: { http: 501, retry: false },
  host_capacity: { http: 429, retry: true },
  host_pressure: { http: 503, retry: true },
  pid_pressure: { http: 503, retry: true },
  guest_fault: { http: 500, retry: false },
  engine_fault: { http: 500, retry: false },
} as const satisfies Record<string, ErrorSpec>;

export type ErrorCode = keyof typeof errorSpecs;

export interface ErrorOptions {
  /** What to do about it, as a sentence. */
  readonly hint?: string | undefined;
  /** Facts for programs: the field, the limit, the value received. */
  readonly details?: Readonly<Record<string, unknown>> | undefined;
  readonly cause?: unknown;
}

export class HoldfastError extends Error {
  override readonly name = "HoldfastError";
  readonly code: ErrorCode;
  readonly details: Readonly<Record<string, unknown>>;
  readonly hint: string | undefined;

  constructor(code: ErrorCode, message: string, options: ErrorOptions = {}) {
    super(message, options.cause === undefined ? undefined : { cause: options.cause });
    this.code = code;
    this.details = options.details ?? {};
    this.hint = options.hint;
  }

  /** The one place where an unknown `catch` value becomes typed. */
  static from(reason: unknown, code: ErrorCode = "engine_fault"): HoldfastError {
    if (reason instanceof HoldfastError) return reason;
    if (reason instanceof Error && reason.name === "AbortError") {
      return new HoldfastError("canceled", "the operation was canceled", { cause: reason });
    }
    const message = reason instanceof Error ? reason.message : String(reason);
    return new HoldfastError(code, message, { cause: reason });
  }

  /** For a terminal: what happened, then what to do. */
  toText(): string {
    return this.hint === undefined ? `${this.message} [${this.code}]` : `${this.message} [${this.code}]\n${this.hint}`;
  }

  toJSON(): { code: ErrorCode; message: string; hint?: string; details?: Readonly<Record<string, unknown>> } {
    return {
      code: this.code,
      message: this.message,
      ...(this.hint === undefined ? {} : { hint: this.hint }),
      ...(Object.keys(this.details).length === 0 ? {} : { details: this.details }),
    };
  }
}

/** A wrong value from the caller: names the field, the value and what would be right. */
export function invalidArgument(field: string, value: unknown, expected: string): HoldfastError {
  const shown = typeof value === "string" ? JSON.stringify(value) : String(value);
  return new HoldfastError("invalid_argument", `${field}: expected ${expected}, got ${shown}`, {
    details: { field, expected },
  });
}
