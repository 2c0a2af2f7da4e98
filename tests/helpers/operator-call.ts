/** A request over the operator's own socket. */
import { request } from "node:http";
import type { ServerInUse } from "./use-server.js";

export interface OperatorAnswer<T> {
  readonly status: number;
  readonly text: string;
  readonly body: T;
}

export function operatorCall<T = unknown>(
  server: Pick<ServerInUse, "socketPath">,
  method: string,
  path: string,
  body?: unknown,
): Promise<OperatorAnswer<T>> {
  return new Promise((resolve, reject) => {
    const content = body === undefined ? undefined : JSON.stringify(body);
    const asking = request(
      {
        socketPath: server.socketPath,
        method,
        path,
        agent: false,
        headers: content === undefined ? {} : { "content-type": "application/json" },
      },
      (answer) => {
        let text = "";
        answer.setEncoding("utf8").on("data", (piece: string) => {
          text += piece;
        });
        answer.on("end", () => {
          const isJson = answer.headers["content-type"]?.startsWith("application/json") === true;
          resolve({ status: answer.statusCode ?? 0, text, body: (isJson ? JSON.parse(text) : undefined) as T });
        });
      },
    );
    asking.on("error", reject);
    asking.end(content);
  });
}
