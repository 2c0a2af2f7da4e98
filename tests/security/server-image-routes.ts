/** The routes of templates, snapshots, volumes and images. */
import {
  BAD_INTEGERS,
  LONG,
  NOT_BOOLEAN,
  NOT_MS,
  NOT_NUMBER,
  NOT_SECONDS,
  NOT_SIZE,
  NOT_TEXT,
  quoted,
  type Route,
} from "./wrong-values.js";

const BAD_PAGES = {
  limit: [...BAD_INTEGERS, "0", "101"],
  nextToken: ["x", "%00", "%ff", "a".repeat(9000), Buffer.from("1.UPPER").toString("base64url")],
};
const NOT_TEMPLATE_NAME = [...NOT_TEXT, '""', '":"', '"a:"', '":b"', '"a b"', '"../x"', '"a\\u0000b"', quoted(LONG)];
const NOT_TAGS = ["1", '"x"', "{}", "[1]", '[""]', '["a b"]', JSON.stringify(Array(101).fill("x"))];
const TEMPLATE_SIZE = {
  cpuCount: [...NOT_SIZE, "1025"],
  memoryMB: [...NOT_SIZE, "127", "1e15"],
  minFreeDiskMb: NOT_SIZE,
  teamID: NOT_TEXT,
};
const LOG_LEVEL = ["", "loud"];

export const TEMPLATES: readonly Route[] = [
  {
    route: "POST /v3/templates",
    body: { name: "app" },
    wrong: { name: NOT_TEMPLATE_NAME, tags: NOT_TAGS, ...TEMPLATE_SIZE },
  },
  {
    route: "POST /v2/templates",
    body: { alias: "app" },
    // E2B has called it by both, and it is told of by the newer.
    wrong: { alias: NOT_TEXT, ...TEMPLATE_SIZE },
  },
  { route: "GET /v2/templates", wrongQuery: { teamID: ["somebody", "%zz"], ...BAD_PAGES, unknown: ["1"] } },
  { route: "GET /templates/:templateID", wrongQuery: { ...BAD_PAGES, unknown: ["1"] } },
  { route: "PATCH /templates/:templateID", body: {}, wrong: { public: NOT_BOOLEAN } },
  { route: "PATCH /v2/templates/:templateID", body: {}, wrong: { public: NOT_BOOLEAN } },
  { route: "DELETE /templates/:templateID", wrongQuery: { unknown: ["1"] } },
  {
    route: "POST /templates/tags",
    body: { target: "app:v1", tags: ["v2"] },
    wrong: { target: NOT_TEMPLATE_NAME, tags: [...NOT_TAGS, "[]"] },
  },
  {
    route: "DELETE /templates/tags",
    body: { name: "app", tags: ["v1"] },
    wrong: { name: [...NOT_TEMPLATE_NAME, '"app:v1"'], tags: [...NOT_TAGS, "[]"] },
  },
  { route: "GET /templates/:templateID/tags", wrongQuery: { unknown: ["1"] } },
  { route: "GET /templates/:templateID/files/:hash", wrongQuery: { unknown: ["1"] } },
  // Without a right signature in the query it is nobody's.
  { route: "PUT /template-files/:templateID/:hash" },
  {
    route: "POST /v2/templates/:templateID/builds/:buildID",
    body: {},
    wrong: {
      startCmd: NOT_TEXT,
      readyCmd: NOT_TEXT,
      force: NOT_BOOLEAN,
      fromImage: NOT_TEXT,
      fromTemplate: NOT_TEXT,
      fromImageRegistry: [
        "1",
        "[]",
        '"x"',
        "{}",
        '{"type":"x"}',
        '{"type":"registry","username":"u"}',
        '{"type":"gcp"}',
      ],
      steps: [
        "1",
        "{}",
        "[1]",
        "[null]",
        "[{}]",
        '[{"type":1}]',
        '[{"type":"RUN","args":"x"}]',
        '[{"type":"RUN","args":[1]}]',
        '[{"type":"RUN","args":["x"],"unknown":1}]',
        '[{"type":"COPY","args":["a","b"],"filesHash":"x"}]',
        JSON.stringify(Array(991).fill({ type: "RUN", args: ["true"] })),
        JSON.stringify([{ type: "RUN", args: Array(2001).fill("x") }]),
      ],
    },
  },
  {
    route: "GET /templates/:templateID/builds/:buildID/status",
    wrongQuery: { logsOffset: BAD_INTEGERS, limit: [...BAD_INTEGERS, "0", "101"], level: LOG_LEVEL, unknown: ["1"] },
  },
  {
    route: "GET /templates/:templateID/builds/:buildID/logs",
    wrongQuery: {
      cursor: BAD_INTEGERS,
      direction: ["", "up"],
      limit: [...BAD_INTEGERS, "0", "101"],
      level: LOG_LEVEL,
      source: ["", "elsewhere"],
      unknown: ["1"],
    },
  },
  { route: "POST /sandboxes/:sandboxID/snapshots", body: {}, wrong: { name: [...NOT_TEMPLATE_NAME, '"base"'] } },
  { route: "GET /snapshots", wrongQuery: { ...BAD_PAGES, unknown: ["1"] } },
  {
    route: "POST /sandboxes/:sandboxID/fork",
    body: {},
    wrong: { timeout: [...NOT_SECONDS.filter((value) => value !== "null"), "0"], count: [...NOT_SIZE, "101"] },
  },
];

export const VOLUMES: readonly Route[] = [
  {
    route: "POST /volumes",
    body: { name: "data" },
    wrong: { name: [...NOT_TEXT, '""', '"a b"', '"../x"', '"a\\u0000b"', quoted(LONG)] },
  },
  { route: "GET /volumes" },
  { route: "GET /volumes/:volumeID" },
  { route: "DELETE /volumes/:volumeID" },
  // These want the volume's own token, and a key is none.
  { route: "GET /volumecontent/:volumeID/path", query: "path=/" },
  { route: "PATCH /volumecontent/:volumeID/path", query: "path=/" },
  { route: "DELETE /volumecontent/:volumeID/path", query: "path=/a" },
  { route: "GET /volumecontent/:volumeID/dir", query: "path=/" },
  { route: "POST /volumecontent/:volumeID/dir", query: "path=/a" },
  { route: "GET /volumecontent/:volumeID/file", query: "path=/a" },
  { route: "PUT /volumecontent/:volumeID/file", query: "path=/a" },
];

const NOT_REFERENCE = [...NOT_TEXT, '""', '"a\\u0000b"', quoted(LONG)];
const NOT_DIGESTS = [
  "1",
  '"x"',
  "{}",
  "[1]",
  '["x"]',
  `["sha256:${"AB".repeat(32)}"]`,
  JSON.stringify(Array(10_001).fill("x")),
];
const NOT_AUTH = [
  "1",
  "[]",
  '"x"',
  "{}",
  '{"username":"u"}',
  '{"username":"u","password":1}',
  '{"username":"u","password":"p","x":1}',
];

export const IMAGES: readonly Route[] = [
  { route: "GET /v1/images", wrongQuery: { unknown: ["1"] } },
  { route: "GET /v1/images/:image", wrongQuery: { unknown: ["1"] } },
  { route: "DELETE /v1/images/:image", wrongQuery: { unknown: ["1"] } },
  { route: "POST /v1/images/:image/names", body: { name: "app" }, wrong: { name: NOT_REFERENCE } },
  {
    route: "DELETE /v1/images/:image/names",
    query: "name=app",
    wrongQuery: { name: ["", "%00", "a".repeat(300)], unknown: ["1"] },
  },
  {
    route: "POST /v1/images/prune",
    body: {},
    wrong: { all: NOT_BOOLEAN, unusedForMs: [...NOT_NUMBER, "-1", "1.5", "1e300"] },
  },
  {
    route: "POST /v1/images/pull",
    body: { reference: "nowhere.invalid/app" },
    wrong: { reference: NOT_REFERENCE, names: ["1", '"x"', "[1]", '[""]'], auth: NOT_AUTH, plainHttp: NOT_BOOLEAN },
  },
  {
    route: "POST /v1/images/:image/push",
    body: { reference: "nowhere.invalid/app" },
    wrong: { reference: NOT_REFERENCE, auth: NOT_AUTH, plainHttp: NOT_BOOLEAN, compression: [...NOT_TEXT, '"rar"'] },
  },
  {
    route: "GET /v1/images/:image/export",
    wrongQuery: { format: ["", "zip"], compression: ["", "rar"], unknown: ["1"] },
  },
  { route: "POST /v1/images/import", wrongQuery: { name: ["", "%00"], platform: ["", "%00"], unknown: ["1"] } },
  { route: "POST /v1/images/blobs/missing", body: { digests: [] }, wrong: { digests: NOT_DIGESTS } },
  { route: "PUT /v1/images/blobs/:digest" },
  {
    route: "POST /v1/images/builds",
    bodyMb: 8,
    body: { recipe: { version: 1, base: { kind: "base" }, steps: [], stages: [], start: null } },
    wrong: {
      recipe: ["null", "1", "[]", "{}", '{"version":2}'],
      builder: ["1", "[]", '{"memoryMb":0}', '{"unknown":1}'],
      names: ["1", '"x"', "[1]", '[""]'],
      forceFrom: [...NOT_NUMBER, "-1", "1.5", "1001"],
      registryAuths: ["1", "[]", '"x"', '{"a":1}', '{"a":{"username":"u"}}', '{"a":{"username":1,"password":"p"}}'],
    },
  },
  { route: "GET /v1/images/builds", wrongQuery: { unknown: ["1"] } },
  { route: "GET /v1/images/builds/:build", wrongQuery: { unknown: ["1"] } },
  { route: "DELETE /v1/images/builds/:build", wrongQuery: { unknown: ["1"] } },
  {
    route: "GET /v1/images/builds/:build/log",
    wrongQuery: { from: BAD_INTEGERS, follow: ["", "yes"], unknown: ["1"] },
  },
  { route: "POST /v1/sandboxes/:id/snapshots", body: {}, wrong: { name: NOT_REFERENCE } },
  { route: "POST /v1/sandboxes/:id/fork", body: {}, wrong: { count: [...NOT_SIZE, "101"], timeoutMs: NOT_MS } },
];
