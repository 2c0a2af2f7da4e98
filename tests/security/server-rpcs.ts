/** Every RPC of envd, with a right message and many wrong ones. */
import { Filesystem } from "../../packages/server/src/envd/gen/filesystem.js";
import { Process } from "../../packages/server/src/envd/gen/process.js";

export interface Rpc {
  /** "/process.Process/List" */
  readonly path: string;
  readonly kind: "unary" | "server_streaming" | "client_streaming" | "bidi_streaming";
}

export const rpcs: readonly Rpc[] = [...Process.methods, ...Filesystem.methods].map((method) => ({
  path: `/${method.parent.typeName}/${method.name}`,
  kind: method.methodKind,
}));

export interface RpcCases {
  readonly right: Readonly<Record<string, unknown>>;
  /** For each field, dotted, wrong values as JSON text. */
  readonly wrong: Readonly<Record<string, readonly string[]>>;
}

const quoted = (text: string): string => JSON.stringify(text);
const NOT_TEXT = ["1", "true", "[]", "{}"];
const NOT_MESSAGE = ["1", "true", '"x"', "[]"];
const NOT_UINT = ["-1", "1.5", "4294967296", '"x"', "true", "[]", "{}", "1e999"];
const NOT_PATH = [...NOT_TEXT, '"/a\\u0000b"', '"/\\ud800"', quoted(`/${"a/".repeat(3000)}`)];
const NO_PROCESS = [
  ...NOT_MESSAGE,
  "{}",
  ...NOT_UINT.map((pid) => `{"pid":${pid}}`),
  '{"pid":999999}',
  '{"pid":1,"tag":"x"}',
  '{"tag":1}',
  '{"tag":"nobody"}',
  '{"name":"x"}',
];
const NOT_SIZE = [...NOT_MESSAGE, ...NOT_UINT.map((cols) => `{"cols":${cols}}`), '{"cols":65536}', '{"width":1}'];
const WATCH = {
  path: [...NOT_PATH, '"/nowhere/at/all"', '"/etc/hostname"'],
  recursive: ["1", '"x"'],
  includeEntry: ["1"],
};

export const rpcCases: Readonly<Record<string, RpcCases>> = {
  "/process.Process/List": { right: {}, wrong: {} },
  "/process.Process/Start": {
    right: { process: { cmd: "/bin/true" } },
    wrong: {
      process: [...NOT_MESSAGE, "{}", "null"],
      "process.cmd": [...NOT_TEXT, "null", '""', '"a\\u0000b"', '"/nowhere/at/all"'],
      "process.args": ["1", '"x"', "{}", "[1]", "[null]", '["a\\u0000b"]'],
      "process.envs": ["1", '"x"', "[]", '{"A":1}', '{"A":null}', '{"A=B":"x"}', '{"":"x"}', '{"A":"a\\u0000b"}'],
      "process.cwd": [...NOT_PATH, '"/nowhere/at/all"', '"nowhere"', '"/etc/hostname"'],
      pty: NOT_MESSAGE,
      "pty.size": NOT_SIZE,
      tag: [...NOT_TEXT, '""', '"a\\u0000b"', quoted("x".repeat(2000))],
      stdin: ["1", '"x"', "[]"],
    },
  },
  "/process.Process/Connect": { right: { process: { pid: 999_999 } }, wrong: { process: NO_PROCESS } },
  "/process.Process/Update": {
    right: { process: { pid: 999_999 } },
    wrong: { process: NO_PROCESS, pty: NOT_MESSAGE, "pty.size": NOT_SIZE },
  },
  "/process.Process/SendInput": {
    right: { process: { pid: 999_999 }, input: { stdin: "YQ==" } },
    wrong: {
      process: NO_PROCESS,
      input: [
        ...NOT_MESSAGE,
        '{"stdin":1}',
        '{"stdin":"*not base64*"}',
        '{"stdin":"YQ==","pty":"YQ=="}',
        '{"file":"YQ=="}',
      ],
    },
  },
  "/process.Process/StreamInput": {
    right: { start: { process: { pid: 999_999 } } },
    wrong: {
      start: [...NOT_MESSAGE, "{}"],
      data: ["1", '{"input":{"stdin":"YQ=="}}', '{"input":{"stdin":1}}'],
      keepalive: ["1"],
    },
  },
  "/process.Process/CloseStdin": { right: { process: { pid: 999_999 } }, wrong: { process: NO_PROCESS } },
  "/process.Process/SendSignal": {
    right: { process: { pid: 999_999 }, signal: "SIGNAL_SIGKILL" },
    wrong: { process: NO_PROCESS, signal: ["0", "1", "-9", "1.5", "4294967296", '"SIGNAL_NOPE"', '""', "true", "[]"] },
  },
  "/filesystem.Filesystem/Stat": { right: { path: "/tmp" }, wrong: { path: NOT_PATH } },
  "/filesystem.Filesystem/MakeDir": { right: { path: "/tmp/made" }, wrong: { path: [...NOT_PATH, '""'] } },
  "/filesystem.Filesystem/Move": {
    right: { source: "/tmp/nothing", destination: "/tmp/b" },
    wrong: { source: [...NOT_PATH, '""'], destination: [...NOT_PATH, '""'] },
  },
  "/filesystem.Filesystem/ListDir": { right: { path: "/tmp" }, wrong: { path: NOT_PATH, depth: NOT_UINT } },
  "/filesystem.Filesystem/Remove": { right: { path: "/tmp/nothing" }, wrong: { path: [...NOT_PATH, '""'] } },
  "/filesystem.Filesystem/WatchDir": { right: { path: "/tmp" }, wrong: WATCH },
  "/filesystem.Filesystem/CreateWatcher": { right: { path: "/tmp" }, wrong: WATCH },
  "/filesystem.Filesystem/GetWatcherEvents": {
    right: { watcherId: "none" },
    wrong: { watcherId: [...NOT_TEXT, '""', '"nobody"', quoted("x".repeat(100_000)), '"__proto__"'] },
  },
  "/filesystem.Filesystem/RemoveWatcher": {
    right: { watcherId: "none" },
    wrong: { watcherId: [...NOT_TEXT, '""', '"nobody"', '"__proto__"'] },
  },
};
