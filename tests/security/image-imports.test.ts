/** What is sent to a server to be kept: archives, files by their digest, names. None of it leads anywhere else. */
import { execFileSync } from "node:child_process";
import { createHash, randomBytes } from "node:crypto";
import {
  existsSync,
  mkdirSync,
  mkdtempSync,
  readdirSync,
  readFileSync,
  rmSync,
  symlinkSync,
  writeFileSync,
} from "node:fs";
import { connect } from "node:net";
import { tmpdir } from "node:os";
import { basename, join } from "node:path";
import { gzipSync } from "node:zlib";
import { afterEach, beforeAll, beforeEach, describe, expect, it } from "vitest";
import { type HostSecret, placeHostSecret } from "../helpers/attack.js";
import { operatorCall } from "../helpers/operator-call.js";
import { RawConnection, requestHead } from "../helpers/raw-http.js";
import { patienceMs } from "../helpers/scale.js";
import { digestOf, recipe, run, useImageServer } from "./image-server.js";
import { expectWell } from "./server-client.js";

const PATIENCE = { timeout: patienceMs(10_000), interval: 50 };
const use = useImageServer();
let secret: HostSecret;
let work: string;
let pid: number;
let before: readonly string[];

beforeAll(() => {
  ({ pid } = use.server);
});
beforeEach(() => {
  secret = placeHostSecret();
  work = mkdtempSync(join(tmpdir(), "hostile-import-"));
  before = use.stored();
});
afterEach(async () => {
  expect(readdirSync(secret.directory)).toEqual([basename(secret.path)]);
  secret.remove();
  rmSync(work, { recursive: true, force: true });
  await expectWell(use.server, pid);
  expect(use.server.log.split("\n").filter((line) => /"level":(50|60)/.test(line))).toEqual([]);
});

async function send(path: string, body: Buffer | string, method = "POST") {
  const answer = await fetch(`${use.server.url}${path}`, { method, headers: { "X-API-Key": use.a.secret }, body });
  const text = await answer.text();
  return {
    status: answer.status,
    text,
    body: text === "" ? undefined : (JSON.parse(text) as { id: string; code: string }),
  };
}

interface ArchiveParts {
  readonly layer?: Buffer;
  readonly manifest?: unknown;
  readonly config?: unknown;
  /** Changes what lies in the directory before it is packed. */
  readonly change?: (directory: string) => void;
}

/** As `docker save` writes it, but for what is hostile about it. */
function archive({ layer = layerOf({}), manifest, config, change }: ArchiveParts): Buffer {
  const directory = mkdtempSync(join(work, "archive-"));
  const rootfs = { type: "layers", diff_ids: [digestOf(layer)] };
  const usual = { architecture: process.arch === "x64" ? "amd64" : process.arch, os: "linux", config: {}, rootfs };
  writeFileSync(join(directory, "layer.tar"), layer);
  writeFileSync(join(directory, "config.json"), JSON.stringify(config ?? usual));
  writeFileSync(
    join(directory, "manifest.json"),
    typeof manifest === "string"
      ? manifest
      : JSON.stringify(manifest ?? [{ Config: "config.json", RepoTags: ["evil:1"], Layers: ["layer.tar"] }]),
  );
  change?.(directory);
  return execFileSync("tar", ["-C", directory, "-c", ...readdirSync(directory).sort().reverse()], {
    maxBuffer: 64 * 1024 * 1024,
  });
}

function layerOf(files: Readonly<Record<string, string>>, ...args: readonly string[]): Buffer {
  const root = mkdtempSync(join(work, "layer-"));
  for (const [path, content] of Object.entries({ file: "content", ...files })) {
    mkdirSync(join(root, path, ".."), { recursive: true });
    writeFileSync(join(root, path), content);
  }
  return execFileSync("tar", ["-C", root, "-P", ...args, "-c", "."]);
}

describe("an archive", () => {
  it.each([
    ["nothing", () => Buffer.alloc(0)],
    ["noise", () => randomBytes(1_000_000)],
    ["compressed noise", () => gzipSync(randomBytes(100_000))],
    ["the first half of one", () => archive({}).subarray(0, 3000)],
    ["no manifest", () => archive({ change: (directory) => rmSync(join(directory, "manifest.json")) })],
    ["a manifest that is no JSON", () => archive({ manifest: "{" })],
    ["a manifest of the wrong kind", () => archive({ manifest: [{ Config: 1, Layers: "x" }] })],
    ["a manifest without end", () => archive({ manifest: `[${'{"Config":"a"},'.repeat(2_000_000)}{}]` })],
    ["a config elsewhere", () => archive({ manifest: [{ Config: "../../../../etc/passwd", Layers: ["layer.tar"] }] })],
    ["a layer elsewhere", () => archive({ manifest: [{ Config: "config.json", Layers: ["/etc/passwd"] }] })],
    [
      "a layer that is not what it says",
      () => archive({ change: (directory) => writeFileSync(join(directory, "layer.tar"), layerOf({ other: "x" })) }),
    ],
    [
      "more layers than it has",
      () => archive({ manifest: [{ Config: "config.json", Layers: ["layer.tar", "layer.tar"] }] }),
    ],
    [
      "another architecture",
      () =>
        archive({
          config: { architecture: "s390x", os: "linux", config: {}, rootfs: { type: "layers", diff_ids: [] } },
        }),
    ],
  ])("of %s is refused, and nothing of it stays", async (_what, make) => {
    const answer = await send("/v1/images/import?name=evil", make());
    expect(answer.status, answer.text).toBeGreaterThanOrEqual(400);
    expect(answer.status, answer.text).toBeLessThan(500);
    expect(answer.text).not.toContain("root:");
    await expect.poll(use.stored, PATIENCE).toEqual(before);
  });

  it("reads no file of the host through links of its own", async () => {
    for (const target of [secret.path, `${"../".repeat(20)}${secret.path.slice(1)}`]) {
      for (const name of ["layer.tar", "config.json", "manifest.json"]) {
        const bytes = archive({
          change: (directory) => {
            rmSync(join(directory, name));
            symlinkSync(target, join(directory, name));
          },
        });
        const answer = await send("/v1/images/import?name=evil", bytes);
        expect(answer.status, name).toBeGreaterThanOrEqual(400);
        expect(answer.text).not.toContain(secret.text);
      }
    }
    await expect.poll(use.stored, PATIENCE).toEqual(before);
  });

  it.each([
    ["climb", ["--transform", "s,^\\./planted,../../../../../../../../SECRET/planted,"]],
    ["are absolute", ["--transform", "s,^\\./planted,/SECRET/planted,"]],
  ])("writes to no place of the host by names that %s", async (_what, args) => {
    const layer = layerOf(
      { planted: "planted" },
      ...args.map((each) => each.replace("SECRET", secret.directory.slice(1))),
    );
    const answer = await send("/v1/images/import?name=climbing", archive({ layer }));
    expect(answer.status).toBeLessThan(500);
    expect(existsSync(join(secret.directory, "planted"))).toBe(false);
    if (answer.status === 201) await use.a.sdk.images.remove("climbing");
  });

  it("is not listened to for longer than it is sent", async () => {
    const connection = await RawConnection.open(use.server.port);
    const head = requestHead({
      method: "POST",
      target: "/v1/images/import?name=half",
      headers: [
        ["Host", "localhost"],
        ["X-API-Key", use.a.secret],
        ["Content-Length", 100_000_000],
      ],
    });
    await connection.send(head, archive({}).subarray(0, 2000));
    await expect.poll(() => use.stored().length, PATIENCE).toBeGreaterThan(before.length);
    connection.socket.destroy();
    await expect.poll(use.stored, PATIENCE).toEqual(before);
  });
});

describe("a file by its digest", () => {
  it("is kept only if it has that digest", async () => {
    const digest = digestOf("right");
    const wrong = await send(`/v1/images/blobs/${digest}`, "wrong", "PUT");
    expect(wrong.status).toBe(400);
    expect(wrong.text).toContain(digestOf("wrong"));
    expect(await missing(digest, digestOf("wrong"))).toHaveLength(2);
    expect(use.stored()).toEqual(before);
    for (const path of [
      "sha256:..",
      "sha256:%2e%2e%2fx",
      `sha256:${"A".repeat(64)}`,
      `sha512:${"0".repeat(64)}`,
      "x",
    ]) {
      expect((await send(`/v1/images/blobs/${path}`, "x", "PUT")).status, path).toBe(400);
    }
    expect(use.stored()).toEqual(before);
  });

  it("leaves nothing if it does not come whole", async () => {
    const content = randomBytes(1_000_000);
    const digest = digestOf(content);
    const socket = connect(use.server.port, "127.0.0.1");
    socket.write(
      `PUT /v1/images/blobs/${digest} HTTP/1.1\r\nHost: localhost\r\nX-API-Key: ${use.a.secret}\r\nContent-Length: 1000000\r\n\r\n`,
    );
    socket.write(content.subarray(0, 500_000));
    await expect.poll(() => use.stored().length, PATIENCE).toBeGreaterThan(before.length);
    socket.destroy();
    await expect.poll(use.stored, PATIENCE).toEqual(before);
    expect(await missing(digest)).toEqual([digest]);
  });

  it("is refused before its first byte if there is no room for it, with both numbers", async () => {
    const digest = `sha256:${createHash("sha256").update(randomBytes(8)).digest("hex")}`;
    const connection = await RawConnection.open(use.server.port);
    const announced = 1_000_000_000_000_000;
    await connection.send(
      requestHead({
        method: "PUT",
        target: `/v1/images/blobs/${digest}`,
        headers: [
          ["Host", "localhost"],
          ["X-API-Key", use.a.secret],
          ["Content-Length", announced],
        ],
      }),
    );
    const answer = await connection.answer();
    connection.socket.destroy();
    expect(JSON.parse(answer?.text ?? "{}")).toMatchObject({
      code: "no_space",
      details: { neededBytes: announced, freeBytes: expect.any(Number) },
    });
    expect(use.stored()).toEqual(before);
  });

  async function missing(...digests: readonly string[]): Promise<readonly string[]> {
    const { body } = await use.server.call<{ missing: readonly string[] }>("POST", "/v1/images/blobs/missing", {
      digests,
    });
    return body.missing;
  }
});

describe("names", () => {
  it("lead nowhere, whatever they are", async () => {
    const { id } = await use.a.sdk.images.get("tiny");
    const names = join(use.server.stateDirectory, "images/names");
    const listed = () => execFileSync("find", [names, "-type", "f"], { encoding: "utf8" }).split("\n").sort();
    const known = listed();
    for (const name of [
      "..",
      "../x",
      "a/../b",
      "/abs",
      "a//b",
      ".hidden",
      "a/.",
      "A",
      "a:..:b",
      "a b",
      "x\u0000",
      "%2e%2e",
      "a@b",
    ]) {
      const answer = await send(`/v1/images/${id}/names`, JSON.stringify({ name }));
      expect(answer.status, name).toBe(400);
      expect((await send(`/v1/images/import?name=${encodeURIComponent(name)}`, archive({}))).status, name).toBe(400);
    }
    expect(listed()).toEqual(known);
    for (const name of ["ok:..", "ok:.", "ok:-", "_-_", "localhost:5000/a/b:1"]) {
      const target = `/v1/images/${id}/names`;
      expect((await use.server.call("POST", target, { name }, { "X-API-Key": use.a.secret })).status, name).toBe(200);
      expect((await use.a.sdk.images.get(name)).id).toBe(id);
      const added = listed().filter((path) => !known.includes(path));
      expect(added, name).toHaveLength(1);
      expect(added[0]?.startsWith(`${names}/${use.a.id}/`), added[0]).toBe(true);
      await use.a.sdk.images.removeName(name, name);
    }
    expect(listed()).toEqual(known);
  });

  it("and ids in addresses lead nowhere either", async () => {
    for (const word of [
      "..%2f..%2f..%2fetc%2fpasswd",
      "%2e%2e",
      "..%5c..",
      "%00",
      "img..%2f..%2fx",
      `img${"a".repeat(20)}%2f..`,
    ]) {
      for (const path of [
        `images/${word}`,
        `images/${word}/export`,
        `images/builds/${word}`,
        `images/builds/${word}/log`,
      ]) {
        const answer = await use.server.call("GET", `/v1/${path}`);
        expect([400, 404], path).toContain(answer.status);
      }
    }
  });
});

describe("an image that is broken", () => {
  it("can be looked at and removed over the server, but not used", async () => {
    const { build } = await use.build(use.a, recipe([run(`echo ${Math.random()} > /x`)]));
    const id = build.imageId ?? "";
    const path = join(use.server.stateDirectory, "images/records", `${id}.json`);
    const record = JSON.parse(readFileSync(path, "utf8")) as { layers: string[] };
    writeFileSync(path, JSON.stringify({ ...record, layers: [`l${"0".repeat(20)}`, ...record.layers] }));
    const creating = await use.server.call("POST", "/v1/sandboxes", { image: id }, { "X-API-Key": use.a.secret });
    expect(creating).toMatchObject({ status: 400, body: { code: "image_invalid" } });
    expect((await use.a.sdk.images.get(id)).id).toBe(id);
    expect(await use.a.sdk.images.remove(id)).toMatchObject({ images: 1 });
    writeFileSync(path, "{");
    expect((await operatorCall(use.server, "DELETE", `/v1/images/${id}`)).status).toBe(200);
    expect(existsSync(path)).toBe(false);
  });
});

it("a recipe may be as long as is said, with a server as without one", async () => {
  const text = "x".repeat(60_000);
  const steps = Array.from({ length: 60 }, (_, index) => ({ kind: "label", labels: { [`l${index}`]: text } }));
  const { build } = await use.build(use.a, recipe(steps));
  expect(build.state, build.error?.message).toBe("ready");
  await expect(use.build(use.a, recipe([...steps, ...steps]))).rejects.toMatchObject({ code: "invalid_argument" });
});
