/** What must stay where it is: tokens out of sandboxes, sandboxes off the API, and secrets out of logs and lists. */
import { createHash } from "node:crypto";
import { readdirSync, readFileSync, statSync } from "node:fs";
import { networkInterfaces } from "node:os";
import { join } from "node:path";
import { afterEach, beforeAll, describe, expect, test, vi } from "vitest";
import { envelope, exchange, type HeaderList, RawConnection, requestBytes } from "../helpers/raw-http.js";
import { TEST_DOMAIN, useServer } from "../helpers/use-server.js";
import {
  type Client,
  controlHeaders,
  createClient,
  createKey,
  ENVD_PORT,
  expectWell,
  JSON_TYPE,
  portHeaders,
  revokeKey,
  type TestSandbox,
} from "./server-client.js";

const PORT = 8000;
/** As much of the server's log as is kept for tests. */
const LOG_CHARACTERS = 20_000;
const SECRET_VALUE = "correct-horse-battery-staple";
const PROXY_PASSWORD = "proxy-password-0123456789";
const server = useServer({
  args: ["--domain", TEST_DOMAIN, "--key-requests-per-second", "none", "--log-level", "trace"],
});
let client: Client;
let open: TestSandbox;
let closed: TestSandbox;
let pid = 0;

const ECHO_SERVER = `
import json
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
class Handler(BaseHTTPRequestHandler):
    def log_message(self, *args): pass
    def do_GET(self):
        body = json.dumps({"path": self.path, "headers": self.headers.items()}).encode()
        self.send_response(200)
        self.send_header("Set-Cookie", "session=stolen; Domain=${TEST_DOMAIN}; Path=/")
        self.send_header("Access-Control-Allow-Credentials", "true")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)
ThreadingHTTPServer(("127.0.0.1", ${PORT}), Handler).serve_forever()
`;

async function startEcho(sandbox: TestSandbox, headers: HeaderList = []): Promise<void> {
  const answer = await client.control({
    method: "POST",
    target: `/v1/sandboxes/${sandbox.id}/commands`,
    headers: [JSON_TYPE],
    body: JSON.stringify({ argv: ["python3", "-c", ECHO_SERVER] }),
  });
  expect(answer.status, answer.text).toBe(201);
  await vi.waitFor(async () => expect((await client.port(sandbox, PORT, { headers })).status).toBe(200), {
    timeout: 20_000,
  });
}

beforeAll(async () => {
  pid = server.pid;
  client = createClient(server, server.apiKey);
  const envVars = { PASSWORD: SECRET_VALUE };
  const network = { egressProxy: { address: "proxy.example:1080", username: "u", password: PROXY_PASSWORD } };
  [open, closed] = await Promise.all([
    client.create({ envVars, network }),
    client.create({ envVars, network: { allowPublicTraffic: false }, autoPause: true, autoResume: { enabled: true } }),
  ]);
  await Promise.all([startEcho(open), startEcho(closed, [["e2b-traffic-access-token", closed.trafficToken ?? ""]])]);
}, 60_000);

afterEach(async () => {
  await expectWell(server, pid);
});

const byName = (id: string, port = PORT): HeaderList => [["Host", `${port}-${id}.${TEST_DOMAIN}`]];
const traffic = (token: string | null) => ["E2B-Traffic-Access-Token", token ?? ""] as const;

describe("ports", () => {
  test("of a sandbox that is not public want its token, by name and by header", async () => {
    for (const address of [byName(closed.id), portHeaders(closed.id, PORT)]) {
      const ask = async (headers: HeaderList) =>
        (await exchange(server.port, { headers: [...address, ...headers] })).status;
      expect(await ask([])).toBe(403);
      for (const wrong of ["", "x", closed.token, server.apiKey, `${closed.trafficToken}, ${closed.trafficToken}`]) {
        expect(await ask([traffic(wrong)]), wrong).toBe(403);
      }
      expect(await ask([controlHeaders(server.apiKey)[1] ?? traffic("")])).toBe(403);
      expect(await ask([["Cookie", `E2B-Traffic-Access-Token=${closed.trafficToken}`]])).toBe(403);
      expect(await ask([traffic(closed.trafficToken)])).toBe(200);
    }
    const query = await exchange(server.port, {
      target: `/?e2b-traffic-access-token=${closed.trafficToken}`,
      headers: byName(closed.id),
    });
    expect(query.status).toBe(403);
  });

  test("of a sandbox that is not public want its token for other protocols too", async () => {
    const connection = await RawConnection.open(server.port);
    await connection.send(
      requestBytes({ headers: [...byName(closed.id), ["Connection", "Upgrade"], ["Upgrade", "websocket"]] }),
    );
    expect((await connection.answer())?.status).toBe(403);
    connection.destroy();
  });

  test("do not open with the token of another sandbox, and tokens of one kind are none of the other", async () => {
    const other = await client.create({ network: { allowPublicTraffic: false } });
    expect(other.trafficToken).toMatch(/^[0-9a-f]{64}$/);
    expect(other.trafficToken).not.toBe(closed.trafficToken);
    expect((await exchange(server.port, { headers: [...byName(closed.id), traffic(other.trafficToken)] })).status).toBe(
      403,
    );
    const rpc = await client.port(closed, ENVD_PORT, {
      method: "POST",
      target: "/process.Process/List",
      headers: [JSON_TYPE, ["X-Access-Token", closed.trafficToken ?? ""]],
      body: "{}",
    });
    expect(rpc.status).toBe(401);
    await client.control({ method: "DELETE", target: `/sandboxes/${other.id}` });
  });

  test("do not wake a sandbox that is not public for somebody without its token", async () => {
    const state = async () =>
      (JSON.parse((await client.control({ target: `/sandboxes/${closed.id}` })).text) as { state: string }).state;
    expect((await client.control({ method: "POST", target: `/sandboxes/${closed.id}/pause` })).status).toBe(204);
    const strangers: readonly HeaderList[] = [
      byName(closed.id),
      [...byName(closed.id), traffic("x")],
      byName(closed.id, ENVD_PORT),
      [...byName(closed.id, ENVD_PORT), ["X-Access-Token", "x"]],
    ];
    for (const headers of strangers) {
      const answer = await exchange(server.port, { target: "/files?path=x", headers });
      expect(answer.status).toBeGreaterThanOrEqual(400);
      expect(await state(), JSON.stringify(headers)).toBe("paused");
    }
    expect(
      (await exchange(server.port, { headers: [...byName(closed.id), traffic(closed.trafficToken)] })).status,
    ).toBe(200);
    expect(await state()).toBe("running");
  });

  test("get no secret of ours passed on", async () => {
    const headers: HeaderList = [
      ["X-Access-Token", open.token],
      traffic(closed.trafficToken),
      ["X-API-Key", server.apiKey],
      ["Authorization", `Bearer ${server.apiKey}`],
      ["X-Mine", "kept"],
    ];
    for (const address of [byName(open.id), portHeaders(open.id, PORT)]) {
      const { text } = await exchange(server.port, { headers: [...address, ...headers] });
      expect(text).toContain("kept");
      for (const secret of [open.token, closed.trafficToken ?? "", server.apiKey]) expect(text).not.toContain(secret);
      expect(text.toLowerCase()).not.toMatch(/e2b-sandbox|access-token|api-key|authorization/);
    }
  });

  test("cannot leave anything at the API that it would heed", async () => {
    const cookie = (await exchange(server.port, { headers: byName(open.id) })).headers["set-cookie"] ?? "";
    expect(cookie).toContain("session=stolen");
    for (const name of [TEST_DOMAIN, `api.${TEST_DOMAIN}`, "localhost"]) {
      const answer = await exchange(server.port, {
        target: "/sandboxes",
        headers: [
          ["Host", name],
          ["Cookie", cookie],
          ["Origin", `http://${PORT}-${open.id}.${TEST_DOMAIN}`],
        ],
      });
      expect(answer.status, name).toBe(401);
      expect(answer.headers["access-control-allow-credentials"]).toBeUndefined();
      expect(answer.headers["set-cookie"]).toBeUndefined();
    }
    // A page that was brought here under another name cannot speak to sandboxes by header.
    for (const name of [
      "elsewhere.example",
      `api.${TEST_DOMAIN}`,
      TEST_DOMAIN,
      `${PORT}-${closed.id}.elsewhere.example`,
    ]) {
      const answer = await exchange(server.port, {
        target: "/",
        headers: [...portHeaders(open.id, PORT).slice(1), ["Host", name]],
      });
      expect([400, 401], name).toContain(answer.status);
    }
  });
});

describe("a program inside", () => {
  const root = (script: string) => client.run(open, `sudo -n bash -c ${JSON.stringify(script)}`);

  test("does not reach the server over the network", async () => {
    const addresses = [
      "127.0.0.1",
      "::1",
      "localhost",
      "10.0.2.2",
      "172.17.0.1",
      "169.254.169.254",
      ...Object.values(networkInterfaces()).flatMap((list) => (list ?? []).map(({ address }) => address)),
    ];
    const tries = [...new Set(addresses)].map(
      (address) => `(echo > /dev/tcp/${address}/${server.port}) 2>/dev/null && echo reached ${address}`,
    );
    expect(await client.run(open, `${tries.join("; ")}; true`)).toBe("");
    expect(
      await root("ls /sys/class/net 2>/dev/null; cat /proc/net/dev | tail -n +3 | cut -d: -f1 | tr -d ' '"),
    ).toMatch(/^(lo\n)+$/);
  });

  test("does not see the server's files, socket or processes", async () => {
    for (const path of ["/var/lib/holdfast", "/run/holdfast", server.stateDirectory, server.socketPath]) {
      expect(await root(`ls -d ${path} 2>&1 || true`), path).toContain("No such file");
    }
    expect(
      await root("find / -xdev -name '*.db' -o -xdev -name holdfast.sock 2>/dev/null | grep -i holdfast || true"),
    ).toBe("");
    const inside = await root("cat /proc/*/cmdline /proc/*/environ 2>/dev/null | tr '\\\\0' '\\\\n'");
    for (const secret of [server.apiKey, open.token, closed.trafficToken ?? "", server.stateDirectory]) {
      expect(inside).not.toContain(secret);
    }
  });

  test("does not find its own tokens or keys anywhere", async () => {
    // In two halves: the search itself is remembered as what was run, and must not be what is found later.
    const halves = [open.token, server.apiKey].map((secret) => [secret.slice(0, 20), secret.slice(20)].join("''"));
    const searches = halves.map((halved) => `grep -rls ${halved} /etc /home /root /run /tmp /var /opt /srv`);
    const found = await client.run(open, `${searches.map((search) => `sudo -n ${search}`).join("; ")}; true`);
    expect(found).toBe("");
  });
});

describe("secrets", () => {
  /** Does once what the server can do, right and wrong. */
  async function useEverything(): Promise<void> {
    const key = createKey(server, "another");
    const other = createClient(server, key.key);
    const start = envelope({
      process: { cmd: "/bin/bash", args: ["-c", "echo $PASSWORD $OWN >&2; exit 3"], envs: { OWN: SECRET_VALUE } },
    });
    const stream = ["Content-Type", "application/connect+json"] as const;
    const signature = createHash("sha256").update(`x:read::${open.token}`).digest("base64").replace(/=+$/, "");
    await client.envd(open, { method: "POST", target: "/process.Process/Start", headers: [stream], body: start });
    await client.envd(open, {
      method: "POST",
      target: "/process.Process/Start",
      headers: [stream],
      body: envelope({ process: { cmd: "/nowhere", envs: { OWN: SECRET_VALUE } } }),
    });
    await client.envd(open, {
      method: "POST",
      target: "/process.Process/Start",
      headers: [stream],
      body: envelope(`{"process":{"envs":{"A":"${SECRET_VALUE}","B":1}}}`),
    });
    await client.envd(open, { target: "/envs" });
    await client.port(open, ENVD_PORT, { target: `/files?path=x&signature=v1_${encodeURIComponent(signature)}` });
    await client.control({
      method: "POST",
      target: "/v2/sandboxes",
      headers: [JSON_TYPE],
      body: JSON.stringify({ templateID: "nope", envVars: { A: SECRET_VALUE } }),
    });
    await client.control({
      method: "POST",
      target: "/v2/sandboxes",
      headers: [JSON_TYPE],
      body: JSON.stringify({ templateID: "base", envVars: { A: SECRET_VALUE, B: 1 } }),
    });
    await client.control({
      method: "POST",
      target: `/v1/sandboxes/${open.id}/run`,
      headers: [JSON_TYPE],
      body: JSON.stringify({ argv: ["x".repeat(400_000)], env: { A: SECRET_VALUE } }),
    });
    await client.control({ method: "POST", target: `/sandboxes/${open.id}/pause` });
    await client.control({
      method: "POST",
      target: `/v2/sandboxes/${open.id}/connect`,
      headers: [JSON_TYPE],
      body: "{}",
    });
    await client.control({
      method: "PUT",
      target: `/sandboxes/${open.id}/network`,
      headers: [JSON_TYPE],
      body: JSON.stringify({ egressProxy: { address: "p.example:1", username: "u", password: PROXY_PASSWORD } }),
    });
    await other.control({ target: "/teams" });
    await other.control({ target: `/sandboxes/${open.id}`, headers: [["Authorization", `Bearer ${key.key}`]] });
    revokeKey(server, key.id);
    await other.control({ target: "/sandboxes" });
    for (const target of ["/%zz", `/sandboxes?api_key=${server.apiKey}`, `/nothing?token=${open.token}`])
      await client.control({ target });
    secrets.push(key.key, `v1_${signature}`);
  }
  const secrets: string[] = [];

  test("are in no log, however much is logged", async () => {
    secrets.push(server.apiKey, open.token, closed.token, closed.trafficToken ?? "", SECRET_VALUE, PROXY_PASSWORD);
    await useEverything();
    const { log } = server;
    expect(log.length, "more was logged than is kept: nothing is known about the rest").toBeLessThan(LOG_CHARACTERS);
    expect(log).toContain('"msg":"ready"');
    for (const secret of secrets) expect(log).not.toContain(secret);
  });

  test("of keys and sandboxes are not in the state directory", () => {
    const directory = join(server.stateDirectory, "server");
    const files = readdirSync(directory, { recursive: true, withFileTypes: true }).filter((entry) => entry.isFile());
    expect(files.map(({ name }) => name)).toContain("holdfast.db");
    for (const { parentPath, name } of files) {
      const path = join(parentPath, name);
      const bytes = readFileSync(path);
      for (const secret of [
        server.apiKey,
        server.apiKey.slice(4),
        open.token,
        closed.token,
        closed.trafficToken ?? "",
      ]) {
        expect(bytes.includes(secret), `${name} has ${secret.slice(0, 8)}…`).toBe(false);
      }
    }
    expect(statSync(directory).mode & 0o077, "others' rights on the server's directory").toBe(0);
  });

  test("are on no command line of the host", () => {
    const lines = readdirSync("/proc")
      .filter((name) => /^\d+$/.test(name) && Number(name) !== process.pid)
      .map((process) => {
        try {
          return readFileSync(`/proc/${process}/cmdline`, "utf8");
        } catch {
          // It has ended meanwhile.
          return "";
        }
      });
    for (const secret of [server.apiKey, open.token, SECRET_VALUE]) {
      expect(lines.filter((line) => line.includes(secret))).toEqual([]);
    }
  });

  test("are told to nobody who did not say them: in lists, details, events and post-mortems", async () => {
    const ended = await client.create({ envVars: { PASSWORD: SECRET_VALUE } });
    await client.control({ method: "DELETE", target: `/sandboxes/${ended.id}` });
    const targets = [
      "/sandboxes",
      "/v2/sandboxes",
      `/sandboxes/${open.id}`,
      `/v1/sandboxes/${open.id}`,
      "/v1/sandboxes",
      "/v1/events?follow=0",
      `/v1/sandboxes/${ended.id}/postmortem`,
      `/sandboxes/${open.id}/logs`,
      `/v2/sandboxes/${open.id}/logs`,
      `/v1/sandboxes/${open.id}/commands`,
    ];
    for (const target of targets) {
      const { text } = await client.control({ target });
      for (const secret of [PROXY_PASSWORD, SECRET_VALUE])
        expect(text.includes(secret), `${target}: ${secret}`).toBe(false);
      expect(text).not.toContain(server.apiKey);
    }
    // An ended sandbox says how it ended to whoever knows its name; not what it was started with.
    const page = await exchange(server.port, { headers: [...byName(ended.id), ["Accept", "text/html"]] });
    expect(page.status).toBe(502);
    for (const secret of [SECRET_VALUE, ended.token]) expect(page.text).not.toContain(secret);
  });
});
