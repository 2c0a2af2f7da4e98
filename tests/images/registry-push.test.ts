import { randomBytes } from "node:crypto";
import { existsSync, readdirSync, readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import type { ImageRecord } from "@holdfast/images";
import { describe, expect, test } from "vitest";
import { pullImage } from "../../packages/images/src/registry/pull.js";
import { type PushOptions, pushImage } from "../../packages/images/src/registry/push.js";
import { type RunningRegistry, serve, startProxy, startRegistry } from "../helpers/registry.js";
import {
  contextOf,
  expectNothingLeft,
  MIB,
  makeImage,
  makeLayer,
  sha256,
  skopeo,
  skopeoPush,
  tinyLayer,
  useRegistryImages,
} from "../helpers/registry-images.js";
import { shell } from "../helpers/use-engine.js";
import { PLAIN_CONFIG, temporaryDirectory, tinyRootfs } from "../helpers/use-images.js";

const inUse = useRegistryImages();
const push = (record: ImageRecord, reference: string, options: PushOptions = {}) =>
  pushImage(contextOf(inUse), record, reference, { retry: { baseMs: 10 }, ...options });

/** Of what busybox runs on, and of so many random bytes above it. */
async function addBigImage(sizeBytes: number): Promise<ImageRecord> {
  const base = await inUse.addLayer((directory) => void tinyRootfs(directory));
  const data = await inUse.addLayer((directory) => writeFileSync(join(directory, "data"), randomBytes(sizeBytes)));
  const record = await inUse.addImage({ layers: [data, base] });
  for (const id of record.layers) {
    const sizeOf = await inUse.engine.layers.sizeBytes(id);
    inUse.store.putLayer({
      version: 1,
      id,
      createdAt: record.createdAt,
      diffId: null,
      sizeBytes: sizeOf,
      from: "RUN x",
    });
  }
  return record;
}

/** Uploads that nobody has finished, in the registry's own files. */
function openUploads({ storage }: RunningRegistry, repository: string): string[] {
  const directory = join(storage, "docker/registry/v2/repositories", repository, "_uploads");
  return existsSync(directory) ? readdirSync(directory) : [];
}

describe("an image that we push", () => {
  test.each(["gzip", "zstd", "none"] as const)(
    "with %s layers is read by skopeo and comes back as it was",
    async (compression) => {
      const registry = await startRegistry();
      const config = {
        ...PLAIN_CONFIG,
        env: { ...PLAIN_CONFIG.env, A: "b c" },
        workdir: "/app",
        user: "user",
        cmd: ["sh", "-c", "echo hi"],
        labels: { x: "y" },
        start: { command: "sleep 1" },
      };
      const original = await addBigImage(MIB);
      const record = await inUse.addImage({ layers: original.layers, config, limits: { memoryBytes: 1024 } });
      const reference = `${registry.host}/team/app:1`;
      const report = await push(record, reference, { compression });
      expect(report).toMatchObject({ reference, layers: [{ how: "uploaded" }, { how: "uploaded" }] });
      expect(report.layers[0]?.mediaType).toMatch(compression === "none" ? /\.tar$/ : `+${compression}`);
      const inspected = JSON.parse(await skopeo("inspect", "--tls-verify=false", `docker://${reference}`)) as object;
      expect(inspected).toMatchObject({
        Digest: report.digest,
        Labels: { x: "y" },
        Env: expect.arrayContaining(["A=b c"]),
      });
      // Skopeo checks every digest on the way.
      await skopeo(
        "copy",
        "-q",
        "--src-tls-verify=false",
        `docker://${reference}`,
        `oci:${temporaryDirectory()}:latest`,
      );
      for (const { id } of [record, original]) await inUse.store.remove(id);
      const back = await pullImage(contextOf(inUse), reference, { owner: null });
      expect(back).toMatchObject({
        config: { ...config, start: { command: "sleep 1" } },
        limits: { memoryBytes: 1024 },
      });
      const sandbox = await inUse.create({ image: { kind: "layers", layers: back.layers } });
      expect((await shell(sandbox, "wc -c < /data")).stdout.trim()).toBe(String(MIB));
      await sandbox.kill("the test");
      expectNothingLeft(inUse);
    },
  );

  test("keeps deletions, and its own files of a snapshot on top", async () => {
    const registry = await startRegistry();
    const deleting = makeLayer({ "app/.wh.gone": "", "app/kept": "kept" });
    await skopeoPush(makeImage([tinyLayer(), makeLayer({ "app/gone": "gone" }), deleting]), `${registry.host}/app`);
    const pulled = await pullImage(contextOf(inUse), `${registry.host}/app`, { owner: null });
    const disk = await inUse.addLayer((directory) => writeFileSync(join(directory, "own"), "its own"));
    const snapshot = await inUse.addImage({ layers: pulled.layers, disk, kind: "snapshot" });
    const other = await startRegistry();
    const { layers } = await push(snapshot, `${other.host}/snapshot`);
    expect(layers).toHaveLength(4);
    for (const { id } of [snapshot, pulled]) await inUse.store.remove(id);
    const back = await pullImage(contextOf(inUse), `${other.host}/snapshot`, { owner: null });
    const sandbox = await inUse.create({ image: { kind: "layers", layers: back.layers } });
    expect((await shell(sandbox, "ls /app; cat /own")).stdout).toBe("kept\nits own");
    await sandbox.kill("the test");
    expectNothingLeft(inUse);
  });

  test("is not sent again where it is, nor where the registry has it in another repository", async () => {
    const registry = await startRegistry();
    const proxy = await startProxy(registry);
    const record = await addBigImage(MIB);
    const first = await push(record, `${proxy.host}/one:1`);
    expect(first.sentBytes).toBeGreaterThan(MIB);
    const again = await push(record, `${proxy.host}/one:2`);
    expect(again).toMatchObject({
      digest: first.digest,
      sentBytes: 0,
      layers: [{ how: "present" }, { how: "present" }],
    });
    proxy.exchanges.length = 0;
    const mounted = await push(record, `${proxy.host}/two:1`);
    expect(mounted).toMatchObject({
      digest: first.digest,
      sentBytes: 0,
      layers: [{ how: "mounted" }, { how: "mounted" }],
    });
    // The config alone.
    expect(proxy.exchanges.filter(({ method }) => method === "PATCH")).toHaveLength(1);
    expect(openUploads(registry, "two")).toEqual([]);
    // What came from there goes back as it was.
    await skopeoPush(makeImage([tinyLayer()]), `${registry.host}/theirs`, "--dest-compress");
    const pulled = await pullImage(contextOf(inUse), `${proxy.host}/theirs`, { owner: null });
    expect(await push(pulled, `${proxy.host}/ours`)).toMatchObject({ sentBytes: 0, layers: [{ how: "mounted" }] });
    expectNothingLeft(inUse);
  });

  test("cannot go to a digest, nor if it stands on files of this host", async () => {
    const record = await inUse.addImage();
    const refused = { code: "invalid_argument" };
    await expect(push(record, `localhost:1/app@sha256:${"a".repeat(64)}`)).rejects.toMatchObject(refused);
    await expect(push(record, "localhost:1/app", { parallel: 0 })).rejects.toMatchObject(refused);
    await expect(push(record, "localhost:1/app", { compression: "xz" as "gzip" })).rejects.toMatchObject(refused);
    const below = { ...record, below: { kind: "host" } as const };
    await expect(push(below, "localhost:1/app")).rejects.toMatchObject({ code: "image_invalid" });
  });

  test("needs credentials where the registry wants some", async () => {
    const { host } = await startRegistry({ users: { me: "pw" } });
    const record = await inUse.addTinyImage();
    await expect(push(record, `${host}/app`)).rejects.toMatchObject({
      code: "registry_failed",
      details: { status: 401 },
      hint: expect.stringContaining("--username"),
    });
    const directory = temporaryDirectory();
    const auth = Buffer.from("me:pw").toString("base64");
    writeFileSync(join(directory, "config.json"), JSON.stringify({ auths: { [host]: { auth } } }));
    await push(record, `${host}/app`, { auth: { kind: "docker-config", directory } });
    expectNothingLeft(inUse);
  });
});

describe("an upload that is cut", () => {
  test("begins again with a registry that does not go on", async () => {
    const registry = await startRegistry();
    const proxy = await startProxy(registry);
    const record = await addBigImage(8 * MIB);
    let cuts = 0;
    proxy.interfere = ({ method, headers }) =>
      method === "PATCH" && Number(headers["content-length"]) > MIB * 5 && cuts++ < 2
        ? { kind: "cut-request", afterBytes: 3 * MIB }
        : undefined;
    const report = await push(record, `${proxy.host}/app`, { compression: "none" });
    expect(cuts).toBe(3);
    expect(report.layers.map(({ how }) => how)).toEqual(["uploaded", "uploaded"]);
    await skopeo(
      "copy",
      "-q",
      "--src-tls-verify=false",
      `docker://${proxy.host}/app`,
      `oci:${temporaryDirectory()}:latest`,
    );
    expectNothingLeft(inUse);
  });

  test.each(["gzip", "none"] as const)("goes on where it was with one that does (%s)", async (compression) => {
    const registry = await startKeepingRegistry({ cutAfterBytes: 3 * MIB });
    const record = await addBigImage(8 * MIB);
    const report = await push(record, `${registry.host}/app`, { compression, parallel: 1 });
    const big = report.layers[1];
    expect(registry.blobs.get(big?.digest ?? "")?.length).toBe(big?.size);
    expect(registry.ranges).toEqual([`${3 * MIB}-${(big?.size ?? 0) - 1}`]);
    expect(registry.received).toBe(registry.stored());
    expectNothingLeft(inUse);
  });

  test("survives a registry that fails, or asks for patience, for a moment", async () => {
    const registry = await startRegistry();
    const proxy = await startProxy(registry);
    const failing = new Map([
      ["HEAD", 503],
      ["POST", 429],
      ["PATCH", 500],
      ["PUT", 502],
    ]);
    proxy.interfere = ({ method }) => {
      const status = failing.get(method);
      failing.delete(method);
      return status === undefined ? undefined : { kind: "answer", status, headers: { "retry-after": "0" } };
    };
    await push(await addBigImage(MIB), `${proxy.host}/app`);
    expect(failing.size).toBe(0);
    expectNothingLeft(inUse);
  });

  test("is given up when it is canceled, here and there", async () => {
    const registry = await startRegistry();
    const proxy = await startProxy(registry);
    const record = await addBigImage(8 * MIB);
    const controller = new AbortController();
    const pushing = push(record, `${proxy.host}/app`, {
      signal: controller.signal,
      parallel: 1,
      onProgress: ({ phase, doneBytes }) => phase === "upload" && doneBytes > 0 && controller.abort(),
    });
    await expect(pushing).rejects.toMatchObject({ code: "canceled" });
    expectNothingLeft(inUse);
    await expect.poll(() => openUploads(registry, "app")).toEqual([]);
  });

  test("is not tried for ever", async () => {
    const registry = await startRegistry();
    const proxy = await startProxy(registry);
    proxy.interfere = ({ method }) => (method === "PATCH" ? { kind: "cut-request", afterBytes: 1 } : undefined);
    const record = await inUse.addTinyImage();
    await expect(push(record, `${proxy.host}/app`, { retry: { baseMs: 1 } })).rejects.toMatchObject({
      code: "registry_failed",
      details: { registry: proxy.host },
    });
    expect(proxy.exchanges.filter(({ method }) => method === "PATCH")).toHaveLength(5);
    expectNothingLeft(inUse);
  });
});

test("a registry that stores something else than it was sent is found out", async () => {
  const registry = await startRegistry();
  const proxy = await startProxy(registry);
  proxy.interfere = ({ method, path }) =>
    method === "HEAD" && path.includes("/manifests/")
      ? { kind: "answer", status: 200, headers: { "docker-content-digest": sha256(Buffer.from("other")) } }
      : undefined;
  await expect(push(await inUse.addTinyImage(), `${proxy.host}/app`)).rejects.toMatchObject({ code: "image_invalid" });
  expectNothingLeft(inUse);
});

/** docker-registry forgets an upload that was cut. This one keeps what it got, as the specification has it, and cuts once. */
async function startKeepingRegistry(options: { readonly cutAfterBytes: number }) {
  const blobs = new Map<string, Buffer>();
  const ranges: string[] = [];
  let upload = Buffer.alloc(0);
  const state = { received: 0, isCut: false };
  const { host } = await serve((request, response) => {
    const url = new URL(request.url ?? "", "http://x");
    const location = "/v2/app/blobs/uploads/1?state=a%20b";
    const name = url.pathname.split("/").at(-1) ?? "";
    if (request.method === "HEAD") return void response.writeHead(blobs.has(name) ? 200 : 404).end();
    if (request.method === "POST") {
      upload = Buffer.alloc(0);
      return void response.writeHead(202, { location }).end();
    }
    if (request.method === "GET") {
      return void response.writeHead(204, { location, range: `0-${upload.length - 1}` }).end();
    }
    if (request.method === "PATCH") {
      const range = request.headers["content-range"];
      if (range !== undefined) ranges.push(range);
      if (Number(range?.split("-")[0] ?? 0) !== upload.length) return void response.writeHead(416).end();
      const big = Number(request.headers["content-length"]) > options.cutAfterBytes;
      const chunks: Buffer[] = [upload];
      let size = upload.length;
      const room = () => (big && !state.isCut ? options.cutAfterBytes - size : Number.POSITIVE_INFINITY);
      request.on("data", (chunk: Buffer) => {
        const taken = chunk.subarray(0, Math.min(chunk.length, Math.max(0, room())));
        chunks.push(taken);
        size += taken.length;
        state.received += taken.length;
        if (room() <= 0) {
          state.isCut = true;
          upload = Buffer.concat(chunks);
          request.socket.destroy();
        }
      });
      request.on("end", () => {
        upload = Buffer.concat(chunks);
        response.writeHead(202, { location }).end();
      });
      return;
    }
    request.resume().on("end", () => {
      if (url.pathname.includes("/uploads/")) blobs.set(url.searchParams.get("digest") ?? "", upload);
      const isWhole = !url.pathname.includes("/uploads/") || sha256(upload) === url.searchParams.get("digest");
      if (url.pathname.includes("/manifests/")) blobs.set("latest", Buffer.alloc(0));
      response.writeHead(isWhole ? 201 : 400).end();
    });
  });
  const stored = () => [...blobs.values()].reduce((total, { length }) => total + length, 0);
  return {
    host,
    blobs,
    ranges,
    stored,
    get received() {
      return state.received;
    },
  };
}

test("what is known of layers that are gone is forgotten", async () => {
  const registry = await startRegistry();
  const record = await inUse.addTinyImage();
  await push(record, `${registry.host}/app`);
  const directory = join(inUse.store.directory, "registry-blobs");
  expect(readdirSync(directory)).toEqual([`${record.layers[0]}.json`]);
  expect(readFileSync(join(directory, `${record.layers[0]}.json`), "utf8")).toContain(`${registry.host}/app`);
  await inUse.store.remove(record.id);
  const other = await inUse.addTinyImage();
  await push(other, `${registry.host}/other`);
  expect(readdirSync(directory)).toEqual([`${other.layers[0]}.json`]);
});
