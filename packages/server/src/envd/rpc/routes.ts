/** envd's RPCs over Connect, as JSON. Which sandbox a request is for, and whether it may, is decided before. */
import { fastifyConnectPlugin } from "@connectrpc/connect-fastify";
import { HoldfastError } from "@holdfast/protocol";
import type { FastifyInstance, FastifyReply, FastifyRequest } from "fastify";
import type { ServerParts } from "../../parts.js";
import { Filesystem } from "../gen/filesystem.js";
import { Process } from "../gen/process.js";
import { contextValuesFor } from "./call.js";
import { createErrorInterceptor } from "./error-interceptor.js";
import { createFilesystemService } from "./filesystem-service.js";
import { createProcessService } from "./process-service.js";

/** Of one message, as JSON: about 6 MiB of input to a command. */
const MOST_REQUEST_BYTES = 8 * 1024 * 1024;
/** How long a message may take to arrive. Only the one RPC whose input is a stream may take longer. */
const BODY_MS = 30_000;
const STREAMED_INPUT = "/process.Process/StreamInput";
/** The longest that a timer of Node's can wait. */
const LONGEST_TIMEOUT_MS = 2 ** 31 - 1;

const utf8 = new TextDecoder("utf-8", { fatal: true });
/** Strict both ways: a field that nobody knows is refused by name, and so is text that is not UTF-8. */
const JSON_OPTIONS = {
  ignoreUnknownFields: false,
  textDecoder: {
    decode(input?: Uint8Array): string {
      try {
        return utf8.decode(input);
      } catch {
        throw new HoldfastError("invalid_argument", "body: expected JSON in UTF-8, got bytes that are not UTF-8");
      }
    },
  },
};

const CONTENT_TYPES: ReadonlyMap<string | undefined, string> = new Map(
  [...Process.methods, ...Filesystem.methods].map((method) => [
    `/${method.parent.typeName}/${method.name}`,
    method.methodKind === "unary" ? "application/json" : "application/connect+json",
  ]),
);

interface Objection {
  readonly status: number;
  readonly message: string;
}

function objectionTo(request: FastifyRequest): Objection | undefined {
  const { headers, method, url } = request.raw;
  if (method !== "POST") return { status: 405, message: `method: expected POST, got ${method}` };
  if (!URL.canParse(url ?? "", `http://${headers.host ?? ""}`)) {
    return { status: 400, message: "Host: expected the name of a host" };
  }
  const expected = CONTENT_TYPES.get(request.routeOptions.url);
  const given = headers["content-type"]?.split(";", 1)[0]?.trim().toLowerCase();
  if (expected !== undefined && given !== expected) {
    return { status: 415, message: `Content-Type: expected ${expected}, got ${given?.slice(0, 100) ?? "nothing"}` };
  }
  const encodings = [headers["content-encoding"], headers["connect-content-encoding"]];
  if (encodings.some((encoding) => encoding !== undefined && encoding !== "identity")) {
    return { status: 415, message: "Content-Encoding: expected a body that is not compressed" };
  }
  if (given === "application/json" && Number(headers["content-length"] ?? 0) > MOST_REQUEST_BYTES) {
    return { status: 413, message: `body: expected at most ${MOST_REQUEST_BYTES} bytes` };
  }
  const timeoutMs = headers["connect-timeout-ms"];
  if (timeoutMs !== undefined && !(/^\d{1,10}$/.test(String(timeoutMs)) && Number(timeoutMs) <= LONGEST_TIMEOUT_MS)) {
    return {
      status: 400,
      message: `Connect-Timeout-Ms: expected 0 to ${LONGEST_TIMEOUT_MS}, got ${String(timeoutMs).slice(0, 100)}`,
    };
  }
  return undefined;
}

/** What Connect would answer with a bare status, or not at all, is answered with a reason. */
async function checkRequest(request: FastifyRequest, reply: FastifyReply): Promise<FastifyReply | undefined> {
  const objection = objectionTo(request);
  if (objection === undefined) return undefined;
  if (objection.status === 405) void reply.header("allow", "POST");
  return reply.code(objection.status).send({ code: "invalid_argument", message: objection.message });
}

/** Connect collects a message for as long as it takes; each would hold what has come so far. */
async function boundBodyTime(request: FastifyRequest, reply: FastifyReply): Promise<void> {
  const { raw } = request;
  if (request.routeOptions.url === STREAMED_INPUT || raw.complete) return;
  const { socket } = raw;
  const timer = setTimeout(() => {
    if (raw.complete || socket.destroyed) return;
    if (!reply.raw.headersSent) {
      const message = `body: expected all of it within ${BODY_MS / 1000} s`;
      reply.raw.writeHead(408, { "content-type": "application/json", connection: "close" });
      reply.raw.end(JSON.stringify({ code: "deadline_exceeded", message }));
    }
    socket.destroySoon();
  }, BODY_MS);
  const stop = () => clearTimeout(timer);
  raw.once("end", stop);
  reply.raw.once("close", stop);
}

export async function registerEnvdRpc(app: FastifyInstance, parts: ServerParts): Promise<void> {
  await app.register(async (scope) => {
    scope.addHook("onRequest", checkRequest);
    scope.addHook("onRequest", boundBodyTime);
    await scope.register(fastifyConnectPlugin, {
      routes: (router) => {
        router.service(Process, createProcessService());
        router.service(Filesystem, createFilesystemService());
      },
      connect: true,
      grpc: false,
      grpcWeb: false,
      acceptCompression: [],
      readMaxBytes: MOST_REQUEST_BYTES,
      jsonOptions: JSON_OPTIONS,
      interceptors: [createErrorInterceptor(parts.log)],
      contextValues: (request) => contextValuesFor(request.raw),
    });
  });
}
