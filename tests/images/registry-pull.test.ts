import { describe, expect, test } from "vitest";
import { pullImage } from "../../packages/images/src/registry/pull.js";
import { makeCertificate, serve, signToken, startProxy, startRegistry } from "../helpers/registry.js";
import {
  contextOf,
  expectNothingLeft,
  MIB,
  makeImage,
  makeLayer,
  randomLayer,
  sha256,
  skopeoPush,
  tinyLayer,
  useRegistryImages,
} from "../helpers/registry-images.js";
import { shell } from "../helpers/use-engine.js";

const inUse = useRegistryImages();
const pull = (reference: string, options: Partial<Parameters<typeof pullImage>[2]> = {}) =>
  pullImage(contextOf(inUse), reference, { owner: null, ...options });

describe("an image that skopeo pushed", () => {
  test.each(["gzip", "zstd", "none"] as const)("is pulled with %s layers and runs", async (compression) => {
    const registry = await startRegistry();
    const image = makeImage([tinyLayer(), makeLayer({ "app/hello": "hello from a layer" })], {
      env: ["PATH=/bin", "A=1"],
    });
    const format =
      compression === "none" ? ["--dest-decompress"] : ["--dest-compress", "--dest-compress-format", compression];
    await skopeoPush(image, `${registry.host}/team/app:1`, ...format);
    const record = await pull(`${registry.host}/team/app:1`);
    expect(record).toMatchObject({ kind: "imported", owner: null, config: { env: { A: "1" }, cmd: ["/bin/sh"] } });
    expect(record.layers).toHaveLength(2);
    expect(inUse.store.find(`${registry.host}/team/app:1`, null)?.id).toBe(record.id);
    const sandbox = await inUse.create({ image: { kind: "layers", layers: record.layers } });
    expect((await shell(sandbox, "cat /app/hello")).stdout).toBe("hello from a layer");
    await sandbox.kill("the test");
    expectNothingLeft(inUse);
  });

  test("is pulled by the digest of its manifest, and once only", async () => {
    const registry = await startRegistry();
    const proxy = await startProxy(registry);
    const image = makeImage([tinyLayer()]);
    await skopeoPush(image, `${registry.host}/app:1`, "--preserve-digests");
    const first = await pull(`${proxy.host}/app@${image.manifestDigest}`);
    expect(first.digest).toBe(sha256(image.config));
    proxy.exchanges.length = 0;
    const again = await pull(`${proxy.host}/app:1`);
    expect(again.id).toBe(first.id);
    expect(proxy.exchanges.map(({ path }) => path)).toEqual(["/v2/app/manifests/1", `/v2/app/blobs/${first.digest}`]);
    expect(inUse.store.names({ imageId: first.id })).toHaveLength(1);
  });

  test("shares its layers with other images: only new ones are fetched", async () => {
    const registry = await startRegistry();
    const proxy = await startProxy(registry);
    const [base, one, two] = [tinyLayer(), randomLayer(MIB), randomLayer(MIB)];
    await skopeoPush(makeImage([base, one]), `${registry.host}/one`, "--dest-decompress");
    await skopeoPush(makeImage([base, two, one]), `${registry.host}/two`, "--dest-decompress");
    const first = await pull(`${proxy.host}/one`);
    proxy.exchanges.length = 0;
    const second = await pull(`${proxy.host}/two`);
    expect(proxy.exchanges.reduce((sum, { receivedBytes }) => sum + receivedBytes, 0)).toBeLessThan(1.2 * MIB);
    expect(second.layers[2]).toBe(first.layers[1]);
    expect(second.layers[0]).toBe(first.layers[0]);
    expectNothingLeft(inUse);
  });

  test("does not hand out somebody else's layer to those who only know its digest", async () => {
    const registry = await startRegistry();
    const secret = makeLayer({ secret: "of another" });
    await skopeoPush(makeImage([tinyLayer(), secret]), `${registry.host}/private`);
    await pull(`${registry.host}/private`, { owner: "key-a" });
    // The same config and manifest on a registry that does not have the layer.
    const image = makeImage([tinyLayer(), secret]);
    const liar = await serve((request, response) => {
      if (request.url?.includes("/manifests/")) response.end(image.manifest);
      else if (request.url?.endsWith(sha256(image.config))) response.end(image.config);
      else response.writeHead(404).end();
    });
    await expect(pull(`${liar.host}/private`, { owner: "key-b" })).rejects.toMatchObject({ code: "registry_failed" });
    expect(inUse.store.list({ owner: "key-b" })).toEqual([]);
    expectNothingLeft(inUse);
  });

  test("has a layer that comes twice only once", async () => {
    const registry = await startRegistry();
    const layer = makeLayer({ "etc/x": "x" });
    await skopeoPush(makeImage([layer, tinyLayer(), layer]), `${registry.host}/twice`);
    const record = await pull(`${registry.host}/twice`);
    expect(record.layers).toHaveLength(2);
    const sandbox = await inUse.create({ image: { kind: "layers", layers: record.layers } });
    expect((await shell(sandbox, "cat /etc/x")).stdout).toBe("x");
    await sandbox.kill("the test");
  });

  test("comes with several layers at a time", async () => {
    const registry = await startRegistry();
    const proxy = await startProxy(registry);
    await skopeoPush(makeImage([1, 2, 3, 4, 5, 6].map((n) => randomLayer(2 * MIB, `f${n}`))), `${registry.host}/many`);
    let [running, most] = [0, 0];
    proxy.interfere = ({ path }) => {
      if (path.includes("/blobs/")) most = Math.max(most, ++running);
      return undefined;
    };
    const record = await pull(`${proxy.host}/many`, {
      parallel: 4,
      onProgress: ({ phase, doneBytes, totalBytes }) => {
        if (phase === "download" && doneBytes === totalBytes) running--;
      },
    });
    expect(record.layers).toHaveLength(6);
    expect(most).toBeGreaterThan(2);
    expectNothingLeft(inUse);
  });
});

describe("a list for several platforms", () => {
  async function pushIndex(host: string) {
    const images = { amd64: makeImage([tinyLayer()]), arm64: makeImage([tinyLayer()], { architecture: "arm64" }) };
    for (const [name, image] of Object.entries(images))
      await skopeoPush(image, `${host}/multi:${name}`, "--preserve-digests");
    const manifests = Object.entries(images).map(([architecture, { manifest, manifestDigest }]) => ({
      mediaType: "application/vnd.oci.image.manifest.v1+json",
      digest: manifestDigest,
      size: manifest.length,
      platform: { os: "linux", architecture },
    }));
    const response = await fetch(`http://${host}/v2/multi/manifests/latest`, {
      method: "PUT",
      headers: { "content-type": "application/vnd.oci.image.index.v1+json" },
      body: JSON.stringify({ schemaVersion: 2, mediaType: "application/vnd.oci.image.index.v1+json", manifests }),
    });
    expect(response.status).toBe(201);
    return images;
  }

  test("gives this host's, or the one asked for", async () => {
    const { host } = await startRegistry();
    const images = await pushIndex(host);
    expect((await pull(`${host}/multi`)).digest).toBe(sha256(images.amd64.config));
    const other = await pull(`${host}/multi`, { platform: "linux/arm64" });
    expect(other).toMatchObject({ digest: sha256(images.arm64.config), config: { architecture: "arm64" } });
  });

  test("without the one asked for says what there is", async () => {
    const { host } = await startRegistry();
    await pushIndex(host);
    await expect(pull(`${host}/multi`, { platform: "linux/s390x" })).rejects.toMatchObject({
      code: "image_invalid",
      hint: expect.stringContaining("linux/arm64"),
    });
    await expect(pull(`${host}/multi:arm64`)).rejects.toMatchObject({
      code: "image_invalid",
      hint: expect.stringContaining("--platform linux/arm64"),
    });
  });
});

describe("a registry that wants to know who asks", () => {
  test("gets a name and a password, or an error says how to give them", async () => {
    const { host } = await startRegistry({ users: { me: "a secret: with colon" } });
    const image = makeImage([tinyLayer()]);
    await skopeoPush(image, `${host}/app`, "--dest-creds", "me:a secret: with colon");
    await expect(pull(`${host}/app`)).rejects.toMatchObject({
      code: "registry_failed",
      details: { status: 401, registry: host },
      hint: expect.stringContaining("--password-stdin"),
    });
    const wrong = { kind: "password", username: "me", password: "wrong" } as const;
    await expect(pull(`${host}/app`, { auth: wrong })).rejects.toMatchObject({
      details: { status: 401 },
      hint: expect.stringContaining("refused"),
    });
    const record = await pull(`${host}/app`, { auth: { ...wrong, password: "a secret: with colon" } });
    expect(record.digest).toBe(sha256(image.config));
  });

  test("gets a token from the server that it names, and a fresh one when that has run out", async () => {
    const certificate = makeCertificate();
    const service = "test registry";
    const asked: URL[] = [];
    const tokens = await serve((request, response) => {
      const url = new URL(request.url ?? "", "http://x");
      asked.push(url);
      if (request.headers.authorization !== `Basic ${Buffer.from("me:pw").toString("base64")}`) {
        response.writeHead(401, { "content-type": "application/json" });
        response.end('{"errors":[{"code":"UNAUTHORIZED","message":"who are you?"}]}');
        return;
      }
      // The first of them is refused: it has run out already.
      const lifetimeS = asked.length === 1 ? -200 : 300;
      response.end(
        JSON.stringify({
          token: signToken(certificate, { service, scopes: url.searchParams.getAll("scope"), lifetimeS }),
        }),
      );
    });
    const realm = `http://${tokens.host}/token`;
    const { host } = await startRegistry({ tokens: { realm, service, certificate: certificate.certificate } });
    const auth = { kind: "password", username: "me", password: "pw" } as const;
    await expect(pull(`${host}/app`)).rejects.toMatchObject({
      code: "registry_failed",
      details: { status: 401, registryMessage: "who are you?" },
      hint: expect.stringContaining("--username"),
    });
    asked.length = 0;
    await expect(pull(`${host}/team/app:1`, { auth })).rejects.toMatchObject({
      details: { status: 404, registryCode: "MANIFEST_UNKNOWN" },
      hint: expect.stringContaining("team/app:1"),
    });
    expect(asked).toHaveLength(2);
    expect(asked[1]?.searchParams.get("service")).toBe(service);
    expect(asked[1]?.searchParams.getAll("scope")).toEqual(["repository:team/app:pull"]);
    await skopeoPush(makeImage([tinyLayer()]), `${host}/team/app:1`, "--dest-creds", "me:pw");
    asked.length = 1;
    await pull(`${host}/team/app:1`, { auth });
    // One token for the manifest, the config and the layers.
    expect(asked).toHaveLength(2);
  });

  test("is spoken to over TLS, and trusted only with its certificate", async () => {
    const tls = makeCertificate();
    const { host } = await startRegistry({ tls });
    await skopeoPush(makeImage([tinyLayer()]), `${host}/app`);
    await expect(pull(`${host}/app`, { plainHttp: false })).rejects.toMatchObject({
      code: "registry_failed",
      hint: expect.stringContaining("--ca-file"),
    });
    expect((await pull(`${host}/app`, { caFile: tls.certificate })).layers).toHaveLength(1);
  });
});

test("a registry that is not there is not waited for", async () => {
  const started = performance.now();
  await expect(pull("localhost:1/app")).rejects.toMatchObject({
    code: "registry_failed",
    message: expect.stringContaining("localhost:1"),
    hint: expect.stringContaining("Nothing listens there"),
  });
  await expect(pull("registry.invalid/app")).rejects.toMatchObject({ code: "registry_failed" });
  expect(performance.now() - started).toBeLessThan(10_000);
});
