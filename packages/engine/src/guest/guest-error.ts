/** The guest's FAIL, as our error. The only place that turns an errno from inside into a code. */
import { type ErrorCode, HoldfastError, printable } from "@holdfast/protocol";
import { FIELD, type Fields } from "@holdfast/protocol/guest";

const CODE_BY_ERRNO: Readonly<Record<string, ErrorCode>> = {
  ENOENT: "file_not_found",
  EEXIST: "file_exists",
  ENOTEMPTY: "file_exists",
  EISDIR: "file_wrong_type",
  ENOTDIR: "file_wrong_type",
  ELOOP: "file_wrong_type",
  EACCES: "file_access_denied",
  EPERM: "file_access_denied",
  EROFS: "file_access_denied",
  EBUSY: "file_access_denied",
  EXDEV: "file_access_denied",
  ETXTBSY: "file_access_denied",
  ENOSPC: "no_space",
  EDQUOT: "no_space",
  EINVAL: "invalid_argument",
  ENAMETOOLONG: "invalid_argument",
  ESRCH: "command_not_found",
  ECONNREFUSED: "connection_refused",
  ECANCELED: "canceled",
  EAGAIN: "host_capacity",
  ENOMEM: "host_capacity",
};

export function errorFromGuest(fields: Fields): HoldfastError {
  const errno = printable(fields.text(FIELD.ERRNO_NAME) ?? "E?");
  const message = printable(fields.text(FIELD.MESSAGE) ?? "the guest gave no reason");
  const code = message.startsWith("invalid username") ? "user_not_found" : (CODE_BY_ERRNO[errno] ?? "guest_fault");
  return new HoldfastError(code, message, { details: { errno } });
}
