/** Bad requests to envd of a sandbox, by somebody who has its token. */
import { gzipSync } from "node:zlib";
import { afterEach, beforeAll, describe, expect, test } from "vitest";
import { envelope, type RawRequest } from "../helpers/raw-http.js";
import { useServer } from "../helpers/use-server.js";
import { bodyWith, type Client, createClient, expectWell, JSON_TYPE, type TestSandbox } from "./server-client.js";
import { routes } from "./server-routes.js";
import { type Rpc, rpcCases, rpcs } from "./server-rpcs.js";
import {
  NEVER_JSON,
  objections,
  type Send,
  WRONG_WHOLES,
  type Wrong,
  wrongBodies,
  wrongQueries,
} from "./server-wrongs.js";

const MIB = 1024 * 1024;
const server = useServer({ args: ["--key-requests-per-second", "none", "--sandbox-disk-mb", "64"] });
let client: Client;
let sandbox: TestSandbox;
let pid = 0;

beforeAll(async () => {
  pid = server.pid;
  client = createClient(server, server.apiKey);
  sandbox = await client.create();
}, 60_000);

afterEach(async () => {
  await expectWell(server, pid);
});

describe("envd", () => {
  const send: Send = (request) => client.envd(sandbox, request);
  const message = (rpc: Rpc, body: string | Buffer): Pick<RawRequest, "body" | "headers"> =>
    rpc.kind === "unary"
      ? { headers: [JSON_TYPE], body }
      : { headers: [["Content-Type", "application/connect+json"]], body: envelope(body) };

  test("refuses wrong queries and bodies of its routes", async () => {
    const found: string[] = [];
    for (const route of routes.envd) {
      // Compose takes its JSON whatever it is called.
      const wrongs = [
        ...wrongBodies(route, sandbox.id).filter(({ about }) => !about.startsWith("content type")),
        ...wrongQueries(route, sandbox.id),
      ];
      found.push(
        ...(await objections(route.route, wrongs, (request) =>
          send(
            request.method === "POST" && request.body === undefined
              ? { ...request, headers: [["Content-Type", "application/octet-stream"], ...(request.headers ?? [])] }
              : request,
          ),
        )),
      );
    }
    expect(found).toEqual([]);
  });

  test("refuses wrong messages of every RPC and names the field", async () => {
    const found: string[] = [];
    for (const rpc of rpcs) {
      const { right, wrong } = rpcCases[rpc.path] ?? { right: {}, wrong: {} };
      const post = (about: string, body: string | Buffer, names?: string): Wrong => ({
        about,
        request: { method: "POST", target: rpc.path, ...message(rpc, body) },
        ...(names === undefined ? {} : { names }),
      });
      const wrongs = [
        ...NEVER_JSON.map(([about, body]) => post(about, body)),
        ...WRONG_WHOLES.map(([about, body]) => post(about, body)),
        post("an unknown field", bodyWith(right, "unknownField", "1"), "unknownField"),
        ...Object.entries(wrong).flatMap(([field, values]) =>
          values.map((value) =>
            post(`${field}: ${value.slice(0, 80)}`, bodyWith(right, field, value), nameOf(field, value)),
          ),
        ),
      ];
      found.push(...(await objections(rpc.path, wrongs, send)));
    }
    expect(found).toEqual([]);
  });

  test("refuses other methods, types and encodings of every RPC", async () => {
    const found: string[] = [];
    for (const rpc of rpcs) {
      const { headers = [], body = "" } = message(rpc, JSON.stringify(rpcCases[rpc.path]?.right));
      const request = (change: Partial<RawRequest>): RawRequest => ({
        method: "POST",
        target: rpc.path,
        headers,
        body,
        ...change,
      });
      const typed = (type: string): Wrong => ({ about: type, request: request({ headers: [["Content-Type", type]] }) });
      const wrongs: Wrong[] = [
        ...["GET", "PUT", "PATCH", "DELETE", "PROPFIND"].map((method) => ({
          about: method,
          request: request({ method }),
        })),
        ...[
          "text/plain",
          "application/proto",
          "application/grpc",
          "application/grpc-web+proto",
          "application/connect+proto",
          "\xff",
        ].map(typed),
        typed(rpc.kind === "unary" ? "application/connect+json" : "application/json"),
        { about: "no type", request: request({ headers: [] }) },
        ...["gzip", "br", "nonsense"].flatMap((coding) =>
          ["Content-Encoding", "Connect-Content-Encoding"].map((name) => ({
            about: `${name}: ${coding}`,
            request: request({ headers: [...headers, [name, coding]] }),
          })),
        ),
        ...["-1", "1.5", "x", "1e9", "99999999999", "\xff"].map((timeout) => ({
          about: `Connect-Timeout-Ms: ${timeout}`,
          names: "Connect-Timeout-Ms",
          request: request({ headers: [...headers, ["Connect-Timeout-Ms", timeout]] }),
        })),
        {
          about: "100 MB announced",
          names: "body",
          request: request({ headers: [...headers, ["Content-Length", 100 * MIB]], body: "" }),
        },
      ].filter(({ about }) => rpc.kind === "unary" || about !== "100 MB announced");
      found.push(...(await objections(rpc.path, wrongs, send)));
    }
    expect(found).toEqual([]);
  });

  test("refuses users that are none", async () => {
    const users = [
      "Basic",
      "Basic %%%",
      "Basic eA==",
      `Basic ${btoa("nobody-at-all:")}`,
      `Basic ${btoa("0:")}`,
      `Basic ${btoa("a\0b:")}`,
      `Basic ${btoa(`${"x".repeat(500)}:`)}`,
      `Basic ${btoa("\xff:")}`,
    ];
    const wrongs = users.map(
      (value): Wrong => ({
        about: value.slice(0, 60),
        request: {
          method: "POST",
          target: "/filesystem.Filesystem/Stat",
          headers: [JSON_TYPE, ["Authorization", value]],
          body: '{"path":"/tmp"}',
        },
      }),
    );
    expect(await objections("user", wrongs, send)).toEqual([]);
  });

  test("refuses envelopes that are none", async () => {
    const start = JSON.stringify({ process: { cmd: "/bin/true" } });
    const bodies: Readonly<Record<string, Buffer>> = {
      nothing: Buffer.alloc(0),
      "half a head": Buffer.from([0, 0, 0]),
      "a head alone": envelope("", { length: 100 }),
      "longer than it is": envelope(start, { length: start.length + 10 }),
      "shorter than it is": envelope(start, { length: start.length - 1 }),
      "4 GiB": envelope(start, { length: 0xffff_ffff }),
      "16 MiB announced": envelope(start, { length: 16 * MIB }),
      "9 MiB": envelope(JSON.stringify({ process: { cmd: "x".repeat(9 * MIB) } })),
      compressed: envelope(gzipSync(start), { flags: 1 }),
      "the end first": envelope("{}", { flags: 2 }),
      "two messages": Buffer.concat([envelope(start), envelope(start)]),
      "bare JSON": Buffer.from(start),
    };
    const found: string[] = [];
    for (const rpc of rpcs.filter(({ kind }) => kind === "server_streaming")) {
      const wrongs = Object.entries(bodies).map(
        ([about, body]): Wrong => ({
          about,
          request: { method: "POST", target: rpc.path, headers: [["Content-Type", "application/connect+json"]], body },
        }),
      );
      found.push(...(await objections(rpc.path, wrongs, send)));
    }
    expect(found).toEqual([]);
  });

  test("knows no control routes and no others", async () => {
    const targets = [
      ...routes.control,
      "/",
      "/nothing",
      "/process.Process/Nope",
      "/filesystem.Filesystem/",
      "/process.Process",
      "/../files",
      "/%2e%2e/files",
      "/%zz",
      "/files/",
      "/files/../envs",
      "//files",
    ];
    const wrongs = targets.flatMap((target) =>
      ["GET", "POST", "PUT", "DELETE"].map(
        (method): Wrong => ({ about: `${method} ${target}`, request: { method, target } }),
      ),
    );
    expect(await objections("envd", wrongs, send)).toEqual([]);
  });
});

/** What does not exist is named by what it is called, anything else by its field. */
function nameOf(field: string, value: string): string | undefined {
  if (field === "process.envs") return "env";
  return /nobody|nowhere.at.all"$|999999|watcher|65536|^start\{\}/.test(`${field}${value}`)
    ? undefined
    : field.split(".").at(-1);
}

test("the server has logged no fault of its own", () => {
  const faults = server.log.split("\n").filter((line) => /"level":(50|60)/.test(line));
  expect(faults).toEqual([]);
});
