/** The server's error, as the same class that the server threw. */
import { type ErrorCode, errorSpecs, HoldfastError } from "@holdfast/protocol";

const MAX_SHOWN_CHARACTERS = 200;
const MAX_ERROR_BYTES = 256 * 1024;

/** For answers that did not come from a Holdfast server, or not from its API: a proxy's, say. */
function codeForStatus(status: number): ErrorCode {
  const byStatus: Readonly<Record<number, ErrorCode>> = {
    401: "unauthenticated",
    403: "access_denied",
    404: "route_not_found",
    408: "request_too_slow",
    413: "request_too_large",
    429: "rate_limited",
    501: "not_implemented",
    502: "server_unreachable",
    503: "server_stopping",
    504: "server_unreachable",
  };
  return byStatus[status] ?? (status < 500 ? "invalid_argument" : "engine_fault");
}

function isRecord(value: unknown): value is Record<string, unknown> {
  return typeof value === "object" && value !== null && !Array.isArray(value);
}

/** From the body of an error; undefined if it is none that we know. */
export function errorFromBody(
  body: unknown,
  details: Readonly<Record<string, unknown>> = {},
): HoldfastError | undefined {
  if (!isRecord(body) || typeof body.code !== "string" || !Object.hasOwn(errorSpecs, body.code)) return undefined;
  return new HoldfastError(body.code as ErrorCode, typeof body.message === "string" ? body.message : body.code, {
    hint: typeof body.hint === "string" ? body.hint : undefined,
    details: { ...details, ...(isRecord(body.details) ? body.details : {}) },
  });
}

async function textOf(response: Response): Promise<string> {
  const reader = response.body?.getReader();
  if (reader === undefined) return "";
  const decoder = new TextDecoder();
  let text = "";
  try {
    for (let read = 0; read < MAX_ERROR_BYTES; ) {
      const { done, value } = await reader.read();
      if (done) break;
      read += value.length;
      text += decoder.decode(value, { stream: true });
    }
  } catch {
    // The status says that it failed; what has arrived must do as the reason.
  }
  await reader.cancel().catch(() => {});
  return text;
}

function parsed(text: string): unknown {
  try {
    return JSON.parse(text);
  } catch {
    // Not JSON: shown as it is.
    return undefined;
  }
}

export async function errorFromResponse(response: Response): Promise<HoldfastError> {
  const text = await textOf(response);
  const body = parsed(text);
  const retryAfterSeconds = Number(response.headers.get("retry-after") ?? Number.NaN);
  const details = Number.isFinite(retryAfterSeconds) ? { retryAfterSeconds } : {};
  const known = errorFromBody(body, details);
  if (known !== undefined) return known;
  const said = isRecord(body) && typeof body.message === "string" ? body.message : text.trim();
  const shown = said.slice(0, MAX_SHOWN_CHARACTERS) || response.statusText;
  return new HoldfastError(codeForStatus(response.status), `the server answered ${response.status}: ${shown}`, {
    details: { ...details, status: response.status },
  });
}
