/** Hostile uploads, downloads and paths: over envd's routes, its RPCs and our own API. */
import { createHash } from "node:crypto";
import { gzipSync } from "node:zlib";
import { afterEach, beforeAll, describe, expect, test } from "vitest";
import { type HeaderList, RawConnection, type RawRequest, requestHead } from "../helpers/raw-http.js";
import { useServer } from "../helpers/use-server.js";
import {
  type Client,
  createClient,
  envdHeaders,
  expectWell,
  faultOf,
  forEachOf,
  JSON_TYPE,
  objectionTo,
  residentBytes,
  type TestSandbox,
} from "./server-client.js";
import { objections, type Wrong } from "./server-wrongs.js";

const MIB = 1024 * 1024;
const OCTETS = ["Content-Type", "application/octet-stream"] as const;
const GZIP = ["Content-Encoding", "gzip"] as const;
const server = useServer({ args: ["--key-requests-per-second", "none", "--sandbox-disk-mb", "64"] });
let client: Client;
let sandbox: TestSandbox;
let pid = 0;

beforeAll(async () => {
  pid = server.pid;
  client = createClient(server, server.apiKey);
  sandbox = await client.create();
  const script = [
    "cd /home/user",
    "ln -s loop loop",
    "ln -s /nowhere/at/all dangling",
    "mkfifo fifo",
    "mkdir directory",
    "echo text > file && echo text > victim",
    "echo secret > closed && chmod 0 closed",
    `python3 -c 'import socket; socket.socket(socket.AF_UNIX).bind("socket")'`,
  ].join(" && ");
  expect(await client.run(sandbox, `${script} && echo done`)).toBe("done\n");
}, 60_000);

afterEach(async () => {
  await expectWell(server, pid);
});

/** Each is nothing that can be read or written as a file, or nothing that this user may. */
const HOSTILE_PATHS = [
  "loop",
  "loop/x",
  "dangling",
  "dangling/x",
  "directory",
  "file/below",
  "/",
  "/proc",
  "/proc/1/mem",
  "/proc/self/mem",
  "/proc/1/environ",
  "/proc/self/fd/999",
  "/proc/kcore",
  "/proc/sysrq-trigger",
  "/sys/kernel/notes/x",
  "/dev/null/x",
  "/dev/tty",
  "/dev/mem",
  "/dev/sda",
  "/etc/shadow",
  "/root/x",
  "/nowhere/at/all",
  `/${"a".repeat(256)}`,
  `/tmp/${"a".repeat(256)}`,
  `/tmp${"/a".repeat(2000)}`,
  "../../../../../../etc/shadow",
  "/tmp/../../../../etc/shadow",
  "~root/x",
  "~nobody-at-all/x",
  "socket",
  "fifo",
  "closed",
  "/tmp/\u202e\u0007\u001b[2J",
];

describe("paths", () => {
  /** Whatever is done with such a path, the server and the sandbox are not at fault. */
  async function faults(
    requests: (path: string) => readonly (readonly [about: string, request: RawRequest, api?: "own"])[],
  ): Promise<string[]> {
    const found: string[] = [];
    const all = HOSTILE_PATHS.flatMap((path) => requests(path).map((entry) => [path, ...entry] as const));
    await forEachOf(all, async ([path, about, request, api]) => {
      const where = `${about} ${path.slice(0, 40)}`;
      const sending = api === "own" ? client.control(request) : client.envd(sandbox, request);
      const answer = await sending.catch((error: Error) => error);
      if (answer instanceof Error) found.push(`${where}: ${answer.message.slice(0, 150)}`);
      else if (answer.status >= 500 && answer.status !== 507)
        found.push(`${where}: ${answer.status} ${answer.text.slice(0, 150)}`);
      else if (/"code":"(internal|unknown)"/.test(answer.text)) found.push(`${where}: ${answer.text.slice(0, 150)}`);
    });
    return found.sort();
  }
  const rpc = (method: string, message: unknown): readonly [string, RawRequest] => [
    method,
    { method: "POST", target: `/filesystem.Filesystem/${method}`, headers: [JSON_TYPE], body: JSON.stringify(message) },
  ];

  test("are looked at and changed over envd without a fault of the server", async () => {
    const found = await faults((path) => [
      rpc("Stat", { path }),
      rpc("ListDir", { path, depth: 1 }),
      rpc("CreateWatcher", { path, recursive: false }),
      rpc("MakeDir", { path: `${path}/made` }),
      rpc("Move", { source: path, destination: `${path}/inside-itself` }),
      rpc("Move", { source: "/home/user/victim", destination: `${path}/x/y` }),
      rpc("Remove", { path: `${path}/never` }),
      ["GET", { target: `/files?path=${encodeURIComponent(path)}` }],
      ["GET part", { target: `/files?path=${encodeURIComponent(path)}`, headers: [["Range", "bytes=0-10"]] }],
      [
        "POST",
        { method: "POST", target: `/files?path=${encodeURIComponent(`${path}/x`)}`, headers: [OCTETS], body: "x" },
      ],
    ]);
    expect(found).toEqual([]);
  });

  test("are looked at and changed over our own API without a fault of the server", async () => {
    const found = await faults((path) => {
      const base = `/v1/sandboxes/${sandbox.id}/files`;
      const query = `path=${encodeURIComponent(path)}`;
      const post = (route: string, body: unknown): RawRequest => ({
        method: "POST",
        target: `${base}/${route}`,
        headers: [JSON_TYPE],
        body: JSON.stringify(body),
      });
      return [
        ["read", { target: `${base}?${query}` }, "own"],
        ["info", { target: `${base}/info?${query}` }, "own"],
        ["list", { target: `${base}/list?${query}` }, "own"],
        ["write", { method: "PUT", target: `${base}?${query}%2Fx`, body: "x" }, "own"],
        ["remove", { method: "DELETE", target: `${base}?${query}%2Fnever` }, "own"],
        ["directory", post("directory", { path: `${path}/made` }), "own"],
        ["move", post("move", { from: path, to: `${path}/inside-itself` }), "own"],
        [
          "command",
          {
            method: "POST",
            target: `/v1/sandboxes/${sandbox.id}/run`,
            headers: [JSON_TYPE],
            body: JSON.stringify({ argv: [path], cwd: path }),
          },
          "own",
        ],
      ];
    });
    expect(found).toEqual([]);
  });

  test("that are larger than the kernel takes are refused by our own API", async () => {
    const long = `/${"a/".repeat(4000)}`;
    const run = (body: unknown): RawRequest => ({
      method: "POST",
      target: `/v1/sandboxes/${sandbox.id}/run`,
      headers: [JSON_TYPE],
      body: JSON.stringify(body),
    });
    const wrongs: Wrong[] = [
      { about: "info", request: { target: `/v1/sandboxes/${sandbox.id}/files/info?path=${long}` } },
      { about: "cwd", request: run({ argv: ["true"], cwd: long }) },
      { about: "an argument of 300 KiB", request: run({ argv: ["true", "x".repeat(300 * 1024)] }) },
      { about: "900 KiB of arguments", request: run({ argv: ["true", ...Array<string>(9000).fill("x".repeat(100))] }) },
      { about: "a variable of 300 KiB", request: run({ argv: ["true"], env: { A: "x".repeat(300 * 1024) } }) },
      {
        about: "10,000 variables",
        request: run({
          argv: ["true"],
          env: Object.fromEntries(Array.from({ length: 10_000 }, (_, n) => [`A${n}`, "x".repeat(50)])),
        }),
      },
    ];
    expect(await objections("own API", wrongs, (request) => client.control(request))).toEqual([]);
  });
});

describe("uploads", () => {
  const upload = (headers: HeaderList, body: string | Uint8Array, target = "/files?path=/tmp/up"): RawRequest => ({
    method: "POST",
    target,
    headers,
    body,
  });
  const send = (request: RawRequest) => client.envd(sandbox, request);

  test("of broken forms are refused", async () => {
    const part = (head: string, body = "x") => `--b\r\n${head}\r\n\r\n${body}\r\n`;
    const file = 'Content-Disposition: form-data; name="file"; filename="a"';
    const form = (body: string | Uint8Array, type = "multipart/form-data; boundary=b"): RawRequest =>
      upload([["Content-Type", type]], body, "/files");
    const wrongs: readonly [string, RawRequest][] = [
      ["no boundary", form(part(file), "multipart/form-data")],
      ["an empty boundary", form(part(file), "multipart/form-data; boundary=")],
      ["a boundary of 5000", form(part(file), `multipart/form-data; boundary=${"b".repeat(5000)}`)],
      ["nothing", form("")],
      ["no parts", form("--b--\r\n")],
      ["no form", form("nonsense")],
      ["a part without an end", form(part(file))],
      ["half a head", form(`--b\r\nContent-Disposition: form-data; name="fi`)],
      ["no head", form(`--b\r\n\r\nx\r\n--b--\r\n`)],
      ["an endless head", form(`--b\r\nX: ${"x".repeat(100_000)}\r\n\r\nx\r\n--b--\r\n`)],
      ["no name", form(`${part("Content-Disposition: form-data")}--b--\r\n`)],
      ["another name", form(`${part('Content-Disposition: form-data; name="other"; filename="a"')}--b--\r\n`)],
      ["no file name and no path", form(`${part('Content-Disposition: form-data; name="file"')}--b--\r\n`)],
      ["an empty file name", form(`${part('Content-Disposition: form-data; name="file"; filename=""')}--b--\r\n`)],
      [
        "NUL in the file name",
        form(`${part('Content-Disposition: form-data; name="file"; filename="a\0b"')}--b--\r\n`),
      ],
      [
        "a file name of 5000",
        form(`${part(`Content-Disposition: form-data; name="file"; filename="/${"a/".repeat(2500)}"`)}--b--\r\n`),
      ],
      ["the same file twice", form(`${part(file)}${part(file)}--b--\r\n`)],
      ["20,000 parts", form(`${part('Content-Disposition: form-data; name="x"').repeat(20_000)}--b--\r\n`)],
      [
        "9 MiB without a file name",
        upload(
          [["Content-Type", "multipart/form-data; boundary=b"]],
          `${part('Content-Disposition: form-data; name="file"', "x".repeat(9 * MIB))}--b--\r\n`,
        ),
      ],
      ["bytes only", form(Buffer.alloc(1000, 0xff))],
    ];
    expect(
      await objections(
        "form",
        wrongs.map(([about, request]) => ({ about, request })),
        send,
      ),
    ).toEqual([]);
  });

  test("with wrong headers are refused", async () => {
    const wrongs: readonly [string, RawRequest, string?][] = [
      ["no type", upload([], "x"), "Content-Type"],
      ["another type", upload([["Content-Type", "text/plain"]], "x"), "Content-Type"],
      ["no path", upload([OCTETS], "x", "/files"), "path"],
      ["an empty path", upload([OCTETS], "x", "/files?path="), "path"],
      ["another coding", upload([OCTETS, ["Content-Encoding", "br"]], "x"), "Content-Encoding"],
      ["two codings", upload([OCTETS, ["Content-Encoding", "gzip, gzip"]], "x"), "Content-Encoding"],
      ["no gzip", upload([OCTETS, GZIP], "this is no gzip"), "gzip"],
      ["half a gzip", upload([OCTETS, GZIP], gzipSync(Buffer.alloc(100_000, 1)).subarray(0, 40)), "gzip"],
      ["a broken gzip", upload([OCTETS, GZIP], gzipSync("hello").fill(0xff, 10, 14)), "gzip"],
      ["metadata that is no text", upload([OCTETS, ["X-Metadata-A", "\xff"]], "x"), "X-Metadata"],
      ["metadata without a key", upload([OCTETS, ["X-Metadata-", "a"]], "x"), "X-Metadata"],
      ["metadata with a long key", upload([OCTETS, [`X-Metadata-${"a".repeat(300)}`, "a"]], "x"), "X-Metadata"],
      ["8 KiB of metadata", upload([OCTETS, ["X-Metadata-A", "a".repeat(8192)]], "x"), "X-Metadata"],
    ];
    const list = wrongs.map(
      ([about, request, names]): Wrong => ({ about, request, ...(names === undefined ? {} : { names }) }),
    );
    expect(await objections("upload", list, send)).toEqual([]);
  });

  test("of a gzip bomb fill the sandbox's disk and nothing else", async () => {
    const before = residentBytes(pid);
    // 512 MiB in half a megabyte, eight times what the disk holds.
    const bomb = gzipSync(Buffer.alloc(64 * MIB));
    const bombs = Buffer.concat(Array<Buffer>(8).fill(bomb));
    const peaks = await whileWatching(async () => {
      const answers = await Promise.all(
        [1, 2, 3, 4].map((n) => send(upload([OCTETS, GZIP], bombs, `/files?path=/tmp/bomb${n}`))),
      );
      for (const answer of answers) {
        expect(answer.status, answer.text).toBe(507);
        expect(faultOf(answer)?.message).toMatch(/disk quota|space/);
      }
    });
    expect(peaks - before).toBeLessThan(96 * MIB);
    await client.run(sandbox, "rm -f /tmp/bomb*");
    // What it packs again is not more than it was.
    const nested = await send(upload([OCTETS, GZIP], gzipSync(bomb), "/files?path=/tmp/nested"));
    expect(nested.status).toBe(200);
  }, 60_000);

  /** The most memory that the server had meanwhile. */
  async function whileWatching(work: () => Promise<void>): Promise<number> {
    let peak = 0;
    const timer = setInterval(() => {
      peak = Math.max(peak, residentBytes(pid));
    }, 50);
    try {
      await work();
    } finally {
      clearInterval(timer);
    }
    return peak;
  }

  test("that break off in the middle leave no file", async () => {
    for (const [name, headers, first] of [
      ["octets", [OCTETS], "x".repeat(1000)],
      [
        "form",
        [["Content-Type", "multipart/form-data; boundary=b"]],
        '--b\r\nContent-Disposition: form-data; name="file"; filename="x"\r\n\r\nhalf',
      ],
      ["gzip", [OCTETS, GZIP], gzipSync("x".repeat(100_000)).subarray(0, 50)],
    ] as const) {
      const connection = await RawConnection.open(server.port);
      const target = `/files?path=/tmp/half-${name}`;
      await connection.send(
        requestHead({
          method: "POST",
          target,
          headers: [...envdHeaders(sandbox), ...headers, ["Content-Length", 100_000]],
        }),
        first,
      );
      await expect.poll(() => connection.ended || client.run(sandbox, "ls -A /tmp | wc -l")).toBeTruthy();
      connection.destroy();
    }
    await expect.poll(() => client.run(sandbox, "ls -A /tmp | grep half- || true"), { timeout: 5000 }).toBe("");
  });
});

describe("downloads", () => {
  test("with ranges that make no sense are the whole, or refused", async () => {
    const ask = (range: string) => client.envd(sandbox, { target: "/files?path=file", headers: [["Range", range]] });
    for (const range of ["bytes=5-", "bytes=99-100", "bytes=99999999999999999999-", "bytes=-0"]) {
      const answer = await ask(range);
      expect([answer.status, objectionTo(answer)], range).toEqual([416, undefined]);
      expect(answer.headers["content-range"]).toBe("bytes */5");
    }
    for (const range of [
      "",
      "x",
      "bytes",
      "bytes=",
      "bytes=-",
      "bytes=a-b",
      "bytes=3-1",
      "bytes=0-1,2-3",
      "lines=1-2",
      `bytes=${"0-1,".repeat(3000)}`,
      "bytes=-1-2",
      "bytes=0x0-1",
      "\xff",
    ]) {
      const answer = await ask(range);
      expect([answer.status, answer.text], range).toEqual([200, "text\n"]);
    }
    for (const range of ["bytes=0-99999999999999999999", "bytes=-99999999999999999999"]) {
      const answer = await ask(range);
      expect([answer.status, answer.text], range).toEqual([206, "text\n"]);
    }
  });

  test("with links that are not signed right are refused", async () => {
    const sign = (text: string) => `v1_${createHash("sha256").update(text).digest("base64").replace(/=+$/, "")}`;
    const past = Math.floor(Date.now() / 1000) - 10;
    const right = sign(`file:read::${sandbox.token}`);
    const queries: readonly [string, string][] = [
      ["path=file", "missing signature query parameter"],
      ["path=file&signature=", "invalid signature"],
      ["path=file&signature=v1_x", "invalid signature"],
      [`path=directory&signature=${encodeURIComponent(right)}`, "invalid signature"],
      [`path=file&username=root&signature=${encodeURIComponent(right)}`, "invalid signature"],
      [`path=file&signature=${encodeURIComponent(sign(`file:write::${sandbox.token}`))}`, "invalid signature"],
      [`path=file&signature=${encodeURIComponent(right)}&signature_expiration=9999999999`, "invalid signature"],
      [
        `path=file&signature=${encodeURIComponent(sign(`file:read::${sandbox.token}:${past}`))}&signature_expiration=${past}`,
        "signature is already expired",
      ],
    ];
    for (const [query, message] of queries) {
      const answer = await client.port(sandbox, 49_983, { target: `/files?${query}` });
      expect([answer.status, JSON.parse(answer.text)], query).toEqual([401, { code: 401, message }]);
    }
    for (const expiration of ["", "x", "1.5", "1e9", "99999999999999999999", "%00"]) {
      const answer = await client.port(sandbox, 49_983, {
        target: `/files?path=file&signature=x&signature_expiration=${expiration}`,
      });
      expect([400, 401], `${expiration}: ${answer.text}`).toContain(answer.status);
    }
    const good = await client.port(sandbox, 49_983, {
      target: `/files?path=file&signature=${encodeURIComponent(right)}`,
    });
    expect(good.text).toBe("text\n");
  });
});

test("the server has logged no fault of its own", () => {
  expect(server.log.split("\n").filter((line) => /"level":(50|60)/.test(line))).toEqual([]);
});
