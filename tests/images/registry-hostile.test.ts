/** Registries that lie, loop, dawdle and send us elsewhere. */
import type { IncomingMessage, ServerResponse } from "node:http";
import { gzipSync } from "node:zlib";
import { describe, expect, test } from "vitest";
import { pullImage } from "../../packages/images/src/registry/pull.js";
import { serve } from "../helpers/registry.js";
import {
  contextOf,
  expectNothingLeft,
  type MadeImage,
  MIB,
  makeImage,
  makeLayer,
  randomLayer,
  sha256,
  useRegistryImages,
} from "../helpers/registry-images.js";

const inUse = useRegistryImages();
const pull = (reference: string, options: Partial<Parameters<typeof pullImage>[2]> = {}) =>
  pullImage(contextOf(inUse), reference, { owner: null, retry: { baseMs: 1, attempts: 3 }, ...options });

type Handler = (request: IncomingMessage, response: ServerResponse, path: string) => boolean;

/** Serves the image, unless the handler has answered. */
async function serveImage(image: MadeImage, handler: Handler = () => false) {
  const requests: IncomingMessage[] = [];
  const served = await serve((request, response) => {
    requests.push(request);
    const path = request.url ?? "";
    if (handler(request, response, path)) return;
    if (path.includes("/manifests/")) return void response.end(image.manifest);
    if (path.endsWith(sha256(image.config))) return void response.end(image.config);
    const blob = image.blobs.find(({ digest }) => path.endsWith(digest));
    if (blob === undefined) return void response.writeHead(404).end();
    response.end(blob.content);
  });
  return { ...served, requests };
}

async function expectRefused(reference: string, error: object, options = {}): Promise<void> {
  await expect(pull(reference, options)).rejects.toMatchObject(error);
  expect(inUse.store.list()).toEqual([]);
  expectNothingLeft(inUse);
}

describe("content that is not what its digest says", () => {
  const image = () => makeImage([makeLayer({ a: "a" }), randomLayer(MIB)], { compression: "gzip" });

  test.each(["gzip", "none"] as const)("is refused as a layer (%s)", async (compression) => {
    const made = makeImage([makeLayer({ a: "a" }), randomLayer(MIB)], { compression });
    const { host } = await serveImage(made, (_request, response, path) => {
      if (!path.endsWith(made.blobs[1]?.digest ?? "?")) return false;
      const wrong = Buffer.from(made.blobs[1]?.content ?? "");
      wrong[wrong.length - 5] = (wrong[wrong.length - 5] ?? 0) ^ 1;
      response.end(wrong);
      return true;
    });
    await expectRefused(`${host}/app`, { code: "image_invalid", details: { expected: made.blobs[1]?.digest } });
  });

  test("is refused as a layer that is longer or shorter than it should be", async () => {
    const made = image();
    for (const change of ["longer", "shorter"]) {
      const { host } = await serveImage(made, (_request, response, path) => {
        const blob = made.blobs[1];
        if (blob === undefined || !path.endsWith(blob.digest)) return false;
        response.end(change === "longer" ? Buffer.concat([blob.content, Buffer.from("x")]) : blob.content.subarray(1));
        return true;
      });
      const code = change === "longer" ? "image_invalid" : "registry_failed";
      await expect(pull(`${host}/app`)).rejects.toMatchObject({ code });
      expect(inUse.store.list()).toEqual([]);
    }
    // What a cut has left is found to be wrong by whoever goes on with it.
    const { host } = await serveImage(made);
    await pull(`${host}/app`);
    expectNothingLeft(inUse);
  });

  test("is refused as a manifest, by the digest asked for or the one promised, and as a config", async () => {
    const made = image();
    const { host } = await serveImage(made);
    await expectRefused(`${host}/app@sha256:${"0".repeat(64)}`, { code: "image_invalid" });
    const promising = await serveImage(made, (_request, response, path) => {
      if (path.includes("/manifests/")) response.setHeader("docker-content-digest", `sha256:${"1".repeat(64)}`);
      return false;
    });
    await expectRefused(`${promising.host}/app`, { code: "image_invalid" });
    const lying = await serveImage(made, (_request, response, path) => {
      if (!path.endsWith(sha256(made.config))) return false;
      response.end(made.config.toString().replace("linux", "linus"));
      return true;
    });
    await expectRefused(`${lying.host}/app`, { code: "image_invalid" });
  });

  test("is refused as files that differ from what the config says", async () => {
    const made = image();
    const other = gzipSync(makeLayer({ a: "something else" }).tar);
    const manifest = JSON.parse(made.manifest.toString()) as { layers: { digest: string; size: number }[] };
    Object.assign(manifest.layers[0] ?? {}, { digest: sha256(other), size: other.length });
    const { host } = await serveImage(
      { ...made, manifest: Buffer.from(JSON.stringify(manifest)) },
      (_request, response, path) => {
        if (!path.endsWith(sha256(other))) return false;
        response.end(other);
        return true;
      },
    );
    await expectRefused(`${host}/app`, { code: "image_invalid", message: expect.stringContaining("not sha256:") });
  });
});

describe("a manifest", () => {
  const serveManifest = async (body: Buffer | string) =>
    `${(await serve((_request, response) => void response.end(body))).host}/app`;

  test("without end is not read to the end", async () => {
    let sent = 0;
    const { host } = await serve((_request, response) => {
      const more = (): void => {
        while (!response.destroyed && response.write(Buffer.alloc(64 * 1024, " "))) sent += 64 * 1024;
      };
      response.on("drain", more);
      more();
    });
    await expectRefused(`${host}/app`, { code: "image_invalid", details: { maxBytes: 4 * MIB } });
    expect(sent).toBeLessThan(32 * MIB);
  });

  test.each([
    ["", "JSON"],
    ["null", "an object"],
    ["[]", "an object"],
    ['{"schemaVersion":1}', "schema 1"],
    ['{"schemaVersion":2,"manifests":[]}', "nothing for"],
    ['{"schemaVersion":2,"config":{"mediaType":"x","digest":"sha256:x","size":-1}}', "digest"],
    [Buffer.from([0xff, 0xfe]), "UTF-8"],
  ])("such as %s is refused", async (body, message) => {
    await expectRefused(await serveManifest(body), {
      code: "image_invalid",
      message: expect.stringContaining(message),
    });
  });

  test("that lists itself is not followed for ever", async () => {
    // No content can have its own digest in it, so every list is another one.
    let index = Buffer.from("{}");
    const indexes = new Map<string, Buffer>();
    for (let depth = 0; depth < 10; depth++) {
      const entry = { mediaType: "application/vnd.oci.image.index.v1+json", digest: sha256(index), size: index.length };
      index = Buffer.from(JSON.stringify({ schemaVersion: 2, manifests: [entry] }));
      indexes.set(sha256(index), index);
    }
    let asked = 0;
    const { host } = await serve((request, response) => {
      asked++;
      response.end(indexes.get(request.url?.split("/").at(-1) ?? "") ?? index);
    });
    await expectRefused(`${host}/app`, { code: "image_invalid", message: expect.stringContaining("lists of lists") });
    expect(asked).toBeLessThan(6);
  });
});

describe("redirects", () => {
  test("in a circle end with an error", async () => {
    let asked = 0;
    const { host } = await serve((_request, response) => {
      asked++;
      response.writeHead(307, { location: `/v2/again/${asked}` }).end();
    });
    await expectRefused(`${host}/app`, {
      code: "registry_failed",
      message: expect.stringContaining("redirected more than 5"),
    });
    expect(asked).toBe(6);
  });

  test.each(["file:///etc/passwd", "ftp://localhost/x", "http://me:pw@localhost/x", "http://", undefined])(
    "to %s are refused",
    async (location) => {
      const { host } = await serve((_request, response) => {
        response.writeHead(302, location === undefined ? {} : { location }).end();
      });
      await expectRefused(`${host}/app`, { code: "registry_failed", message: expect.stringContaining("elsewhere") });
    },
  );

  test("to another host do not take the credentials along", async () => {
    const image = makeImage([makeLayer({ a: "a" })]);
    const elsewhere = await serveImage(image);
    const { host } = await serveImage(image, (request, response, path) => {
      if (request.headers.authorization === undefined) {
        response.writeHead(401, { "www-authenticate": 'Basic realm="x"' }).end();
        return true;
      }
      if (!path.includes("/blobs/")) return false;
      response.writeHead(307, { location: `http://127.0.0.1:${elsewhere.port}${path}` }).end();
      return true;
    });
    await pull(`${host}/app`, { auth: { kind: "password", username: "me", password: "pw" } });
    expect(elsewhere.requests).toHaveLength(2);
    for (const { headers } of elsewhere.requests) expect(headers.authorization).toBeUndefined();
  });
});

describe("a token server", () => {
  const auth = { kind: "password", username: "me", password: "pw" } as const;

  async function startWithTokens(answer: (response: ServerResponse, count: number) => void) {
    let count = 0;
    const tokens = await serve((_request, response) => answer(response, ++count));
    const registry = await serveImage(makeImage([makeLayer({ a: "a" })]), (request, response) => {
      if (request.headers.authorization === "Bearer good") return false;
      const realm = `http://${tokens.host}/token`;
      response.writeHead(401, {
        "www-authenticate": `Bearer realm="${realm}",service="s",scope="repository:app:pull"`,
      });
      response.end();
      return true;
    });
    return { reference: `${registry.host}/app`, requests: registry.requests, asked: () => count };
  }

  test.each([
    ["answers with an error", 400, '{"details":"no such service"}', "no such service"],
    ["is down", 503, "", "503"],
    ["redirects", 302, "", "302"],
    ["gives something else", 200, "<html>", "not JSON"],
    ["gives null", 200, "null", "no token"],
    ["gives no token", 200, '{"token":""}', "no token"],
    ["gives a token with a header in it", 200, '{"token":"a\\r\\nX-Evil: 1"}', "no token"],
    ["gives far too much", 200, " ".repeat(MIB), "too large"],
  ])("that %s is named in the error", async (_what, status, body, message) => {
    const { reference, asked } = await startWithTokens((response) => void response.writeHead(status).end(body));
    await expectRefused(
      reference,
      { code: "registry_failed", message: expect.stringMatching(new RegExp(`token.*${message}`)) },
      { auth },
    );
    expect(asked()).toBe(status === 503 ? 3 : 1);
  });

  test("whose tokens are refused is not asked for ever", async () => {
    const { reference, asked } = await startWithTokens((response) => void response.end('{"token":"bad"}'));
    await expectRefused(reference, { code: "registry_failed", details: { status: 401 } }, { auth });
    expect(asked()).toBe(2);
  });

  test("that fails for a moment is asked again", async () => {
    const { reference, asked } = await startWithTokens((response, count) => {
      if (count < 3) response.writeHead(500).end();
      else response.end('{"access_token":"good","expires_in":300}');
    });
    await pull(reference, { auth });
    expect(asked()).toBe(3);
  });

  test("at an address that makes no sense is refused", async () => {
    for (const realm of ["file:///etc/passwd", "nowhere", "http://me:pw@localhost/"]) {
      const { host } = await serve((_request, response) => {
        response.writeHead(401, { "www-authenticate": `Bearer realm="${realm}"` }).end();
      });
      await expectRefused(`${host}/app`, { code: "registry_failed", message: expect.stringContaining("token server") });
    }
  });
});

describe("a registry that", () => {
  test("says nothing is given up after a while", async () => {
    const { host } = await serve(() => undefined);
    await expectRefused(
      `${host}/app`,
      { code: "registry_failed", message: expect.stringContaining("for too long") },
      { idleTimeoutMs: 100 },
    );
  });

  test("stops in the middle of a layer is given up after a while", async () => {
    const image = makeImage([randomLayer(MIB)]);
    const { host } = await serveImage(image, (_request, response, path) => {
      if (!path.endsWith(image.blobs[0]?.digest ?? "?")) return false;
      response.writeHead(200, { "content-length": String(image.blobs[0]?.content.length) });
      response.write(image.blobs[0]?.content.subarray(0, 1000));
      return true;
    });
    await expect(pull(`${host}/app`, { idleTimeoutMs: 100 })).rejects.toMatchObject({ code: "registry_failed" });
    expect(inUse.store.list()).toEqual([]);
  });

  test("does not speak HTTP is named as such", async () => {
    const { server, host } = await serve(() => undefined);
    server.on("connection", (socket) => socket.end("SSH-2.0-OpenSSH_9.2\r\n"));
    await expectRefused(`${host}/app`, { code: "registry_failed" });
  });

  test("packs gigabytes of nothing behind an archive costs time and nothing else", async () => {
    const bomb = { tar: Buffer.concat([makeLayer({ a: "a" }).tar, Buffer.alloc(256 * MIB)]) };
    const made = makeImage([bomb], { compression: "gzip" });
    const { host } = await serveImage(made);
    const record = await pull(`${host}/app`);
    expect(await inUse.engine.layers.sizeBytes(record.layers[0] as never)).toBeLessThan(MIB);
    expectNothingLeft(inUse);
  });
});
