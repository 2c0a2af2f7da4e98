/** Requests to a real server, addressed as its clients do, but with whatever a test wants in them. */
import { execFileSync } from "node:child_process";
import { readFileSync } from "node:fs";
import { fileURLToPath } from "node:url";
import { expect } from "vitest";
import { exchange, type HeaderList, parseEnvelopes, type RawAnswer, type RawRequest } from "../helpers/raw-http.js";
import type { ServerInUse } from "../helpers/use-server.js";

export const ENVD_PORT = 49_983;
export const JSON_TYPE = ["Content-Type", "application/json"] as const;

export interface TestSandbox {
  readonly id: string;
  readonly token: string;
  readonly trafficToken: string | null;
}

export interface Client {
  readonly key: string;
  /** To the API, with the key. */
  control(request: RawRequest): Promise<RawAnswer>;
  /** To a port of a sandbox, by header. */
  port(sandbox: Pick<TestSandbox, "id">, port: number | string, request: RawRequest): Promise<RawAnswer>;
  /** To its envd, with its token. */
  envd(sandbox: Pick<TestSandbox, "id" | "token">, request: RawRequest): Promise<RawAnswer>;
  create(body?: Readonly<Record<string, unknown>>): Promise<TestSandbox>;
  /** Runs a program to its end and gives what it said. */
  run(sandbox: Pick<TestSandbox, "id">, script: string): Promise<string>;
}

export function controlHeaders(key: string): HeaderList {
  return [
    ["Host", "localhost"],
    ["X-API-Key", key],
  ];
}

export function portHeaders(id: string, port: number | string): HeaderList {
  return [
    ["Host", "localhost"],
    ["E2b-Sandbox-Id", id],
    ["E2b-Sandbox-Port", port],
  ];
}

export function envdHeaders({ id, token }: Pick<TestSandbox, "id" | "token">): HeaderList {
  return [...portHeaders(id, ENVD_PORT), ["X-Access-Token", token]];
}

interface CreatedBody {
  readonly sandboxID: string;
  readonly envdAccessToken: string;
  readonly trafficAccessToken: string | null;
}

export function createClient(server: Pick<ServerInUse, "port">, key: string): Client {
  const withHeaders = (before: HeaderList, request: RawRequest) =>
    exchange(server.port, { ...request, headers: [...before, ...(request.headers ?? [])] });
  const client: Client = {
    key,
    control: (request) => withHeaders(controlHeaders(key), request),
    port: ({ id }, port, request) => withHeaders(portHeaders(id, port), request),
    envd: (sandbox, request) => withHeaders(envdHeaders(sandbox), request),
    async create(body = {}) {
      const answer = await client.control({
        method: "POST",
        target: "/v2/sandboxes",
        headers: [JSON_TYPE],
        body: JSON.stringify({ templateID: "base", timeout: 600, ...body }),
      });
      expect(answer.status, answer.text).toBe(201);
      const created = JSON.parse(answer.text) as CreatedBody;
      return { id: created.sandboxID, token: created.envdAccessToken, trafficToken: created.trafficAccessToken };
    },
    async run({ id }, script) {
      const answer = await client.control({
        method: "POST",
        target: `/v1/sandboxes/${id}/run`,
        headers: [JSON_TYPE],
        body: JSON.stringify({ argv: ["/bin/bash", "-c", script] }),
      });
      expect(answer.status, answer.text).toBe(200);
      const lines = answer.text
        .trim()
        .split("\n")
        .map((line) => JSON.parse(line) as { type: string; base64?: string });
      return Buffer.concat(lines.map(({ base64 }) => Buffer.from(base64 ?? "", "base64"))).toString("utf8");
    },
  };
  return client;
}

/** What an answer says went wrong, wherever it says it: in a body, or at the end of a Connect stream. */
export function faultOf(answer: RawAnswer): { readonly code: unknown; readonly message: string } | undefined {
  if (answer.headers["content-type"]?.startsWith("application/connect+json") === true) {
    const last = parseEnvelopes(answer.body).at(-1)?.message as
      | { error?: { code: string; message?: string } }
      | undefined;
    return last?.error === undefined ? undefined : { code: last.error.code, message: last.error.message ?? "" };
  }
  try {
    const { code, message } = JSON.parse(answer.text) as { code?: unknown; message?: unknown };
    return { code, message: String(message) };
  } catch {
    return undefined;
  }
}

/** Codes of Connect that say that the server, not the request, is at fault. */
const SERVER_FAULTS: readonly unknown[] = ["internal", "unknown", "data_loss", "unavailable", "unimplemented"];

/** A field is the same in either spelling. */
function plain(text: string): string {
  return text.toLowerCase().replaceAll("_", "");
}

/** What is wrong with an answer to a bad request; undefined if it is as it must be. */
export function objectionTo(
  answer: RawAnswer,
  options: { readonly names?: string | undefined } = {},
): string | undefined {
  const fault = faultOf(answer);
  const shown = `${answer.status} ${answer.text.slice(0, 200)}`;
  const isStream = answer.headers["content-type"]?.startsWith("application/connect+json") === true;
  if (isStream ? answer.status !== 200 : answer.status < 400 || answer.status > 499) return `not refused: ${shown}`;
  if (fault === undefined || fault.message === "" || fault.message === "undefined") return `says nothing: ${shown}`;
  // So Connect has it: how many messages there are, and whether they are compressed, is the protocol's business.
  const isProtocol = /^protocol error|compressed envelope/.test(fault.message);
  if (SERVER_FAULTS.includes(fault.code) && !isProtocol) return `takes it for its own fault: ${shown}`;
  if (typeof fault.code === "number" && fault.code !== answer.status) return `two codes: ${shown}`;
  const { names } = options;
  if (names !== undefined && !plain(fault.message).includes(plain(names))) {
    return `does not name ${names}: ${shown}`;
  }
  return undefined;
}

const CLI = fileURLToPath(new URL("../../packages/cli/dist/main.js", import.meta.url));

function keyCommand(server: Pick<ServerInUse, "stateDirectory">, ...args: readonly string[]): string {
  return execFileSync(process.execPath, [CLI, "key", ...args, "--state-dir", server.stateDirectory], {
    encoding: "utf8",
    stdio: ["ignore", "pipe", "pipe"],
  });
}

/** As the operator makes one. Limits are flags of `holdfast key create`. */
export function createKey(
  server: Pick<ServerInUse, "stateDirectory">,
  name: string,
  ...limits: readonly string[]
): { readonly id: string; readonly key: string } {
  return JSON.parse(keyCommand(server, "create", name, "--json", ...limits)) as { id: string; key: string };
}

export function revokeKey(server: Pick<ServerInUse, "stateDirectory">, id: string): void {
  keyCommand(server, "revoke", id);
}

/** The process's memory that is not a file's, in bytes. */
export function residentBytes(pid: number): number {
  const [, kilobytes] = /^RssAnon:\s+(\d+) kB$/m.exec(readFileSync(`/proc/${pid}/status`, "utf8")) ?? [];
  return Number(kilobytes) * 1024;
}

/** A wrong value, as JSON text, at its place in a right body. */
export function bodyWith(right: Readonly<Record<string, unknown>>, field: string, wrong: string): string {
  const [top = "", ...inner] = field.split(".");
  const below = (right[top] ?? {}) as Readonly<Record<string, unknown>>;
  const value = inner.length === 0 ? wrong : bodyWith(below, inner.join("."), wrong);
  const pairs = Object.entries(right)
    .filter(([name]) => name !== top)
    .map(([name, other]) => `${JSON.stringify(name)}:${JSON.stringify(other)}`);
  return `{${[...pairs, `${JSON.stringify(top)}:${value}`].join()}}`;
}

/** Runs all, a few at a time. */
export async function forEachOf<T>(items: readonly T[], work: (item: T) => Promise<void>, atOnce = 16): Promise<void> {
  const queue = [...items];
  const worker = async () => {
    for (let item = queue.shift(); item !== undefined; item = queue.shift()) await work(item);
  };
  await Promise.all(Array.from({ length: atOnce }, worker));
}

/** That the server is the one it was, and well. */
export async function expectWell(server: ServerInUse, pid: number): Promise<void> {
  expect(server.pid).toBe(pid);
  const answer = await exchange(server.port, { target: "/health", headers: [["Host", "localhost"]] });
  expect(answer.status).toBe(204);
  expect(residentBytes(pid)).toBeGreaterThan(0);
}
