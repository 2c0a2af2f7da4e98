/** A registry is asked by the server itself: nobody may have it ask what a build step could not. */
import { createServer, type Server } from "node:http";
import type { AddressInfo } from "node:net";
import { networkInterfaces } from "node:os";
import { afterAll, afterEach, beforeAll, describe, expect, it } from "vitest";
import { operatorCall } from "../helpers/operator-call.js";
import { patienceMs } from "../helpers/scale.js";
import { recipe, useImageServer } from "./image-server.js";

const OWN = Object.values(networkInterfaces())
  .flatMap((list) => list ?? [])
  .filter(({ family, internal }) => family === "IPv4" && !internal)
  .map(({ address }) => address);
const use = useImageServer({ env: { HOLDFAST_SERVE_BUILD_ALLOW: JSON.stringify(["127.0.0.9"]) } });
let service: Server;
let port: number;
let asked: string[] = [];

beforeAll(async () => {
  service = createServer((request, response) => {
    asked.push(request.url ?? "");
    response.statusCode = 404;
    response.end('{"errors":[{"code":"WORDS-OF-THE-HOST"}]}');
  });
  await new Promise<void>((resolve) => service.listen(0, "0.0.0.0", resolve));
  ({ port } = service.address() as AddressInfo);
});
afterEach(() => {
  asked = [];
});
afterAll(() => new Promise<void>((resolve) => void service.close(() => resolve())));

const places = () => [
  ...[
    "127.0.0.1",
    "127.8.8.8",
    "127.1",
    "0x7f.0.0.1",
    "0.0.0.0",
    "localhost",
    "LOCALHOST",
    "[::1]",
    "[::ffff:127.0.0.1]",
  ],
  ...["169.254.169.254", "[fe80::1]", "224.0.0.1", ...OWN],
];

async function call(path: string, body: object) {
  const { status, body: said } = await use.server.call<{ code: string; imageId: string }>("POST", path, body, {
    "X-API-Key": use.a.secret,
  });
  return { status, code: said.code };
}

describe("a key", () => {
  it(
    "has the server ask no service of this machine, nor where clouds keep credentials",
    async () => {
      for (const place of places()) {
        for (const plainHttp of [true, false, undefined]) {
          const body = { reference: `${place}:${port}/a/b`, ...(plainHttp === undefined ? {} : { plainHttp }) };
          for (const path of ["/v1/images/pull", "/v1/images/tiny/push"]) {
            const answer = await call(path, body);
            // Some of these are no names at all.
            expect([400, 403], `${path} ${JSON.stringify(body)}`).toContain(answer.status);
          }
        }
        const base = { kind: "image", name: `${place}:${port}/a/b` };
        const built = await call("/v1/images/builds", { recipe: recipe([], { base }) });
        expect([400, 403], place).toContain(built.status);
        const copy = { kind: "copy-from", source: base, paths: ["/x"], to: "/x" };
        expect([400, 403], place).toContain((await call("/v1/images/builds", { recipe: recipe([copy]) })).status);
      }
      expect(asked).toEqual([]);
    },
    patienceMs(60_000),
  );

  it("has it ask one that the operator has allowed", async () => {
    const answer = await fetch(`${use.server.url}/v1/images/pull`, {
      method: "POST",
      headers: { "X-API-Key": use.a.secret, "Content-Type": "application/json" },
      body: JSON.stringify({ reference: `127.0.0.9:${port}/a/b` }),
    });
    expect(await answer.text()).toContain("WORDS-OF-THE-HOST");
    expect(asked).not.toEqual([]);
  });

  it("builds templates on none of them", async () => {
    const asking = async (method: string, path: string, body: object) =>
      use.server.call<{ templateID: string; buildID: string }>(method, path, body, { "X-API-Key": use.a.secret });
    const { body: made } = await asking("POST", "/v3/templates", { name: "reaching" });
    const start = `/v2/templates/${made.templateID}/builds/${made.buildID}`;
    expect((await asking("POST", start, { fromImage: `127.0.0.1:${port}/a/b` })).status).toBe(403);
    expect(asked).toEqual([]);
  });
});

it("the operator may ask whoever he likes", async () => {
  const answer = await operatorCall(use.server, "POST", "/v1/images/pull", { reference: `127.0.0.1:${port}/a/b` });
  expect(answer.text).toContain("WORDS-OF-THE-HOST");
});
