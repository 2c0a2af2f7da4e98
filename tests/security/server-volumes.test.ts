/** Volumes over the wire: whose they are, what sandboxes put into them, and what becomes of what serves them. */
import { createHash, randomBytes } from "node:crypto";
import { readdirSync, readFileSync } from "node:fs";
import { request as httpRequest } from "node:http";
import { join } from "node:path";
import { setTimeout as sleep } from "node:timers/promises";
import { pino } from "pino";
import { beforeAll, describe, expect, onTestFinished, test } from "vitest";
import { VolumeKeeper } from "../../packages/server/src/volumes/volume-keeper.js";
import { exchange, RawConnection, requestHead } from "../helpers/raw-http.js";
import { patienceMs } from "../helpers/scale.js";
import { sandboxesLeftIn } from "../helpers/shared-engine.js";
import { MIB, useEngine } from "../helpers/use-engine.js";
import { useServer } from "../helpers/use-server.js";
import { type Client, createClient, createKey, JSON_TYPE, residentBytes } from "./server-client.js";

const VOLUME_MB = 192;
const server = useServer({ args: ["--key-requests-per-second", "none", "--volume-mb", String(VOLUME_MB)] });

interface TestVolume {
  readonly volumeID: string;
  readonly name: string;
  readonly token: string;
}
interface Answer {
  readonly status: number;
  readonly text: string;
  readonly bytes: Buffer;
  // biome-ignore lint/suspicious/noExplicitAny: what a body is like is what the tests are about.
  readonly body: any;
}

let a: Client;
let b: Client;
beforeAll(() => {
  a = createClient(server, server.apiKey);
  b = createClient(server, createKey(server, "b").key);
});

const freshName = () => `v-${randomBytes(6).toString("hex")}`;

async function createVolume(client = a, name = freshName()): Promise<TestVolume> {
  const answer = await client.control({
    method: "POST",
    target: "/volumes",
    headers: [JSON_TYPE],
    body: JSON.stringify({ name }),
  });
  expect(answer.status, answer.text).toBe(201);
  const volume = JSON.parse(answer.text) as TestVolume;
  onTestFinished(async () => {
    await client.control({ method: "DELETE", target: `/volumes/${volume.volumeID}` });
  });
  return volume;
}

/** With the volume's token, unless the headers say otherwise. */
async function content(
  volume: Pick<TestVolume, "volumeID" | "token">,
  method: string,
  what: string,
  options: { readonly body?: string | Uint8Array; readonly headers?: Record<string, string> } = {},
): Promise<Answer> {
  const response = await fetch(`${server.url}/volumecontent/${volume.volumeID}/${what}`, {
    method,
    headers: { Authorization: `Bearer ${volume.token}`, ...options.headers },
    ...(options.body === undefined ? {} : { body: options.body }),
  });
  const bytes = Buffer.from(await response.arrayBuffer());
  const text = bytes.toString();
  const isJson = response.headers.get("content-type")?.startsWith("application/json") === true;
  return { status: response.status, text, bytes, body: isJson ? JSON.parse(text) : undefined };
}
const file = (path: string) => `file?path=${encodeURIComponent(path)}`;
const entry = (path: string) => `path?path=${encodeURIComponent(path)}`;
const put = (volume: TestVolume, path: string, body: string | Uint8Array) =>
  content(volume, "PUT", file(path), { body });

async function withVolume(volume: TestVolume, client = a) {
  const sandbox = await client.create({ volumeMounts: [{ name: volume.name, path: "/data" }] });
  onTestFinished(async () => {
    await client.control({ method: "DELETE", target: `/sandboxes/${sandbox.id}` });
  });
  return sandbox;
}

/** Sandboxes of the server's own, which serve contents: the API knows all others. */
async function keepers(): Promise<string[]> {
  const known = (await a.control({ target: "/v2/sandboxes?state=running,paused" })).text;
  return server.sandboxDirectories().filter((id) => !id.startsWith(".") && !known.includes(id));
}

describe("whose a volume is", () => {
  test("another key's volume is as one that there is not, by id and by name", async () => {
    const volume = await createVolume();
    const nobody = { volumeID: `v${"0".repeat(20)}`, name: "no-such-volume" };
    for (const [method, path] of [
      ["GET", (v: typeof nobody) => `/volumes/${v.volumeID}`],
      ["DELETE", (v: typeof nobody) => `/volumes/${v.volumeID}`],
      ["GET", (v: typeof nobody) => `/volumes/${v.name}`],
      ["DELETE", (v: typeof nobody) => `/volumes/${v.name}`],
    ] as const) {
      const plain = async (v: typeof nobody) => {
        const answer = await b.control({ method, target: path(v) });
        return `${answer.status} ${answer.text.replaceAll(v.volumeID, "ID").replaceAll(v.name, "NAME")}`;
      };
      expect(await plain(volume)).toBe(await plain(nobody));
      expect(await plain(volume)).toMatch(/^404 .*volume_not_found/);
    }
    expect((await b.control({ target: "/volumes" })).text).toBe("[]");
    for (const name of [volume.name, volume.volumeID]) {
      const made = await b.control({
        method: "POST",
        target: "/v2/sandboxes",
        headers: [JSON_TYPE],
        body: JSON.stringify({ templateID: "base", volumeMounts: [{ name, path: "/data" }] }),
      });
      expect([made.status, JSON.parse(made.text)]).toEqual([
        404,
        expect.objectContaining({ error_code: "volume_not_found", message: expect.stringContaining("[0].name") }),
      ]);
    }
    expect((await a.control({ target: `/volumes/${volume.volumeID}` })).status).toBe(200);
  });

  test("names are each key's own", async () => {
    const name = freshName();
    const [ofA, ofB] = [await createVolume(a, name), await createVolume(b, name)];
    expect(ofA.volumeID).not.toBe(ofB.volumeID);
    await put(ofA, "/whose", "a");
    await put(ofB, "/whose", "b");
    expect(await b.run(await withVolume(ofB, b), "cat /data/whose")).toBe("b");
    const twice = await a.control({
      method: "POST",
      target: "/volumes",
      headers: [JSON_TYPE],
      body: JSON.stringify({ name }),
    });
    expect(twice.status).toBe(409);
    const many = await Promise.all(
      Array.from({ length: 10 }, () =>
        a.control({ method: "POST", target: "/volumes", headers: [JSON_TYPE], body: `{"name":"${name}-many"}` }),
      ),
    );
    expect(many.map(({ status }) => status).sort()).toEqual([201, ...Array(9).fill(409)]);
    await a.control({ method: "DELETE", target: `/volumes/${name}-many` });
  });

  test("a token opens its own volume and nothing else, and nothing else opens it", async () => {
    const [ofA, otherOfA, ofB] = [await createVolume(), await createVolume(), await createVolume(b)];
    await put(ofA, "/file", "secret");
    const sandbox = await a.create();
    const wrong: Record<string, Record<string, string>> = {
      "no token": { Authorization: "" },
      "an empty one": { Authorization: "Bearer " },
      "another scheme": { Authorization: `Basic ${ofA.token}` },
      "half of it": { Authorization: `Bearer ${ofA.token.slice(0, 32)}` },
      "more than it": { Authorization: `Bearer ${ofA.token}0` },
      "the owner's other volume's": { Authorization: `Bearer ${otherOfA.token}` },
      "somebody else's volume's": { Authorization: `Bearer ${ofB.token}` },
      "a sandbox's": { Authorization: `Bearer ${sandbox.token}` },
      "the key": { Authorization: `Bearer ${a.key}` },
      "the key in its own header": { Authorization: "", "X-API-Key": a.key },
    };
    const requests: [string, string][] = [
      ["GET", entry("/file")],
      ["PATCH", entry("/file")],
      ["DELETE", entry("/file")],
      ["GET", "dir?path=/"],
      ["POST", "dir?path=/stolen"],
      ["GET", file("/file")],
      ["PUT", file("/file")],
    ];
    for (const [about, headers] of Object.entries(wrong)) {
      for (const [method, what] of requests) {
        const answer = await content(ofA, method, what, { headers, ...(method === "PUT" ? { body: "mine" } : {}) });
        expect([answer.status, answer.body.code], `${about}: ${method} ${what}`).toEqual([401, "unauthenticated"]);
        expect(answer.text).not.toContain(ofA.token);
      }
    }
    // Nor is it a key.
    const asKey = await exchange(server.port, {
      target: "/volumes",
      headers: [
        ["Host", "localhost"],
        ["Authorization", `Bearer ${ofA.token}`],
      ],
    });
    expect(asKey.status).toBe(401);
    expect((await content(ofA, "GET", file("/file"))).text).toBe("secret");
    expect((await content(ofA, "GET", "dir?path=/")).body).toHaveLength(1);
    await a.control({ method: "DELETE", target: `/sandboxes/${sandbox.id}` });
  });

  test("not even the operator's socket opens a content without its token", async () => {
    const volume = await createVolume();
    const status = await new Promise((resolve, reject) => {
      const options = { socketPath: server.socketPath, path: `/volumecontent/${volume.volumeID}/dir?path=/` };
      httpRequest(options, (response) => resolve(response.resume().statusCode))
        .on("error", reject)
        .end();
    });
    expect(status).toBe(401);
  });

  test("the token of a volume that is gone opens nothing, and says that it is gone", async () => {
    const volume = await createVolume();
    await put(volume, "/file", "x");
    await a.control({ method: "DELETE", target: `/volumes/${volume.volumeID}` });
    const answer = await content(volume, "GET", file("/file"));
    expect([answer.status, answer.body.code]).toEqual([404, "volume_not_found"]);
    expect((await content({ ...volume, token: "x" }, "GET", file("/file"))).status).toBe(401);
    expect(await keepers()).toEqual([]);
  });
});

describe("requests about a content", () => {
  test("that make no sense are refused by name, with a word for a code", async () => {
    const volume = await createVolume();
    const wrong: [method: string, what: string, names: RegExp, options?: Parameters<typeof content>[3]][] = [
      ["GET", "path", /^path/],
      ["GET", "path?path=", /^path/],
      ["GET", "path?path=/a&path=/b", /^path/],
      ["GET", "path?path=/a%00b", /path/],
      ["GET", "path?path=%ff", /query/],
      ["GET", "path?path=/../etc", /^path/],
      ["GET", `path?path=/${"a".repeat(5000)}`, /^path/],
      ["GET", "path?path=/&unknown=1", /unknown/],
      ["GET", "dir?path=/&depth=0", /depth/],
      ["GET", "dir?path=/&depth=101", /depth/],
      ["GET", "dir?path=/&depth=x", /depth/],
      ["POST", "dir?path=/a&mode=4096", /mode/],
      ["POST", "dir?path=/a&mode=-1", /mode/],
      ["POST", "dir?path=/a&uid=65536", /uid/],
      ["POST", "dir?path=/a&gid=1e3", /gid/],
      ["POST", "dir?path=/a&force=yes", /force/],
      ["PUT", "file?path=/", /path/, { body: "x" }],
      ["PUT", "file?path=/a&mode=x", /mode/, { body: "x" }],
      ["DELETE", "path?path=/", /^path/],
      ["DELETE", "path?path=/.//", /^path/],
    ];
    for (const [method, what, names, options] of wrong) {
      const answer = await content(volume, method, what, options);
      expect([answer.status, what, answer.body.code]).toEqual([400, what, expect.stringMatching(/^[a-z_]+$/)]);
      expect(answer.body.message).toMatch(names);
    }
    await put(volume, "/file", "x");
    const patches = ['{"mode":"7"}', '{"uid":-1}', '{"gid":65536}', '{"x":1}', "[]", "5", "{"];
    for (const body of patches) {
      const answer = await content(volume, "PATCH", entry("/file"), {
        body,
        headers: { "Content-Type": "application/json" },
      });
      expect([body, answer.status, answer.body.code]).toEqual([body, 400, "invalid_argument"]);
    }
    const text = await content(volume, "PATCH", entry("/file"), {
      body: "{}",
      headers: { "Content-Type": "text/plain" },
    });
    expect([text.status, typeof text.body.code]).toEqual([415, "string"]);
    expect((await content(volume, "GET", "dir?path=/")).body).toHaveLength(1);
  });

  test("stop at the volume's limit, on either side, and old content stays", async () => {
    const volume = await createVolume();
    const sandbox = await withVolume(volume);
    await put(volume, "/file", "old");
    const filled = await a.run(
      sandbox,
      `fallocate -l ${VOLUME_MB + 8}M /data/more 2>&1; rm -f /data/more; fallocate -l ${VOLUME_MB - 2}M /data/big`,
    );
    expect(filled).toContain("Disk quota exceeded");
    const over = await put(volume, "/file", randomBytes(4 * MIB));
    expect([over.status, over.body.code]).toEqual([507, "no_space"]);
    expect((await content(volume, "GET", file("/file"))).text).toBe("old");
    await content(volume, "DELETE", entry("/big"));
    await expect
      .poll(async () => (await put(volume, "/file", "new")).status, { timeout: patienceMs(10_000) })
      .toBe(201);
  });

  test("of 100 MB go through in constant memory, both ways", { timeout: patienceMs(60_000) }, async () => {
    const volume = await createVolume();
    await put(volume, "/warm", "up");
    const part = randomBytes(MIB);
    const sent = createHash("sha256");
    const atStart = residentBytes(server.pid);
    let most = 0;
    let count = 0;
    const measure = () => {
      most = Math.max(most, residentBytes(server.pid));
    };
    const body = new ReadableStream<Uint8Array>({
      pull(controller) {
        measure();
        if (count++ === 100) return controller.close();
        sent.update(part);
        controller.enqueue(part);
      },
    });
    const init = { method: "PUT", headers: { Authorization: `Bearer ${volume.token}` }, body, duplex: "half" };
    const up = await fetch(`${server.url}/volumecontent/${volume.volumeID}/${file("/big")}`, init as RequestInit);
    expect([up.status, ((await up.json()) as { size: number }).size]).toEqual([201, 100 * MIB]);
    const down = await fetch(`${server.url}/volumecontent/${volume.volumeID}/${file("/big")}`, {
      headers: { Authorization: `Bearer ${volume.token}` },
    });
    expect(down.headers.get("content-length")).toBe(String(100 * MIB));
    const received = createHash("sha256");
    for await (const chunk of down.body as unknown as AsyncIterable<Uint8Array>) {
      received.update(chunk);
      measure();
    }
    expect(received.digest("hex")).toBe(sent.digest("hex"));
    expect(most - atStart).toBeLessThan(48 * MIB);
  });

  test("that write one file at once leave one of them, whole", async () => {
    const volume = await createVolume();
    const bodies = Array.from({ length: 32 }, (_, index) => Buffer.alloc(200_000 + index, index));
    const answers = await Promise.all(bodies.map((body) => put(volume, "/file", body)));
    expect(new Set(answers.map(({ status }) => status))).toEqual(new Set([201]));
    const { bytes } = await content(volume, "GET", file("/file"));
    expect(bytes.equals(bodies[bytes[0] ?? -1] ?? Buffer.alloc(0))).toBe(true);
    expect((await content(volume, "GET", "dir?path=/")).body).toHaveLength(1);
    const many = await Promise.all(Array.from({ length: 200 }, (_, index) => put(volume, `/many-${index}`, "x")));
    for (const { status } of many) expect([201, 429]).toContain(status);
    const made = many.filter(({ status }) => status === 201).length;
    expect(made).toBeGreaterThan(10);
    expect((await content(volume, "GET", "dir?path=/")).body).toHaveLength(1 + made);
  });

  test("that break off leave what was there", async () => {
    const volume = await createVolume();
    await put(volume, "/file", "old");
    for (const path of ["/file", "/fresh"]) {
      const connection = await RawConnection.open(server.port);
      const head = requestHead({
        method: "PUT",
        target: `/volumecontent/${volume.volumeID}/${file(path)}`,
        headers: [
          ["Host", "localhost"],
          ["Authorization", `Bearer ${volume.token}`],
          ["Content-Length", 1_000_000],
        ],
      });
      await connection.send(Buffer.concat([head, Buffer.alloc(300_000, "x")]));
      await sleep(100);
      connection.destroy();
    }
    await expect
      .poll(async () => (await content(volume, "GET", "dir?path=/")).body.map((found: { name: string }) => found.name))
      .toEqual(["file"]);
    expect((await content(volume, "GET", file("/file"))).text).toBe("old");
  });
});

const STRANGE_TREES = `
import os, socket
socket.socket(socket.AF_UNIX).bind("socket")
os.mkdir("wide")
for i in range(12000): open(f"wide/{i}", "w").close()
for i in range(500):
  os.mkdir("d")
  os.chdir("d")
with open("file", "w") as file: file.write("deep\\n")
`;

describe("a hostile volume", () => {
  test("has links that lead out, which nobody follows", async () => {
    const volume = await createVolume();
    const sandbox = await withVolume(volume);
    await a.run(
      sandbox,
      `cd /data; mkdir real; echo inside >real/file; ln -s real/file good; ln -s real dir
       ln -s /etc/passwd passwd; ln -s /proc/self/environ environ; ln -s / root; ln -s /etc etc; ln -s ../../.. up
       ln -s /proc/1/root magic; ln -s loop loop; ln -s nowhere dangling; ln -s /etc/fresh absent`,
    );
    const { body: listed } = await content(volume, "GET", "dir?path=/&depth=9");
    expect(listed.map((found: { path: string }) => found.path)).not.toContain("/root/etc");
    expect(listed.find((found: { name: string }) => found.name === "passwd")).toMatchObject({
      type: "symlink",
      target: "/etc/passwd",
    });
    expect((await content(volume, "GET", file("/good"))).text).toBe("inside\n");
    expect((await content(volume, "GET", file("/dir/file"))).text).toBe("inside\n");
    expect((await put(volume, "/good", "changed")).status).toBe(201);
    expect(await a.run(sandbox, "cat /data/real/file; readlink /data/good")).toBe("changedreal/file\n");
    const ways = ["/passwd", "/environ", "/root/etc/passwd", "/etc/passwd", "/up/etc/passwd", "/magic/etc/passwd"];
    for (const way of [...ways, "/absent", "/dangling", "/loop", "/root/volume/real/file"]) {
      for (const [method, what] of [
        ["GET", file(way)],
        ["PUT", file(way)],
        ["GET", `dir?path=${way}`],
        ["POST", `dir?path=${way}&force=true`],
      ] as const) {
        const answer = await content(volume, method, what, method === "PUT" ? { body: "evil" } : {});
        expect([400, 403, 404, 409], `${method} ${what}: ${answer.text}`).toContain(answer.status);
        expect(answer.text).not.toContain("root:x");
        expect(answer.body.message).not.toContain("/volume");
      }
    }
    for (const way of ["/root/etc/passwd", "/up/etc", "/etc/passwd"]) {
      for (const method of ["GET", "DELETE", "PATCH"]) {
        const init =
          method === "PATCH" ? { body: '{"mode":511}', headers: { "Content-Type": "application/json" } } : {};
        expect((await content(volume, method, entry(way), init)).status, `${method} ${way}`).toBe(403);
      }
    }
    // A link itself can be looked at, given away and removed.
    expect((await content(volume, "GET", entry("/passwd"))).body).toMatchObject({ type: "symlink" });
    const json = { "Content-Type": "application/json" };
    const given = await content(volume, "PATCH", entry("/passwd"), { body: '{"uid":5}', headers: json });
    expect([given.status, given.body]).toEqual([200, expect.objectContaining({ uid: 5, type: "symlink" })]);
    expect((await content(volume, "PATCH", entry("/good"), { body: '{"mode":0}', headers: json })).status).toBe(400);
    expect((await content(volume, "DELETE", entry("/root"))).status).toBe(204);
    expect((await content(volume, "GET", file("/good"))).text).toBe("changed");
  });

  test("has pipes, sockets and trees, which hold up nobody", async () => {
    const volume = await createVolume();
    const sandbox = await withVolume(volume);
    await a.run(sandbox, `cd /data; mkfifo pipe; truncate -s 1T sparse; python3 -c '${STRANGE_TREES}'`);
    for (const path of ["/pipe", "/socket"]) {
      for (const answer of [await content(volume, "GET", file(path)), await put(volume, path, "x")]) {
        expect([path, answer.status, answer.body.code]).toEqual([path, 400, "invalid_argument"]);
      }
      expect((await content(volume, "GET", entry(path))).body).toMatchObject({ type: "unknown" });
    }
    expect((await content(volume, "GET", "dir?path=/wide")).body).toHaveLength(12_000);
    expect((await content(volume, "GET", "dir?path=/d&depth=100")).body).toHaveLength(100);
    expect((await content(volume, "GET", file(`${"/d".repeat(500)}/file`))).text).toBe("deep\n");
    const huge = new AbortController();
    const response = await fetch(`${server.url}/volumecontent/${volume.volumeID}/${file("/sparse")}`, {
      headers: { Authorization: `Bearer ${volume.token}` },
      signal: huge.signal,
    });
    expect(response.headers.get("content-length")).toBe(String(2 ** 40));
    huge.abort();
    for (const path of ["/d", "/wide", "/pipe", "/socket", "/sparse"]) {
      expect((await content(volume, "DELETE", entry(path))).status, path).toBe(204);
    }
    expect((await content(volume, "GET", "dir?path=/")).body).toEqual([]);
  });

  test("has names that are no names", async () => {
    const volume = await createVolume();
    const sandbox = await withVolume(volume);
    const script = String.raw`cd /data; printf x >"$(printf 'bad\377name')"; printf y >"$(printf 'two\nlines')"; printf z >'q"uo\te'`;
    await a.run(sandbox, script);
    const { body } = await content(volume, "GET", "dir?path=/");
    expect(body.map((found: { name: string }) => found.name).sort()).toEqual(
      ['q"uo\\te', "two\nlines", expect.anything()].sort(),
    );
    expect((await content(volume, "GET", file("/two\nlines"))).text).toBe("y");
    expect((await content(volume, "GET", file('/q"uo\\te'))).text).toBe("z");
    expect((await content(volume, "GET", "file?path=/bad%ffname")).status).toBe(400);
    expect((await content(volume, "DELETE", entry("/two\nlines"))).status).toBe(204);
  });

  test("has files that change while they are read: the answer is as long as it says, or breaks off", async () => {
    const volume = await createVolume();
    const sandbox = await withVolume(volume);
    await a.run(sandbox, "head -c 8M /dev/zero >/data/grows; head -c 64M /dev/zero >/data/shrinks");
    const read = async (path: string, meanwhile: string) => {
      const response = await fetch(`${server.url}/volumecontent/${volume.volumeID}/${file(path)}`, {
        headers: { Authorization: `Bearer ${volume.token}` },
      });
      await a.run(sandbox, meanwhile);
      return (await response.arrayBuffer()).byteLength;
    };
    expect(await read("/grows", "head -c 8M /dev/zero >>/data/grows")).toBe(8 * MIB);
    await expect(read("/shrinks", "truncate -s 1M /data/shrinks")).rejects.toThrow();
    expect((await content(volume, "GET", entry("/shrinks"))).body.size).toBe(MIB);
  });

  test("gets no set-id programs from outside either", async () => {
    const volume = await createVolume();
    const made = await content(volume, "PUT", `file?path=/tool&mode=${0o4755}&uid=0`, { body: "x" });
    expect([made.status, made.body.code]).toEqual([403, "file_access_denied"]);
    await put(volume, "/tool", "x");
    const headers = { "Content-Type": "application/json" };
    const changed = await content(volume, "PATCH", entry("/tool"), { body: `{"mode":${0o4755}}`, headers });
    expect([changed.status, changed.body.code]).toEqual([403, "file_access_denied"]);
    expect((await content(volume, "GET", entry("/tool"))).body.mode).toBe(0o644);
  });
});

describe("the removal of a volume", () => {
  const remove = (volume: TestVolume) => a.control({ method: "DELETE", target: `/volumes/${volume.volumeID}` });

  test("waits for no reader, and leaves nothing", async () => {
    const volume = await createVolume();
    await put(volume, "/file", Buffer.alloc(64 * MIB));
    const reading = await fetch(`${server.url}/volumecontent/${volume.volumeID}/${file("/file")}`, {
      headers: { Authorization: `Bearer ${volume.token}` },
    });
    expect(await keepers()).toHaveLength(1);
    expect((await remove(volume)).status).toBe(204);
    await expect(reading.arrayBuffer()).rejects.toThrow();
    expect(await keepers()).toEqual([]);
    expect(readdirSync(join(server.stateDirectory, "pool/volumes"))).not.toContain(volume.volumeID);
    expect(readdirSync(join(server.stateDirectory, "server/volumes")).join()).not.toContain(volume.volumeID);
  });

  test("and creates at the same time: those that succeed have it, and then it stays", async () => {
    for (let round = 0; round < 6; round++) {
      const volume = await createVolume();
      const create = () =>
        a.control({
          method: "POST",
          target: "/v2/sandboxes",
          headers: [JSON_TYPE],
          body: JSON.stringify({ templateID: "base", volumeMounts: [{ name: volume.name, path: "/data" }] }),
        });
      const [removed, ...made] = await Promise.all(
        round % 2 === 0
          ? [remove(volume), create(), create()]
          : [sleep(round).then(() => remove(volume)), create(), create()],
      );
      const sandboxes = made.filter(({ status }) => status === 201);
      for (const answer of made) expect([201, 404], answer.text).toContain(answer.status);
      expect(removed?.status).toBe(sandboxes.length > 0 ? 409 : 204);
      for (const { text } of sandboxes) {
        const id = (JSON.parse(text) as { sandboxID: string }).sandboxID;
        expect(await a.run({ id }, "touch /data/file && echo well")).toBe("well\n");
        await a.control({ method: "DELETE", target: `/sandboxes/${id}` });
      }
    }
  });
});

describe("a server that is stopped or killed", () => {
  test("comes back with its volumes, their tokens and those who have them", {
    timeout: patienceMs(60_000),
  }, async () => {
    const volume = await createVolume();
    const running = await withVolume(volume);
    const stopped = await withVolume(volume);
    await put(volume, "/file", "kept");
    await a.control({
      method: "POST",
      target: `/sandboxes/${stopped.id}/pause`,
      headers: [JSON_TYPE],
      body: '{"memory":false}',
    });
    const [keeper] = await keepers();
    for (const how of ["stop", "kill"] as const) {
      if (how === "stop") await server.stop();
      else await server.kill("SIGKILL");
      await server.restart();
      // Gone with the server that made it.
      expect(server.sandboxDirectories()).not.toContain(keeper);
      expect((await content(volume, "GET", file("/file"))).text).toBe("kept");
      expect((await a.control({ method: "DELETE", target: `/volumes/${volume.volumeID}` })).status).toBe(409);
      expect(await a.run(running, "cat /data/file")).toBe("kept");
      expect((await a.control({ target: `/sandboxes/${running.id}` })).text).toContain(volume.name);
    }
    await a.control({ method: "POST", target: `/sandboxes/${stopped.id}/resume`, headers: [JSON_TYPE], body: "{}" });
    expect(await a.run(stopped, "cat /data/file")).toBe("kept");
    expect(server.log).not.toContain(volume.token);
    expect(readFileSync(join(server.stateDirectory, `server/volumes/${volume.volumeID}.json`), "utf8")).not.toContain(
      volume.token,
    );
  });

  test("has logged no fault of its own", () => {
    expect(server.log.split("\n").filter((line) => /"level":(50|60)/.test(line))).toEqual([]);
  });
});

describe("what serves contents", () => {
  const use = useEngine();
  const log = pino({ level: "silent" });
  const open = (idleMs: number) => new VolumeKeeper({ engine: use.engine, log, idleMs });
  let serial = 0;
  async function volumesOf(keyId: string, count: number) {
    const made = Array.from({ length: count }, () => ({ id: `v${String(serial++).padStart(20, "0")}`, keyId }));
    for (const { id } of made) await use.engine.volumes.create(id, { limitBytes: 16 * MIB });
    return made;
  }
  const write = (keeper: VolumeKeeper, volume: { id: string; keyId: string }) =>
    keeper.use(volume, async (inside) => {
      await inside.files.write(await inside.at("/file", { last: "followed" }), "x");
    });

  test("goes when nobody has asked for a while, and comes again", async () => {
    const [volume] = await volumesOf("k", 1);
    if (volume === undefined) return;
    const keeper = open(200);
    await Promise.all([write(keeper, volume), write(keeper, volume), write(keeper, volume)]);
    const [first] = use.engine.list();
    expect(use.engine.list()).toHaveLength(1);
    await expect.poll(() => sandboxesLeftIn(use.stateDirectory), { timeout: patienceMs(3000) }).toEqual([]);
    await write(keeper, volume);
    expect(use.engine.list().map(({ id }) => id)).not.toEqual([first?.id]);
    // Nor does it go while somebody asks, however long that takes.
    await keeper.use(volume, () => sleep(600));
    expect(use.engine.list()).toHaveLength(1);
    await keeper.close();
    expect(use.engine.list()).toEqual([]);
    await expect(write(keeper, volume)).rejects.toMatchObject({ code: "server_stopping" });
  });

  test("is bounded in number: the one that was not used for longest makes room, and a busy one does not", {
    timeout: patienceMs(30_000),
  }, async () => {
    const keeper = open(60_000);
    const volumes = await volumesOf("k", 18);
    for (const volume of volumes) await write(keeper, volume);
    await expect.poll(() => use.engine.list().length, { timeout: patienceMs(3000) }).toBe(16);
    let release: () => void = () => {};
    const held = new Promise<void>((resolve) => {
      release = resolve;
    });
    const busy = volumes.slice(2).map((volume) => keeper.use(volume, () => held));
    const [first] = volumes;
    if (first === undefined) return;
    await expect(write(keeper, first)).rejects.toMatchObject({ code: "host_capacity" });
    // Another key is not kept from its own.
    const [other] = await volumesOf("another", 1);
    if (other !== undefined) await write(keeper, other);
    release();
    await Promise.all(busy);
    await write(keeper, first);
    await keeper.close();
    expect(sandboxesLeftIn(use.stateDirectory)).toEqual([]);
  });

  test("that dies under a request says so, and the next one is served", async () => {
    const [volume] = await volumesOf("k", 1);
    if (volume === undefined) return;
    const keeper = open(60_000);
    await write(keeper, volume);
    const broken = keeper.use(volume, async (inside) => {
      await use.engine.list()[0]?.kill("the test");
      await inside.files.stat("/volume/file");
    });
    await expect(broken).rejects.toMatchObject({ code: "volume_not_found" });
    await write(keeper, volume);
    await keeper.close();
  });
});
