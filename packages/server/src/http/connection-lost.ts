/** How Node says that the client is no longer there: to be written to, or to be read from. */
const CODES = new Set([
  "EPIPE",
  "ECONNRESET",
  "ERR_STREAM_PREMATURE_CLOSE",
  "ERR_STREAM_DESTROYED",
  "ERR_STREAM_WRITE_AFTER_END",
]);

/** Its doing, and no fault of ours. */
export function isConnectionLost(reason: unknown): boolean {
  return reason instanceof Error && "code" in reason && CODES.has(String(reason.code));
}
