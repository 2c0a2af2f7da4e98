/**
 * Every route of the server, with a right request and many wrong ones. What is registered in the source and missing here
 * fails a test, so that no route is left untried.
 */
import { readdirSync, readFileSync } from "node:fs";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { CONTROL_ROUTES } from "../../packages/server/src/envd/http/access.js";
import { IMAGES, TEMPLATES, VOLUMES } from "./server-image-routes.js";
import {
  BAD_INTEGERS,
  BAD_PATHS,
  NOT_BOOLEAN,
  NOT_ENV,
  NOT_METADATA,
  NOT_MS,
  NOT_NAME,
  NOT_NUMBER,
  NOT_PATH,
  NOT_RECORD,
  NOT_SECONDS,
  NOT_SIDE,
  NOT_SIZE,
  NOT_TEXT,
  quoted,
  type Route,
} from "./wrong-values.js";

export type { Route } from "./wrong-values.js";

const SOURCE = fileURLToPath(new URL("../../packages/server/src", import.meta.url));

const EGRESS = {
  allowOut: [
    "1",
    "{}",
    "[1]",
    '["not a host!"]',
    '["1.2.3.4/33"]',
    '["999.1.1.1"]',
    JSON.stringify(Array(1001).fill("1.1.1.1")),
  ],
  denyOut: ["1", "[1]", '["example.com"]', '["::/129"]'],
  rules: [
    "1",
    "[]",
    '{"bad domain!":[]}',
    '{"a.com":{}}',
    '{"a.com":[{"x":1}]}',
    '{"a.com":[{"transform":{"headers":{"bad name":"x"}}}]}',
    '{"a.com":[{"transform":{"headers":{"X":"a\\r\\nb"}}}]}',
  ],
  egressProxy: [
    "1",
    "{}",
    '{"address":"x"}',
    '{"address":"a.com:0"}',
    '{"address":"a.com:1","password":"x"}',
    '{"address":"a.com:1","x":1}',
  ],
};

const NETWORK = Object.fromEntries(Object.entries(EGRESS).map(([name, values]) => [`network.${name}`, values]));

const CREATE: Omit<Route, "route"> = {
  body: { templateID: "base" },
  wrong: {
    templateID: [...NOT_TEXT, "null", '""'],
    timeout: [...NOT_SECONDS, "0"],
    metadata: [...NOT_METADATA, '{"":"x"}', '{"a":"\\ud800"}'],
    envVars: [...NOT_ENV, `{"A":${quoted("x".repeat(140_000))}}`],
    secure: NOT_BOOLEAN,
    allow_internet_access: NOT_BOOLEAN,
    autoPause: NOT_BOOLEAN,
    autoPauseMemory: [...NOT_BOOLEAN, "false"],
    autoResume: ["true", "[]", "{}", '{"enabled":"x"}', '{"enabled":true,"x":1}'],
    network: NOT_RECORD,
    ...NETWORK,
    "network.allowPublicTraffic": NOT_BOOLEAN,
    "network.maskRequestHost": [...NOT_TEXT, '""', '"a b"', '"a\\r\\nX: 1"', '"a:99999"'],
    "network.httpsPorts": ["1", "[0]", "[65536]", "[1.5]", '["x"]', "[49983]"],
    "network.unknown": ["1"],
    volumeMounts: [
      ...["1", "{}", '"x"', "[1]", "[{}]", '[{"name":"v"}]', '[{"path":"/v"}]', '[{"name":1,"path":"/v"}]'],
      ...["v", "/", "/proc/1", "/dev", "/sys/x", "/a/../b", "/a/", "/a\0b", "/\ud800", `/${"a/".repeat(600)}a`].map(
        (path) => JSON.stringify([{ name: "v", path }]),
      ),
      '[{"name":"v","path":"/v","x":1}]',
      '[{"name":"v","path":"/v"},{"name":"w","path":"/v/w"}]',
      '[{"name":"no-such-volume","path":"/v"}]',
      JSON.stringify(Array.from({ length: 17 }, (_, index) => ({ name: "v", path: `/v${index}` }))),
    ],
    mcp: ["1", "[]", '"x"'],
    iam: ["1", "[]", '{"x":1}'],
  },
};
const CONNECT: Omit<Route, "route"> = { body: {}, wrong: { timeout: [...NOT_SECONDS, "0"], memory: NOT_BOOLEAN } };

const E2B: readonly Route[] = [
  ...VOLUMES,
  ...TEMPLATES,
  { route: "GET /health" },
  { route: "GET /metrics" },
  { route: "POST /sandboxes", ...CREATE },
  { route: "POST /v2/sandboxes", ...CREATE },
  { route: "POST /sandboxes/:sandboxID/connect", ...CONNECT },
  { route: "POST /v2/sandboxes/:sandboxID/connect", ...CONNECT },
  { route: "GET /sandboxes", wrongQuery: { metadata: ["%zz", "=x", "%25zz=1"], unknown: ["1"] } },
  {
    route: "GET /v2/sandboxes",
    wrongQuery: {
      metadata: ["%zz", "=x", "%25zz=1"],
      state: ["ended", "running,nope", "%00"],
      startedAfter: ["", "x", "5", "2026-01-01", "2026-13-01T00:00:00Z", "99999999999999"],
      order: ["", "up", "ASC"],
      limit: [...BAD_INTEGERS, "0", "101"],
      nextToken: ["x", "%00", "%ff", "a".repeat(9000), Buffer.from("1.UPPER").toString("base64url")],
      unknown: ["1"],
    },
  },
  { route: "GET /sandboxes/:sandboxID" },
  { route: "DELETE /sandboxes/:sandboxID" },
  { route: "POST /sandboxes/:sandboxID/timeout", body: { timeout: 60 }, wrong: { timeout: NOT_SECONDS } },
  { route: "POST /sandboxes/:sandboxID/refreshes", body: {}, wrong: { duration: NOT_SECONDS } },
  { route: "POST /sandboxes/:sandboxID/pause", body: {}, wrong: { memory: NOT_BOOLEAN } },
  {
    route: "POST /sandboxes/:sandboxID/resume",
    body: {},
    wrong: { timeout: [...NOT_SECONDS, "0"], memory: NOT_BOOLEAN, autoPause: NOT_BOOLEAN },
  },
  {
    route: "PUT /sandboxes/:sandboxID/network",
    body: {},
    wrong: { ...EGRESS, allow_internet_access: NOT_BOOLEAN, allowPublicTraffic: ["true"], httpsPorts: ["[1]"] },
  },
  {
    route: "GET /sandboxes/metrics",
    query: "sandbox_ids=iaaaaaaaaaaaaaaaaaaaa",
    wrongQuery: { sandbox_ids: ["", "A", "..", "%00", "%ff", Array(101).fill("a").join()], unknown: ["1"] },
  },
  {
    route: "GET /sandboxes/:sandboxID/metrics",
    wrongQuery: { start: BAD_INTEGERS, end: BAD_INTEGERS, unknown: ["1"] },
  },
  {
    route: "GET /sandboxes/:sandboxID/logs",
    wrongQuery: { start: BAD_INTEGERS, limit: [...BAD_INTEGERS, "1001"], unknown: ["1"] },
  },
  {
    route: "GET /v2/sandboxes/:sandboxID/logs",
    wrongQuery: {
      cursor: BAD_INTEGERS,
      limit: [...BAD_INTEGERS, "1001"],
      direction: ["", "up"],
      level: ["", "loud"],
      unknown: ["1"],
    },
  },
  { route: "GET /teams" },
  { route: "GET /templates", wrongQuery: { teamID: ["somebody", "%zz"], unknown: ["1"] } },
  { route: "GET /templates/aliases/:alias" },
];

const V1_CREATE: NonNullable<Route["wrong"]> = {
  template: NOT_NAME,
  timeoutMs: NOT_MS,
  onTimeout: [...NOT_TEXT, '"explode"'],
  autoResume: NOT_BOOLEAN,
  env: NOT_ENV,
  metadata: [...NOT_METADATA, '{"a":"\\ud800"}', '{"a":"\\u0000"}'],
  limits: NOT_RECORD,
  "limits.memoryBytes": NOT_SIZE,
  "limits.pids": NOT_SIZE,
  "limits.cpuMillis": NOT_SIZE,
  "limits.diskBytes": NOT_SIZE,
  "limits.outputBytes": NOT_SIZE,
  "limits.unknown": ["1"],
};
const COMMAND: Omit<Route, "route"> = {
  body: { argv: ["/bin/true"] },
  wrong: {
    argv: ["1", '"true"', "{}", "[]", "[1]", "[null]", '["a\\u0000b"]', '["\\ud800"]', '[""]'],
    env: NOT_ENV,
    cwd: NOT_PATH,
    user: NOT_NAME,
    stdin: [...NOT_TEXT, '"ajar"'],
    pty: [
      "1",
      "[]",
      "{}",
      '{"columns":1}',
      '{"columns":0,"rows":1}',
      '{"columns":1.5,"rows":1}',
      '{"columns":1,"rows":65536}',
      '{"columns":1,"rows":1,"x":1}',
    ],
    limits: NOT_RECORD,
    "limits.memoryBytes": NOT_SIZE,
    "limits.pids": NOT_SIZE,
    "limits.wallMs": NOT_SIZE,
    "limits.unknown": ["1"],
    graceMs: [...NOT_NUMBER, "-1", "1.5", "1e999", "600001"],
    tag: NOT_NAME,
    whenReaderIsSlow: [...NOT_TEXT, '"wait"'],
  },
};
const FILE_QUERY = { path: BAD_PATHS, user: ["", "%00", "%ff", "a".repeat(300)], unknown: ["1"] };
const EVENT_QUERY = {
  after: BAD_INTEGERS,
  tail: [...BAD_INTEGERS, "1001"],
  follow: ["", "yes", "2"],
  limit: [...BAD_INTEGERS, "0", "1001"],
  unknown: ["1"],
};

const V1: readonly Route[] = [
  ...IMAGES,
  { route: "POST /v1/sandboxes", body: {}, wrong: V1_CREATE, wrongQuery: { unknown: ["1"] } },
  {
    route: "GET /v1/sandboxes",
    wrongQuery: {
      status: ["", "dead", "%00"],
      metadata: ["", "x", "=x", "%25zz=1"],
      template: ["", "%00", "a".repeat(300)],
      limit: [...BAD_INTEGERS, "0", "101"],
      cursor: ["x", "%00", "a".repeat(9000), Buffer.from("1.UPPER").toString("base64url")],
      unknown: ["1"],
    },
  },
  { route: "GET /v1/sandboxes/:id", wrongQuery: { unknown: ["1"] } },
  { route: "DELETE /v1/sandboxes/:id", wrongQuery: { unknown: ["1"] } },
  { route: "POST /v1/sandboxes/:id/timeout", body: { timeoutMs: 60_000 }, wrong: { timeoutMs: NOT_MS } },
  { route: "POST /v1/sandboxes/:id/pause", body: {}, wrong: { memory: NOT_BOOLEAN } },
  { route: "POST /v1/sandboxes/:id/resume", body: {}, wrong: { timeoutMs: NOT_MS, memory: NOT_BOOLEAN } },
  {
    route: "PATCH /v1/sandboxes/:id/limits",
    body: { pids: 512 },
    wrong: { memoryBytes: NOT_SIZE, cpuMillis: NOT_SIZE, pids: NOT_SIZE, diskBytes: ["1"] },
  },
  { route: "GET /v1/sandboxes/:id/usage" },
  { route: "GET /v1/sandboxes/:id/postmortem" },
  { route: "GET /v1/host", wrongQuery: { unknown: ["1"] } },
  { route: "POST /v1/sandboxes/:id/run", ...COMMAND },
  { route: "POST /v1/sandboxes/:id/commands", ...COMMAND },
  { route: "GET /v1/sandboxes/:id/commands", wrongQuery: { unknown: ["1"] } },
  { route: "GET /v1/sandboxes/:id/commands/:command", wrongQuery: { unknown: ["1"] } },
  {
    route: "GET /v1/sandboxes/:id/commands/:command/output",
    wrongQuery: {
      stdout: BAD_INTEGERS,
      stderr: BAD_INTEGERS,
      data: ["", "yes"],
      whenReaderIsSlow: ["", "wait"],
      unknown: ["1"],
    },
  },
  {
    route: "DELETE /v1/sandboxes/:id/commands/:command",
    wrongQuery: { graceMs: [...BAD_INTEGERS, "600001"], unknown: ["1"] },
  },
  {
    route: "POST /v1/sandboxes/:id/commands/:command/signal",
    body: { signal: "SIGTERM" },
    wrong: {
      signal: ["true", "[]", "{}", "null", "-1", "0", "1.5", "99", "1e999", '""', '"SIGNOPE"', '"9"'],
      whole: NOT_BOOLEAN,
    },
  },
  {
    route: "POST /v1/sandboxes/:id/commands/:command/resize",
    body: { columns: 80, rows: 24 },
    wrong: { columns: NOT_SIDE, rows: NOT_SIDE },
  },
  { route: "POST /v1/sandboxes/:id/commands/:command/stdin", wrongQuery: { close: ["", "yes"], unknown: ["1"] } },
  {
    route: "GET /v1/sandboxes/:id/files",
    query: "path=/etc/hostname",
    wrongQuery: { ...FILE_QUERY, offset: BAD_INTEGERS, length: BAD_INTEGERS },
  },
  {
    route: "GET /v1/sandboxes/:id/files/list",
    query: "path=/tmp",
    wrongQuery: { ...FILE_QUERY, depth: [...BAD_INTEGERS, "0", "1001"] },
  },
  {
    route: "GET /v1/sandboxes/:id/files/watch",
    query: "path=/tmp",
    wrongQuery: { ...FILE_QUERY, recursive: ["", "yes"] },
  },
  { route: "GET /v1/sandboxes/:id/files/info", query: "path=/tmp", wrongQuery: FILE_QUERY },
  {
    route: "DELETE /v1/sandboxes/:id/files",
    query: "path=/tmp/nothing",
    wrongQuery: { ...FILE_QUERY, recursive: ["", "yes"] },
  },
  {
    route: "PUT /v1/sandboxes/:id/files",
    query: "path=/tmp/file",
    wrongQuery: { ...FILE_QUERY, mode: ["", "9", "rw", "77777"], parents: ["", "yes"] },
  },
  {
    route: "POST /v1/sandboxes/:id/files/directory",
    body: { path: "/tmp/d" },
    wrong: { path: NOT_PATH, user: NOT_NAME, mode: ["-1", '"755"', "1.5", "4096"], parents: NOT_BOOLEAN },
  },
  {
    route: "POST /v1/sandboxes/:id/files/move",
    body: { from: "/tmp/nothing", to: "/tmp/b" },
    wrong: { from: NOT_PATH, to: NOT_PATH, user: NOT_NAME },
  },
  { route: "GET /v1/events", query: "follow=0", wrongQuery: EVENT_QUERY },
  { route: "GET /v1/sandboxes/:id/events", query: "follow=0", wrongQuery: EVENT_QUERY },
];

const ENVD_FILE_QUERY = {
  path: ["/a%00b", "/%ff", "/%zz", `/${"a/".repeat(3000)}`, "a&path=b"],
  username: ["nobody-at-all", "%00", "%ff", "a".repeat(300), "0", "a:b"],
};

const ENVD: readonly Route[] = [
  { route: "GET /health" },
  { route: "GET /metrics" },
  { route: "GET /envs" },
  { route: "GET /files", query: "path=/etc/hostname", wrongQuery: ENVD_FILE_QUERY },
  { route: "HEAD /files", query: "path=/etc/hostname" },
  { route: "POST /files", query: "path=/tmp/f", wrongQuery: ENVD_FILE_QUERY },
  {
    route: "POST /files/compose",
    body: { source_paths: ["/etc/hostname"], destination: "/tmp/composed" },
    wrong: {
      source_paths: ["1", '"x"', "{}", "[]", "[1]", '[""]', '["/a\\u0000"]', JSON.stringify(Array(1001).fill("/x"))],
      destination: NOT_PATH,
      username: NOT_TEXT,
    },
  },
];

/** What E2B has and this server does not: 501, whatever is asked. */
function missingRoutes(): string[] {
  const text = readFileSync(join(SOURCE, "e2b/not-implemented-routes.ts"), "utf8");
  return [...text.matchAll(/\[\[([^\]]+)\], "([^"]+)"/g)].flatMap(([, methods = "", path]) =>
    [...methods.matchAll(/"(\w+)"/g)].map(([, method]) => `${method} ${path}`),
  );
}

/** As they are written down in the source of a directory. */
function registeredIn(directory: string, prefix = ""): string[] {
  return readdirSync(join(SOURCE, directory))
    .filter((name) => name.endsWith(".ts") && !name.endsWith(".test.ts"))
    .flatMap((name) => {
      const text = readFileSync(join(SOURCE, directory, name), "utf8");
      const single = [
        ...text.matchAll(
          /\.(get|post|put|patch|delete)(?:<[^(]*>)?\(\s*["`](\/[^"`]*|\$\{version\.prefix\}[^"`]*)["`]/g,
        ),
      ].map(([, method = "", path = ""]): [string, string] => [method.toUpperCase(), path]);
      const several = [...text.matchAll(/method: \[("[^\]]+)\],\s*url: "([^"]+)"/g)].flatMap(
        ([, methods = "", path = ""]) =>
          [...methods.matchAll(/"(\w+)"/g)].map(([, method = ""]): [string, string] => [method, path]),
      );
      return [...single, ...several].flatMap(([method, path]) =>
        path.startsWith("$")
          ? ["", "/v2"].map((version) => `${method} ${path.replace(/^\$\{[^}]+\}/, version)}`)
          : [`${method} ${prefix}${path}`],
      );
    });
}

export const routes = {
  e2b: E2B,
  v1: V1,
  envd: ENVD,
  missing: missingRoutes(),
  /** Of envd, and nobody's business outside. */
  control: CONTROL_ROUTES,
};

export function registeredRoutes(): { readonly control: string[]; readonly envd: string[] } {
  return {
    control: [
      ...registeredIn("http"),
      ...registeredIn("metrics"),
      ...registeredIn("e2b"),
      ...registeredIn("v1", "/v1"),
    ].sort(),
    envd: registeredIn("envd/http").sort(),
  };
}
