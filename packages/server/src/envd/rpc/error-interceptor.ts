/** Around every RPC: what it throws goes out as a Connect error, and what is our fault into the log. */
import { Code, ConnectError, type Interceptor } from "@connectrpc/connect";
import type { Logger } from "pino";
import { isConnectionLost } from "../../http/connection-lost.js";
import { connectErrorFrom } from "./connect-errors.js";
import { untilAborted } from "./until-aborted.js";

async function* withErrors<T>(messages: AsyncIterable<T>, convert: (reason: unknown) => ConnectError) {
  try {
    yield* messages;
  } catch (error) {
    throw convert(error);
  }
}

/** An RPC that nobody waits for any more, or whose time is up, ends; a stream sees to that itself once it has begun. */
export function createErrorInterceptor(log: Logger): Interceptor {
  return (next) => async (request) => {
    const convert = (reason: unknown) => {
      const error = connectErrorFrom(reason);
      // What the library itself throws is about the request's bytes: the client's doing, and not ours to log.
      const isOurs = !(reason instanceof ConnectError) && !isConnectionLost(reason) && !request.signal.aborted;
      if (error.code === Code.Internal && isOurs)
        log.error({ err: reason, rpc: request.method.toString() }, "an RPC failed");
      return error;
    };
    try {
      const response = await untilAborted(next(request), request.signal);
      return response.stream ? { ...response, message: withErrors(response.message, convert) } : response;
    } catch (error) {
      throw convert(error);
    }
  };
}
