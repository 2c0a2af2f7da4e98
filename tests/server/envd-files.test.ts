import { createHash, randomBytes } from "node:crypto";
import { request as openRequest } from "node:http";
import { setTimeout as sleep } from "node:timers/promises";
import { gunzipSync, gzipSync } from "node:zlib";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { signatureOf } from "../../packages/server/src/envd/http/access.js";
import { shell } from "../helpers/use-engine.js";
import { type ServedSandbox, serveOne, TOKEN } from "./serve-one.js";

const MIB = 1024 * 1024;
let served: ServedSandbox;

beforeAll(async () => {
  served = await serveOne({
    limits: {
      memoryBytes: 256 * MIB,
      pids: 64,
      cpuMillis: 2000,
      diskBytes: 64 * MIB,
      outputBytes: MIB,
      wallMs: undefined,
    },
    env: { GREETING: "hello" },
    defaultUser: "user",
  });
});
afterAll(() => served.close());

function address(): Record<string, string> {
  return { "e2b-sandbox-id": served.sandbox.id, "e2b-sandbox-port": "49983" };
}

function call(path: string, init: RequestInit & { readonly duplex?: "half" } = {}): Promise<Response> {
  const headers = new Headers({ ...address(), "x-access-token": TOKEN });
  for (const [name, value] of new Headers(init.headers)) headers.set(name, value);
  return fetch(`${served.url}${path}`, { ...init, headers });
}

function files(path: string, more: Record<string, string> = {}): string {
  return `/files?${new URLSearchParams({ path, ...more })}`;
}

async function put(path: string, body: string | Buffer, headers: Record<string, string> = {}): Promise<Response> {
  return call(files(path), {
    method: "POST",
    body: typeof body === "string" ? body : new Uint8Array(body),
    headers: { "content-type": "application/octet-stream", ...headers },
  });
}

const inside = async (script: string): Promise<string> => (await shell(served.sandbox, script)).stdout.trim();

describe("the plain routes", () => {
  test("health needs no token", async () => {
    const response = await fetch(`${served.url}/health`, { headers: address() });
    expect(response.status).toBe(204);
    expect(response.headers.get("access-control-allow-origin")).toBe("*");
  });

  test.each(["/metrics", "/envs", "/nothing", "/process.Process/List", "/files/compose"])(
    "%s needs the token",
    async (path) => {
      for (const token of [undefined, "wrong", `${TOKEN}x`]) {
        const response = await fetch(`${served.url}${path}`, {
          method: path.includes("ss/") || path.endsWith("compose") ? "POST" : "GET",
          headers: { ...address(), ...(token === undefined ? {} : { "x-access-token": token }) },
        });
        expect(response.status).toBe(401);
        expect(await response.json()).toEqual({
          code: 401,
          message: "unauthorized access, please provide a valid access token or method signing if supported",
        });
      }
    },
  );

  test("envs are the sandbox's", async () => {
    expect(await (await call("/envs")).json()).toMatchObject({ GREETING: "hello" });
  });

  test("metrics have E2B's fields", async () => {
    expect(Object.keys((await (await call("/metrics")).json()) as object)).toEqual([
      ...["ts", "cpu_count", "cpu_used_pct", "mem_total", "mem_used", "mem_cache", "mem_total_mib", "mem_used_mib"],
      ...["disk_used", "disk_total"],
    ]);
  });

  test.each(["/init", "/freeze", "/unfreeze", "/collapse", "/fsfreeze", "/fsthaw", "/upgrade"])(
    "%s is not for clients",
    async (path) => {
      const response = await fetch(`${served.url}${path}`, { method: "POST", headers: address(), body: "{}" });
      expect(response.status).toBe(404);
    },
  );

  test("a preflight is answered without a token", async () => {
    const response = await fetch(`${served.url}/files`, {
      method: "OPTIONS",
      headers: {
        ...address(),
        origin: "https://example.com",
        "access-control-request-method": "POST",
        "access-control-request-headers": "x-access-token, content-type",
      },
    });
    expect(response.status).toBe(204);
    expect(response.headers.get("access-control-allow-headers")).toBe("x-access-token, content-type");
  });
});

describe("a download", () => {
  const content = randomBytes(3 * MIB + 17);
  beforeAll(async () => {
    expect((await put("/home/user/data.bin", content)).status).toBe(200);
  });

  test("is the file, with its name and length", async () => {
    const response = await call(files("data.bin"));
    expect(response.status).toBe(200);
    expect(Object.fromEntries(response.headers)).toMatchObject({
      "content-length": String(content.length),
      "content-disposition": 'inline; filename="data.bin"',
      "content-type": "application/octet-stream",
      "accept-ranges": "bytes",
      vary: "Accept-Encoding",
    });
    expect(Buffer.from(await response.arrayBuffer()).equals(content)).toBe(true);
  });

  test("is packed for who asks for it", async () => {
    const { status, headers, body } = await raw("GET", files("data.bin"), { "accept-encoding": "gzip" });
    expect(status).toBe(200);
    expect(headers["content-encoding"]).toBe("gzip");
    expect(gunzipSync(body).equals(content)).toBe(true);
  });

  test("is refused if no form of it is acceptable", async () => {
    const { status } = await raw("GET", files("data.bin"), { "accept-encoding": "br, identity;q=0" });
    expect(status).toBe(406);
  });

  test.each([
    ["bytes=0-9", 0, 10],
    ["bytes=100-", 100, undefined],
    ["bytes=-7", -7, undefined],
    ["bytes=3145744-99999999", 3_145_744, undefined],
  ])("%s is a part", async (range, from, to) => {
    const response = await call(files("data.bin"), { headers: { range } });
    const expected = content.subarray(from, to);
    expect(response.status).toBe(206);
    expect(response.headers.get("content-length")).toBe(String(expected.length));
    expect(Buffer.from(await response.arrayBuffer()).equals(expected)).toBe(true);
  });

  test("beyond the end is 416", async () => {
    const response = await call(files("data.bin"), { headers: { range: "bytes=99999999-" } });
    expect(response.status).toBe(416);
    expect(response.headers.get("content-range")).toBe(`bytes */${content.length}`);
  });

  test("is not sent again if it has not changed", async () => {
    const first = await call(files("data.bin"), { method: "HEAD" });
    expect(first.headers.get("content-length")).toBe(String(content.length));
    const since = first.headers.get("last-modified") ?? "";
    expect((await call(files("data.bin"), { headers: { "if-modified-since": since } })).status).toBe(304);
    const gone = await call(files("data.bin"), { headers: { "if-range": "other", range: "bytes=0-1" } });
    expect(gone.status).toBe(200);
    await gone.arrayBuffer();
  });

  test("of an empty file has a length of 0", async () => {
    await put("/tmp/empty", "");
    const response = await call(files("/tmp/empty"));
    expect(response.headers.get("content-length")).toBe("0");
    expect(await response.text()).toBe("");
  });

  test("of a file of the kernel's has a content", async () => {
    expect(await (await call(files("/proc/self/status"))).text()).toContain("Pid:");
  });

  test("of a strange name is safe in a header", async () => {
    const path = '/tmp/a"b\r\nSet-Cookie: x=1\\ü.txt';
    expect((await put(path, "x")).status).toBe(200);
    const response = await call(files(path));
    expect(response.headers.get("set-cookie")).toBeNull();
    expect(response.headers.get("content-disposition")).toBe(
      `inline; filename="a_b__Set-Cookie: x=1__.txt"; filename*=UTF-8''a%22b%0D%0ASet-Cookie%3A%20x%3D1%5C%C3%BC.txt`,
    );
  });

  test.each([
    ["/tmp/none", 404, "path '/tmp/none' does not exist"],
    ["~/none", 404, "path '/home/user/none' does not exist"],
    ["/tmp", 400, "path '/tmp' is a directory"],
    ["", 400, "path '/home/user' is a directory"],
    ["/dev/null", 400, "path '/dev/null' is not a regular file"],
  ])("of %j is %i", async (path, code, message) => {
    const response = await call(files(path));
    expect(response.status).toBe(code);
    expect(await response.json()).toEqual({ code, message });
  });

  test("by an unknown user is 401", async () => {
    const response = await call(files("data.bin", { username: "nobodyhere" }));
    expect(await response.json()).toEqual({ code: 401, message: "invalid username: 'nobodyhere'" });
  });

  test.each(["/files?path=%ff", "/files?path=%00", "/files?path=a&path=b", "/files?path=%"])(
    "%s is 400",
    async (path) => {
      expect((await call(path)).status).toBe(400);
    },
  );

  test("that nobody reads on holds nothing", async () => {
    await put("/tmp/long", Buffer.alloc(20 * MIB));
    const controller = new AbortController();
    const response = await call(files("/tmp/long"), { signal: controller.signal });
    await response.body?.getReader().read();
    controller.abort();
    await expect.poll(() => served.dispatcher.activeSandboxRequests).toBe(0);
    await expect.poll(() => inside("ls /proc | grep -c '^[0-9]'")).toMatch(/^[1-9]$/);
    await served.sandbox.files.remove("/tmp/long");
  });
});

/** fetch unpacks and hides; this does not. */
function raw(
  method: string,
  path: string,
  headers: Record<string, string>,
): Promise<{ status: number; headers: NodeJS.Dict<string | string[]>; body: Buffer }> {
  return new Promise((resolve, reject) => {
    openRequest(
      `${served.url}${path}`,
      { method, headers: { ...address(), "x-access-token": TOKEN, ...headers } },
      (response) => {
        const chunks: Buffer[] = [];
        response.on("data", (chunk: Buffer) => chunks.push(chunk));
        response.on("end", () =>
          resolve({ status: response.statusCode ?? 0, headers: response.headers, body: Buffer.concat(chunks) }),
        );
      },
    )
      .on("error", reject)
      .end();
  });
}

describe("an upload", () => {
  test("is written where it says, by whom it says", async () => {
    const response = await put("sub/dir/a.txt", "one");
    expect(await response.json()).toEqual([{ path: "/home/user/sub/dir/a.txt", name: "a.txt", type: "file" }]);
    expect(await inside("stat -c '%U %a' /home/user/sub/dir/a.txt /home/user/sub")).toBe("user 644\nuser 755");
    const asRoot = await call(files("/tmp/r", { username: "root" }), {
      method: "POST",
      body: "x",
      headers: { "content-type": "application/octet-stream" },
    });
    expect(asRoot.status).toBe(200);
    expect(await inside("stat -c %U /tmp/r")).toBe("root");
  });

  test("may be packed", async () => {
    const content = "packed ".repeat(100_000);
    expect((await put("/tmp/p", gzipSync(content), { "content-encoding": "gzip" })).status).toBe(200);
    expect(await (await call(files("/tmp/p"))).text()).toBe(content);
  });

  test.each([
    ["text", Buffer.from("not gzip")],
    ["half", gzipSync(randomBytes(100_000)).subarray(0, 50_000)],
  ])("that is %s instead of gzip is refused, and the file stays as it was", async (_name, body) => {
    await put("/tmp/kept", "before");
    const response = await put("/tmp/kept", body, { "content-encoding": "gzip" });
    expect(response.status).toBe(400);
    expect(await (await call(files("/tmp/kept"))).text()).toBe("before");
  });

  test("in an unknown coding is refused", async () => {
    expect((await put("/tmp/p", "x", { "content-encoding": "br" })).status).toBe(400);
  });

  test("carries metadata, and replaces what was there", async () => {
    const first = await put("/tmp/meta", "x", { "X-Metadata-Author": "me", "X-Metadata-Empty": "" });
    expect(await first.json()).toEqual([
      { path: "/tmp/meta", name: "meta", type: "file", metadata: { author: "me", empty: "" } },
    ]);
    expect((await served.sandbox.files.stat("/tmp/meta")).attributes["user.e2b.author"]?.toString()).toBe("me");
    const second = await put("/tmp/meta", "x", { "X-Metadata-Other": "1" });
    expect(await second.json()).toMatchObject([{ metadata: { other: "1" } }]);
    const third = await put("/tmp/meta", "x");
    expect(await third.json()).toEqual([{ path: "/tmp/meta", name: "meta", type: "file" }]);
    expect((await put("/tmp/meta", "x", { "X-Metadata-Big": "b".repeat(4097) })).status).toBe(400);
  });

  test("as a form has many files, each with its path", async () => {
    const form = new FormData();
    form.append("other", "ignored");
    form.append("file", new Blob(["one"]), "/tmp/f/ü 1.txt");
    form.append("file", new Blob([randomBytes(MIB)]), "rel/2");
    form.append("unknown", new Blob(["ignored"]), "/tmp/f/never");
    form.append("file", new Blob([""]), "/tmp/f/3");
    const response = await call("/files", { method: "POST", body: form });
    expect(await response.json()).toEqual([
      { path: "/tmp/f/ü 1.txt", name: "ü 1.txt", type: "file" },
      { path: "/home/user/rel/2", name: "2", type: "file" },
      { path: "/tmp/f/3", name: "3", type: "file" },
    ]);
    expect(await inside("cat '/tmp/f/ü 1.txt'; ls /tmp/f | wc -l; wc -c < /home/user/rel/2")).toBe(`one2\n${MIB}`);
  });

  test("by a signed link is a field without a file name", async () => {
    const form = new FormData();
    form.append("file", "signed ü");
    const signature = signatureOf({ path: "/tmp/signed", operation: "write", username: "", token: TOKEN });
    const response = await fetch(`${served.url}${files("/tmp/signed", { signature })}`, {
      method: "POST",
      body: form,
      headers: address(),
    });
    expect(await response.json()).toEqual([{ path: "/tmp/signed", name: "signed", type: "file" }]);
    expect(await inside("cat /tmp/signed")).toBe("signed ü");
  });

  test("of two files to one path is refused after the first", async () => {
    const form = new FormData();
    form.append("file", "a");
    form.append("file", new Blob(["b"]), "b");
    const response = await call(files("/tmp/twice"), { method: "POST", body: form });
    expect(response.status).toBe(400);
    expect(await inside("cat /tmp/twice")).toBe("a");
  });

  test.each([
    ["no path", "/files", "application/octet-stream", "x"],
    ["a wrong type", "/files?path=/tmp/x", "text/plain", "x"],
    ["no boundary", "/files", "multipart/form-data", "x"],
    ["a form that is none", "/files", "multipart/form-data; boundary=b", "nonsense"],
    ["a form without files", "/files", "multipart/form-data; boundary=b", "--b--\r\n"],
    ["a directory", "/files?path=/tmp", "application/octet-stream", "x"],
    [
      "half a form",
      "/files",
      "multipart/form-data; boundary=b",
      '--b\r\ncontent-disposition: form-data; name="file"; filename="/tmp/half"\r\n\r\nabc',
    ],
  ])("with %s is 400", async (_name, path, type, body) => {
    const response = await call(path, { method: "POST", body: Buffer.from(body), headers: { "content-type": type } });
    expect(await response.json()).toMatchObject({ code: 400 });
    expect(await inside("ls /tmp/half 2>&1")).toContain("No such file");
  });

  test("that does not fit is 507, and the client learns of it", async () => {
    const response = await put("/tmp/huge", randomBytes(100 * MIB));
    expect(response.status).toBe(507);
    expect(await response.json()).toMatchObject({ code: 507 });
    expect(await inside("ls /tmp/huge 2>&1")).toContain("No such file");
    expect(await inside("df --output=pcent / | tail -1 | tr -d ' %'")).toMatch(/^[0-9]{1,2}$/);
  });

  test("that does not fit although it is small on the wire is 507", async () => {
    const response = await put("/tmp/bomb", gzipSync(Buffer.alloc(200 * MIB)), { "content-encoding": "gzip" });
    expect(response.status).toBe(507);
  });

  test("that breaks off leaves the file as it was", async () => {
    // The room of what did not fit comes back with the next commit of the file system.
    await expect.poll(async () => (await put("/tmp/whole", "whole")).status, { timeout: 40_000 }).toBe(200);
    const request = openRequest(`${served.url}${files("/tmp/whole")}`, {
      method: "POST",
      headers: { ...address(), "x-access-token": TOKEN, "content-type": "application/octet-stream" },
    });
    request.on("error", () => {});
    request.write(Buffer.alloc(MIB));
    await sleep(300);
    request.destroy();
    await expect.poll(() => served.dispatcher.activeSandboxRequests).toBe(0);
    expect(await inside("cat /tmp/whole; ls -a /tmp | grep -c holdfast")).toBe("whole0");
    await expect.poll(() => inside("ls /proc | grep -c '^[0-9]'")).toMatch(/^[1-9]$/);
  });

  test("of several at once stays whole", async () => {
    const parts = Array.from({ length: 6 }, () => randomBytes(4 * MIB));
    await Promise.all(parts.map((part, index) => put(`/tmp/many${index}`, part)));
    const sums = parts.map((part) => createHash("sha256").update(part).digest("hex"));
    expect((await inside("cd /tmp; sha256sum many* | cut -d' ' -f1; rm many*")).split("\n")).toEqual(sums);
  });
});

describe("compose", () => {
  test("puts files together", async () => {
    await put("/tmp/c1", "one ");
    await put("/tmp/c2", "two");
    const body = JSON.stringify({ source_paths: ["/tmp/c1", "/tmp/c2", "/tmp/c1"], destination: "/tmp/c1" });
    const response = await call("/files/compose", {
      method: "POST",
      body,
      headers: { "content-type": "application/json" },
    });
    expect(await response.json()).toEqual({ path: "/tmp/c1", name: "c1", type: "file" });
    expect(await inside("cat /tmp/c1")).toBe("one twoone");
  });

  test.each([{}, { source_paths: [], destination: "x" }, { source_paths: ["/tmp/none"], destination: 1 }, []])(
    "refuses %j",
    async (body) => {
      const response = await call("/files/compose", { method: "POST", body: JSON.stringify(body) });
      expect(response.status).toBe(400);
    },
  );

  test("of what is not there is 404 and makes nothing", async () => {
    const body = JSON.stringify({ source_paths: ["/tmp/none"], destination: "/tmp/c3" });
    expect((await call("/files/compose", { method: "POST", body })).status).toBe(404);
    expect(await inside("ls /tmp/c3 2>&1")).toContain("No such file");
  });
});

describe("a signed link", () => {
  const link = async (more: Record<string, string>) => {
    const response = await fetch(`${served.url}${files("/tmp/link", more)}`, { headers: address() });
    return { status: response.status, text: await response.text() };
  };
  const facts = { path: "/tmp/link", operation: "read", username: "", token: TOKEN } as const;
  const now = () => Math.floor(Date.now() / 1000);
  beforeAll(async () => {
    await put("/tmp/link", "linked");
  });

  test("opens its file, for as long as it says", async () => {
    expect(await link({ signature: signatureOf(facts) })).toEqual({ status: 200, text: "linked" });
    const expiration = now() + 60;
    const timed = { signature: signatureOf({ ...facts, expiration }), signature_expiration: String(expiration) };
    expect(await link(timed)).toEqual({ status: 200, text: "linked" });
    const past = now() - 60;
    const over = { signature: signatureOf({ ...facts, expiration: past }), signature_expiration: String(past) };
    expect(await link(over)).toEqual({ status: 401, text: '{"code":401,"message":"signature is already expired"}' });
  });

  test("opens nothing else", async () => {
    const invalid = { status: 401, text: '{"code":401,"message":"invalid signature"}' };
    expect(await link({ signature: signatureOf({ ...facts, path: "/tmp/other" }) })).toEqual(invalid);
    expect(await link({ signature: signatureOf({ ...facts, operation: "write" }) })).toEqual(invalid);
    expect(await link({ signature: signatureOf(facts), signature_expiration: "1" })).toEqual(invalid);
    expect(await link({ signature: signatureOf(facts), username: "root" })).toEqual(invalid);
    expect(await link({})).toEqual({ status: 401, text: '{"code":401,"message":"missing signature query parameter"}' });
  });
});
