/** What is no HTTP, or tries to be two requests at once: refused or closed, and never passed on. */
import { afterEach, beforeAll, describe, expect, test, vi } from "vitest";
import {
  chunk,
  exchangeBytes,
  type HeaderList,
  RawConnection,
  requestBytes,
  requestHead,
} from "../helpers/raw-http.js";
import { useServer } from "../helpers/use-server.js";
import {
  type Client,
  controlHeaders,
  createClient,
  envdHeaders,
  expectWell,
  forEachOf,
  JSON_TYPE,
  portHeaders,
  type TestSandbox,
} from "./server-client.js";

const PORT = 8000;
const server = useServer({ args: ["--key-requests-per-second", "none"] });
let client: Client;
let sandbox: TestSandbox;
let pid = 0;

/** Says what it was asked, and keeps it. Reads requests the way a careless server does. */
const CARELESS_SERVER = String.raw`
import socketserver
class Handler(socketserver.StreamRequestHandler):
    def handle(self):
        while True:
            line = self.rfile.readline()
            if not line.strip(): return
            length = 0; chunked = False
            with open("/tmp/asked", "ab") as log: log.write(line)
            while True:
                header = self.rfile.readline()
                if header in (b"\r\n", b"\n", b""): break
                name, _, value = header.partition(b":")
                if name.strip().lower() == b"content-length": length = int(value)
                if name.strip().lower() == b"transfer-encoding": chunked = True
            while chunked:
                size = int(self.rfile.readline() or b"0", 16)
                self.rfile.read(size); self.rfile.readline()
                if size == 0: break
            self.rfile.read(length)
            self.wfile.write(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok")
class Server(socketserver.ThreadingTCPServer):
    allow_reuse_address = True
    daemon_threads = True
Server(("127.0.0.1", ${PORT}), Handler).serve_forever()
`;

beforeAll(async () => {
  pid = server.pid;
  client = createClient(server, server.apiKey);
  sandbox = await client.create();
  await client.control({
    method: "POST",
    target: `/v1/sandboxes/${sandbox.id}/commands`,
    headers: [JSON_TYPE],
    body: JSON.stringify({ argv: ["python3", "-c", CARELESS_SERVER] }),
  });
  await vi.waitFor(async () => expect((await client.port(sandbox, PORT, {})).text).toBe("ok"), { timeout: 20_000 });
}, 60_000);

afterEach(async () => {
  await expectWell(server, pid);
});

/** Where a request goes: each plane reads it in its own way. */
function heads(): Readonly<
  Record<string, { readonly method: string; readonly target: string; readonly headers: HeaderList }>
> {
  return {
    control: { method: "POST", target: "/v2/sandboxes", headers: [...controlHeaders(server.apiKey), JSON_TYPE] },
    own: {
      method: "PUT",
      target: `/v1/sandboxes/${sandbox.id}/files?path=/tmp/framed`,
      headers: controlHeaders(server.apiKey),
    },
    rpc: { method: "POST", target: "/process.Process/List", headers: [...envdHeaders(sandbox), JSON_TYPE] },
    files: {
      method: "POST",
      target: "/files?path=/tmp/framed",
      headers: [...envdHeaders(sandbox), ["Content-Type", "application/octet-stream"]],
    },
    port: { method: "POST", target: "/right", headers: portHeaders(sandbox.id, PORT) },
  };
}

const SMUGGLED = "GET /smuggled HTTP/1.1\r\nHost: localhost\r\n\r\n";

/** Refused, or closed without a word. */
async function outcomes(
  cases: Readonly<Record<string, string | Uint8Array>>,
  allowed: readonly number[] = [],
): Promise<string[]> {
  const found: string[] = [];
  await forEachOf(Object.entries(cases), async ([about, bytes]) => {
    const answer = await exchangeBytes(server.port, bytes).catch((error: Error) => error);
    if (answer === undefined) return;
    if (answer instanceof Error) found.push(`${about}: ${answer.message.slice(0, 100)}`);
    else if ((answer.status < 400 || answer.status > 499) && !allowed.includes(answer.status)) {
      found.push(`${about}: ${answer.status} ${answer.text.slice(0, 100)}`);
    }
  });
  return found.sort();
}

test("what is no HTTP/1.1 is refused", async () => {
  const rest = `Host: localhost\r\nX-API-Key: ${server.apiKey}\r\n\r\n`;
  const found = await outcomes({
    words: "hello\r\n\r\n",
    "a NUL": "\0\r\n\r\n",
    bytes: Buffer.alloc(5000, 0xff),
    "a TLS greeting": Buffer.from("16030100c8010000c40303", "hex"),
    "HTTP/2": "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
    "HTTP/0.9": "GET /\r\n\r\n",
    "HTTP/9.9": `GET /sandboxes HTTP/9.9\r\n${rest}`,
    "another protocol": `GET /sandboxes ICAP/1.1\r\n${rest}`,
    "an unknown method": `STEAL /sandboxes HTTP/1.1\r\n${rest}`,
    "a method in lower case": `get /sandboxes HTTP/1.1\r\n${rest}`,
    "spaces in the target": `GET /sand boxes HTTP/1.1\r\n${rest}`,
    "a NUL in the target": `GET /sand\0boxes HTTP/1.1\r\n${rest}`,
    "a target without a slash": `GET sandboxes HTTP/1.1\r\n${rest}`,
    "another host in the target": `GET http://elsewhere.example/sandboxes HTTP/1.1\r\n${rest}`,
    "a tunnel": `CONNECT localhost:22 HTTP/1.1\r\n${rest}`,
    "no host": `GET /sandboxes HTTP/1.1\r\nX-API-Key: ${server.apiKey}\r\n\r\n`,
    "two hosts": `GET /sandboxes HTTP/1.1\r\nHost: localhost\r\n${rest}`,
    "an empty host": `GET /sandboxes HTTP/1.1\r\nHost:\r\nX-API-Key: ${server.apiKey}\r\n\r\n`,
    "a host that is none": `GET /sandboxes HTTP/1.1\r\nHost: a b\r\nX-API-Key: ${server.apiKey}\r\n\r\n`,
    "a header without a colon": `GET /sandboxes HTTP/1.1\r\nNonsense\r\n${rest}`,
    "a header without a name": `GET /sandboxes HTTP/1.1\r\n: x\r\n${rest}`,
    "a space before the colon": `GET /sandboxes HTTP/1.1\r\nX-A : x\r\n${rest}`,
    "a NUL in a header": `GET /sandboxes HTTP/1.1\r\nX-A: a\0b\r\n${rest}`,
    "a bare CR in a header": `GET /sandboxes HTTP/1.1\r\nX-A: a\rb\r\n${rest}`,
    "a header of 20 KB": `GET /sandboxes HTTP/1.1\r\nX-A: ${"a".repeat(20_000)}\r\n${rest}`,
    "10,000 headers": `GET /sandboxes HTTP/1.1\r\n${"X-A: a\r\n".repeat(10_000)}${rest}`,
    "a target of 20 KB": `GET /${"a".repeat(20_000)} HTTP/1.1\r\n${rest}`,
    "an expectation that nobody meets": `GET /sandboxes HTTP/1.1\r\nExpect: 42\r\n${rest}`,
    "empty lines and words": `${"\r\n".repeat(1000)}x`.concat("\r\n\r\n"),
  });
  expect(found).toEqual([]);
});

test("a body with two lengths, or none that can be, is refused on every plane", async () => {
  const found: string[] = [];
  for (const [plane, { method, target, headers }] of Object.entries(heads())) {
    const framed = (framing: HeaderList, body: string) =>
      Buffer.concat([requestHead({ method, target, headers: [...headers, ...framing] }), Buffer.from(body, "latin1")]);
    const chunked: HeaderList = [["Transfer-Encoding", "chunked"]];
    const cases = {
      "length and chunks": framed([["Content-Length", 5], ...chunked], `0\r\n\r\n${SMUGGLED}`),
      "chunks and length": framed([...chunked, ["Content-Length", 5]], `0\r\n\r\n${SMUGGLED}`),
      "two lengths": framed(
        [
          ["Content-Length", 5],
          ["Content-Length", 6],
        ],
        `hello${SMUGGLED}`,
      ),
      "a list of lengths": framed([["Content-Length", "5, 6"]], `hello${SMUGGLED}`),
      "a negative length": framed([["Content-Length", -1]], SMUGGLED),
      "a length with a sign": framed([["Content-Length", "+5"]], `hello${SMUGGLED}`),
      "a length in hex": framed([["Content-Length", "0x5"]], `hello${SMUGGLED}`),
      "an endless length": framed([["Content-Length", "99999999999999999999999"]], SMUGGLED),
      "a length of words": framed([["Content-Length", "five"]], `hello${SMUGGLED}`),
      "an unknown coding": framed([["Transfer-Encoding", "xchunked"]], `0\r\n\r\n${SMUGGLED}`),
      "chunked, but not last": framed([["Transfer-Encoding", "chunked, gzip"]], `0\r\n\r\n${SMUGGLED}`),
      "chunked behind a space": framed([["Transfer-Encoding ", "chunked"]], `0\r\n\r\n${SMUGGLED}`),
      "chunked behind a tab": framed([["Transfer-Encoding", "\x0bchunked"]], `0\r\n\r\n${SMUGGLED}`),
      "chunked twice": framed([["Transfer-Encoding", "chunked, chunked"]], `0\r\n\r\n${SMUGGLED}`),
      "a size that is none": framed(chunked, `zz\r\nhello\r\n0\r\n\r\n${SMUGGLED}`),
      "a negative size": framed(chunked, `-5\r\nhello\r\n0\r\n\r\n${SMUGGLED}`),
      "an endless size": framed(chunked, `fffffffffffffffff\r\nhello\r\n0\r\n\r\n`),
      "a chunk that is longer": framed(chunked, `3\r\nhello\r\n0\r\n\r\n${SMUGGLED}`),
      "an endless extension": framed(chunked, `5;${"x".repeat(100_000)}\r\nhello\r\n0\r\n\r\n`),
      "endless trailers": framed(chunked, `0\r\n${"X-A: a\r\n".repeat(20_000)}\r\n`),
    };
    // 501 is what the standard has for a coding that is not known; from a port inside, 200 is its own answer to a whole request.
    found.push(...(await outcomes(cases, [501])).map((line) => `${plane}, ${line}`));
  }
  expect(found).toEqual([]);
  expect(await client.run(sandbox, "grep -c smuggled /tmp/asked || true")).toBe("0\n");
});

test("what follows a refused request on its connection is not taken for another", async () => {
  for (const { method, target, headers } of Object.values(heads())) {
    const connection = await RawConnection.open(server.port);
    await connection.send(
      requestHead({ method, target, headers: [...headers, ["Transfer-Encoding", "chunked"]] }),
      `zz\r\n${SMUGGLED}`,
    );
    const first = await connection.answer();
    const second = await connection.answer().catch(() => undefined);
    expect([first?.status ?? 400, second], target).toEqual([
      expect.toSatisfy((status: number) => status >= 400),
      undefined,
    ]);
    connection.destroy();
  }
});

describe("addresses", () => {
  test("of sandboxes that are none are refused", async () => {
    const address = (host: string, headers: HeaderList = []) =>
      requestBytes({ target: "/files", headers: [["Host", host], ...headers] });
    const byHeader = (id: string, port: string) =>
      address("localhost", [
        ["E2b-Sandbox-Id", id],
        ["E2b-Sandbox-Port", port],
      ]);
    const ids = ["", "..", "%2e%2e", "A", "a".repeat(33), "i-1", "\xff", "i/../x", "a, b", "__proto__!"];
    const ports = ["", "0", "-1", "65536", "99999999999", "1.5", "x", "80, 81", "0x50", "\xff", "08000"];
    const found = await outcomes({
      ...Object.fromEntries(ids.map((id) => [`id ${id}`, byHeader(id, "49983")])),
      ...Object.fromEntries(ports.map((port) => [`port ${port}`, byHeader(sandbox.id, port)])),
      "no id": address("localhost", [["E2b-Sandbox-Port", "49983"]]),
      "no port": address("localhost", [["E2b-Sandbox-Id", sandbox.id]]),
      "a shared name without an id": address("sandbox.example"),
      ...Object.fromEntries(
        ["0", "65536", "99999999999"].map((port) => [`host ${port}`, address(`${port}-${sandbox.id}.example`)]),
      ),
      ...Object.fromEntries(
        ["..", "A_", "a".repeat(33), ""].map((id) => [`host of ${id}`, address(`8000-${id}.example`)]),
      ),
    });
    expect(found).toEqual([]);
  });

  test("of sandboxes that do not exist, and of ports that are closed, have the documented answer", async () => {
    const missing = await client.port({ id: "iaaaaaaaaaaaaaaaaaaaa" }, 8000, {});
    expect([missing.status, JSON.parse(missing.text)]).toEqual([
      502,
      { sandboxId: "iaaaaaaaaaaaaaaaaaaaa", message: "The sandbox was not found", code: 502 },
    ]);
    const closed = await client.port(sandbox, 1, {});
    expect([closed.status, JSON.parse(closed.text)]).toEqual([
      502,
      { sandboxId: sandbox.id, message: "The sandbox is running but port is not open", port: 1, code: 502 },
    ]);
  });
});

test("what asks for another protocol without reason is refused", async () => {
  const upgrade = (target: string, headers: HeaderList) =>
    requestBytes({ target, headers: [...headers, ["Connection", "Upgrade"], ["Upgrade", "websocket"]] });
  const found = await outcomes({
    control: upgrade("/v2/sandboxes", controlHeaders(server.apiKey)),
    envd: upgrade("/process.Process/List", envdHeaders(sandbox)),
    "with a body": requestBytes({
      method: "POST",
      target: "/right",
      headers: [...portHeaders(sandbox.id, PORT), ["Connection", "Upgrade"], ["Upgrade", "websocket"]],
      body: SMUGGLED,
    }),
  });
  expect(found).toEqual([]);
  expect(await client.run(sandbox, "grep -c smuggled /tmp/asked || true")).toBe("0\n");
});

test("requests in one packet are answered one by one", async () => {
  const connection = await RawConnection.open(server.port);
  const one = requestBytes({ target: `/sandboxes/${sandbox.id}`, headers: controlHeaders(server.apiKey) });
  const other = requestBytes({ target: "/sandboxes/nobody", headers: controlHeaders(server.apiKey) });
  const third = requestBytes({
    method: "POST",
    target: "/sandboxes/nobody/timeout",
    headers: [...controlHeaders(server.apiKey), JSON_TYPE, ["Transfer-Encoding", "chunked"]],
    body: Buffer.concat([chunk('{"time'), chunk('out":1}'), chunk("")]),
  });
  await connection.send(one, other, third, one);
  const statuses = [];
  for (let index = 0; index < 4; index += 1) statuses.push((await connection.answer())?.status);
  expect(statuses).toEqual([200, 404, 404, 200]);
  connection.destroy();
});

test("the server has logged no fault of its own", () => {
  expect(server.log.split("\n").filter((line) => /"level":(50|60)/.test(line))).toEqual([]);
});
