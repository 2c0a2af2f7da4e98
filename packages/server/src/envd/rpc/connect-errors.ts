/** Our errors in Connect's words. The only place that chooses a Connect code for one of ours. */
import { Code, ConnectError } from "@connectrpc/connect";
import { type ErrorCode, HoldfastError } from "@holdfast/protocol";

const CODES: Readonly<Record<ErrorCode, Code>> = {
  invalid_argument: Code.InvalidArgument,
  sandbox_not_found: Code.NotFound,
  sandbox_ended: Code.Unavailable,
  sandbox_exists: Code.AlreadyExists,
  sandbox_frozen: Code.Unavailable,
  sandbox_paused: Code.Unavailable,
  sandbox_busy: Code.Unavailable,
  command_not_found: Code.NotFound,
  command_failed_to_start: Code.InvalidArgument,
  image_not_found: Code.NotFound,
  image_in_use: Code.FailedPrecondition,
  image_invalid: Code.InvalidArgument,
  build_failed: Code.FailedPrecondition,
  build_not_found: Code.NotFound,
  registry_failed: Code.Unavailable,
  volume_not_found: Code.NotFound,
  volume_exists: Code.AlreadyExists,
  volume_in_use: Code.FailedPrecondition,
  route_not_found: Code.Unimplemented,
  unauthenticated: Code.Unauthenticated,
  access_denied: Code.PermissionDenied,
  idempotency_conflict: Code.AlreadyExists,
  request_too_large: Code.ResourceExhausted,
  request_too_slow: Code.DeadlineExceeded,
  rate_limited: Code.ResourceExhausted,
  limit_reached: Code.ResourceExhausted,
  not_implemented: Code.Unimplemented,
  server_stopping: Code.Unavailable,
  user_not_found: Code.Unauthenticated,
  file_not_found: Code.NotFound,
  file_exists: Code.AlreadyExists,
  file_wrong_type: Code.InvalidArgument,
  file_access_denied: Code.PermissionDenied,
  no_space: Code.ResourceExhausted,
  connection_refused: Code.Unavailable,
  server_unreachable: Code.Unavailable,
  canceled: Code.Canceled,
  host_unsupported: Code.Unimplemented,
  host_capacity: Code.ResourceExhausted,
  host_pressure: Code.ResourceExhausted,
  pid_pressure: Code.ResourceExhausted,
  guest_fault: Code.Internal,
  engine_fault: Code.Internal,
};

/** What the kernel refuses for the state a file is in. The guest reports these, and nothing is broken. */
const ERRNOS_OF_STATE = new Set(["EBUSY", "ENOTTY", "ETXTBSY", "EXDEV", "EMLINK", "EFBIG", "EOPNOTSUPP", "ENOTSUP"]);

function codeFor(error: HoldfastError): Code {
  const errno = error.details.errno;
  if (error.code === "guest_fault" && typeof errno === "string" && ERRNOS_OF_STATE.has(errno)) {
    return Code.FailedPrecondition;
  }
  return CODES[error.code];
}

function textFor(error: HoldfastError): string {
  // Its message may be that of any exception and name things of the host.
  if (error.code === "engine_fault") return "something failed on the server; its log says what";
  if (error.hint === undefined) return error.message;
  return `${error.message}${/[.!?]$/.test(error.message) ? "" : "."} ${error.hint}`;
}

/** The cause stays with it for the log; Connect does not send causes. */
export function connectErrorFrom(reason: unknown): ConnectError {
  if (reason instanceof ConnectError) return reason;
  const error = HoldfastError.from(reason);
  return new ConnectError(textFor(error), codeFor(error), undefined, undefined, reason);
}
