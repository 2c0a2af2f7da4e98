import { execFileSync } from "node:child_process";
import { readdirSync, utimesSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { describe, expect, test } from "vitest";
import { pullImage } from "../../packages/images/src/registry/pull.js";
import { type RegistryProxy, serve, startProxy, startRegistry } from "../helpers/registry.js";
import {
  contextOf,
  expectNothingLeft,
  type MadeImage,
  MIB,
  makeImage,
  randomLayer,
  skopeoPush,
  useRegistryImages,
} from "../helpers/registry-images.js";
import { temporaryDirectory } from "../helpers/use-images.js";

const inUse = useRegistryImages();
const pull = (reference: string, options: Partial<Parameters<typeof pullImage>[2]> = {}) =>
  pullImage(contextOf(inUse), reference, { owner: null, retry: { baseMs: 5 }, ...options });
const partialDirectory = () => join(inUse.store.directory, "scratch/partial");

interface Served {
  readonly proxy: RegistryProxy;
  readonly image: MadeImage;
  readonly reference: string;
  /** The requests for the one big layer. */
  layerRequests(): RegistryProxy["exchanges"];
  layerBytes(): number;
}

/** One layer of 8 MiB behind a proxy. */
async function serveBigLayer(): Promise<Served> {
  const registry = await startRegistry();
  const proxy = await startProxy(registry);
  const image = makeImage([randomLayer(8 * MIB)]);
  await skopeoPush(image, `${registry.host}/app`, "--preserve-digests");
  const layerRequests = () => proxy.exchanges.filter(({ path }) => path.endsWith(image.blobs[0]?.digest ?? "?"));
  const layerBytes = () => layerRequests().reduce((sum, { receivedBytes }) => sum + receivedBytes, 0);
  return { proxy, image, reference: `${proxy.host}/app`, layerRequests, layerBytes };
}

const sizeOf = ({ image }: Served): number => image.blobs[0]?.content.length ?? 0;

/** What was on its way to us when it was cut comes again. */
function expectFetched(served: Served, sizeBytes: number, cuts: number): void {
  expect(served.layerBytes()).toBeGreaterThanOrEqual(sizeBytes);
  expect(served.layerBytes()).toBeLessThan(sizeBytes + cuts * 256 * 1024);
}

const isLayer = ({ image }: Served, { path }: { readonly path: string }) =>
  path.endsWith(image.blobs[0]?.digest ?? "?");

describe("a pull that is cut in the middle of a layer", () => {
  test("goes on from there, however often", async () => {
    const served = await serveBigLayer();
    let cuts = 0;
    // More often than a failing request is tried: each cut came after some progress.
    served.proxy.interfere = (exchange) =>
      isLayer(served, exchange) && cuts++ < 7 ? { kind: "cut-answer", afterBytes: MIB + cuts } : undefined;
    await pull(served.reference);
    expect(served.layerRequests().map(({ status }) => status)).toEqual([200, 206, 206, 206, 206, 206, 206, 206]);
    expectFetched(served, sizeOf(served), 7);
    expectNothingLeft(inUse);
  });

  test("begins again where ranges are not done, and is checked all the same", async () => {
    const image = makeImage([randomLayer(2 * MIB)]);
    const [blob] = image.blobs;
    let asked = 0;
    const { host } = await serve((request, response) => {
      if (request.url?.includes("/manifests/")) return void response.end(image.manifest);
      if (!request.url?.endsWith(blob?.digest ?? "?")) return void response.end(image.config);
      response.writeHead(200, { "content-length": String(blob?.content.length) });
      if (asked++ > 0) return void response.end(blob?.content);
      response.write(blob?.content.subarray(0, MIB), () => response.socket?.destroy());
    });
    await pull(`${host}/app`);
    expect(asked).toBe(2);
    expectNothingLeft(inUse);
  });

  test("stops when nothing comes any more, keeps what came, and the next one goes on from there", async () => {
    const served = await serveBigLayer();
    let asked = 0;
    served.proxy.interfere = (exchange) => {
      if (!isLayer(served, exchange)) return undefined;
      return { kind: "cut-answer", afterBytes: asked++ === 0 ? 3 * MIB : 0 };
    };
    await expect(pull(served.reference)).rejects.toMatchObject({
      code: "registry_failed",
      message: expect.stringContaining("downloading layer"),
    });
    expect(inUse.store.list()).toEqual([]);
    expect(readdirSync(partialDirectory())).toEqual([served.image.blobs[0]?.digest.slice(7)]);
    served.proxy.interfere = () => undefined;
    served.proxy.exchanges.length = 0;
    await pull(served.reference);
    expectFetched(served, sizeOf(served) - 3 * MIB, 1);
    expectNothingLeft(inUse);
  });

  test("fetches everything again if what was kept has been spoilt", async () => {
    const served = await serveBigLayer();
    const digits = served.image.blobs[0]?.digest.slice(7) ?? "";
    const context = contextOf(inUse);
    execFileSync("mkdir", ["-p", partialDirectory()]);
    writeFileSync(join(partialDirectory(), digits), Buffer.alloc(5 * MIB));
    await pullImage(context, served.reference, { owner: null });
    expect(served.layerBytes()).toBe(sizeOf(served) - 5 * MIB + sizeOf(served));
    expectNothingLeft(inUse);
  });

  test("leaves nothing when it is canceled", async () => {
    const served = await serveBigLayer();
    const controller = new AbortController();
    const pulling = pull(served.reference, {
      signal: controller.signal,
      onProgress: ({ phase, doneBytes }) => phase === "download" && doneBytes > 0 && controller.abort(),
    });
    await expect(pulling).rejects.toMatchObject({ code: "canceled" });
    expect(inUse.store.list()).toEqual([]);
    expectNothingLeft(inUse);
  });

  test("is not kept for longer than a day", async () => {
    const served = await serveBigLayer();
    execFileSync("mkdir", ["-p", partialDirectory()]);
    const [old, young] = ["a", "b"].map((digit) => join(partialDirectory(), digit.repeat(64))) as [string, string];
    for (const path of [old, young]) writeFileSync(path, "part");
    const dayAgo = Date.now() / 1000 - 25 * 3600;
    utimesSync(old, dayAgo, dayAgo);
    await pull(served.reference);
    expect(readdirSync(partialDirectory())).toEqual(["b".repeat(64)]);
  });
});

describe("a registry that fails for a moment", () => {
  test("is asked again, after the time that it asks for", async () => {
    const served = await serveBigLayer();
    const answers = [
      { status: 429, headers: { "retry-after": "1" } },
      { status: 500, body: "oops" },
      { status: 503, headers: { "retry-after": new Date(Date.now()).toUTCString() } },
    ];
    served.proxy.interfere = () => {
      const next = answers.shift();
      return next === undefined ? undefined : { kind: "answer", ...next };
    };
    const started = performance.now();
    await pull(served.reference);
    expect(performance.now() - started).toBeGreaterThan(990);
    expect(answers).toEqual([]);
    expectNothingLeft(inUse);
  });

  test("is not waited for longer than anybody would wait", async () => {
    const served = await serveBigLayer();
    served.proxy.interfere = () => ({
      kind: "answer",
      status: 429,
      headers: { "retry-after": "21600" },
      body: '{"errors":[{"code":"TOOMANYREQUESTS","message":"you have \\u001b[31mreached\\u001b[0m your limit"}]}',
    });
    await expect(pull(served.reference)).rejects.toMatchObject({
      code: "registry_failed",
      hint: expect.stringContaining("21600 seconds"),
      details: {
        status: 429,
        registryCode: "TOOMANYREQUESTS",
        registryMessage: "you have  [31mreached [0m your limit",
      },
    });
    expect(served.proxy.exchanges).toHaveLength(1);
    served.proxy.interfere = () => ({ kind: "answer", status: 503 });
    served.proxy.exchanges.length = 0;
    await expect(pull(served.reference)).rejects.toMatchObject({ details: { status: 503 } });
    expect(served.proxy.exchanges).toHaveLength(5);
  });
});

describe("a disk that is too small", () => {
  async function withSmallScratch(sizeBytes: number, work: (scratch: string) => Promise<void>): Promise<void> {
    const directory = temporaryDirectory();
    execFileSync("mount", ["-t", "tmpfs", "-o", `size=${sizeBytes}`, "tmpfs", directory]);
    try {
      await work(directory);
    } finally {
      execFileSync("umount", [directory]);
    }
  }

  test("is noticed before anything is fetched, with both numbers", async () => {
    const served = await serveBigLayer();
    await withSmallScratch(4 * MIB, async (scratch) => {
      await expect(pull(served.reference, { scratch })).rejects.toMatchObject({
        code: "no_space",
        details: { directory: scratch, neededBytes: sizeOf(served), freeBytes: 4 * MIB },
      });
      expect(served.layerRequests()).toEqual([]);
      expect(readdirSync(scratch)).toEqual([]);
    });
  });

  test("that becomes full in the middle leaves nothing", async () => {
    const served = await serveBigLayer();
    await withSmallScratch(12 * MIB, async (scratch) => {
      served.proxy.interfere = (exchange) => {
        if (isLayer(served, exchange)) writeFileSync(join(scratch, "filler"), Buffer.alloc(8 * MIB));
        return undefined;
      };
      await expect(pull(served.reference, { scratch })).rejects.toMatchObject({ code: "no_space" });
      expect(readdirSync(scratch)).toEqual(["filler"]);
    });
    expect(inUse.store.list()).toEqual([]);
    expectNothingLeft(inUse);
  });
});
