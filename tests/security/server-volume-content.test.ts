/** The content of volumes over the wire: bad requests, large ones, and whatever sandboxes put there. */
import { createHash, randomBytes } from "node:crypto";
import { setTimeout as sleep } from "node:timers/promises";
import { beforeAll, describe, expect, test } from "vitest";
import { RawConnection, requestHead } from "../helpers/raw-http.js";
import { patienceMs } from "../helpers/scale.js";
import { MIB } from "../helpers/use-engine.js";
import { useServer } from "../helpers/use-server.js";
import { type Client, createClient, residentBytes } from "./server-client.js";
import { type ContentOptions, contentUrl, entry, file, volumeClient } from "./volume-client.js";

const VOLUME_MB = 192;
const server = useServer({ args: ["--key-requests-per-second", "none", "--volume-mb", String(VOLUME_MB)] });
const { content, createVolume, put, withVolume } = volumeClient(server);

let a: Client;
beforeAll(() => {
  a = createClient(server, server.apiKey);
});

describe("requests about a content", () => {
  test("that make no sense are refused by name, with a word for a code", async () => {
    const volume = await createVolume();
    const wrong: [method: string, what: string, names: RegExp, options?: ContentOptions][] = [
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
    const up = await fetch(contentUrl(server, volume, file("/big")), init as RequestInit);
    expect([up.status, ((await up.json()) as { size: number }).size]).toEqual([201, 100 * MIB]);
    const down = await fetch(contentUrl(server, volume, file("/big")), {
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
    const response = await fetch(contentUrl(server, volume, file("/sparse")), {
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
      const response = await fetch(contentUrl(server, volume, file(path)), {
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

test("the server has logged no fault of its own", () => {
  expect(server.log.split("\n").filter((line) => /"level":(50|60)/.test(line))).toEqual([]);
});
