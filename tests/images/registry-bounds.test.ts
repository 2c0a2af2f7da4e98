/** What a pull does not do: reach where it may not, touch what is not its own, take more than there is. */
import { execFileSync } from "node:child_process";
import { chownSync, existsSync, mkdirSync, readdirSync, symlinkSync, utimesSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { BubblewrapEngine } from "@holdfast/engine";
import { describe, expect, test } from "vitest";
import { pullImage } from "../../packages/images/src/registry/pull.js";
import { pushImage } from "../../packages/images/src/registry/push.js";
import { openImageStore } from "../../packages/images/src/store/open-image-store.js";
import { serve, startProxy, startRegistry } from "../helpers/registry.js";
import {
  contextOf,
  expectNothingLeft,
  MIB,
  makeImage,
  makeLayer,
  randomLayer,
  skopeoPush,
  tinyLayer,
  useRegistryImages,
} from "../helpers/registry-images.js";
import { temporaryDirectory } from "../helpers/use-images.js";

const inUse = useRegistryImages();
const pull = (reference: string, options: Partial<Parameters<typeof pullImage>[2]> = {}) =>
  pullImage(contextOf(inUse), reference, { owner: null, retry: { baseMs: 5 }, ...options });
const DAY_AGO_S = Date.now() / 1000 - 25 * 3600;

describe("addresses out of reach", () => {
  const refused = { code: "access_denied", message: expect.stringContaining("may not be reached") };

  test("are not connected to, by number or by name", async () => {
    const connections: string[] = [];
    const { host } = await serve((request, response) => {
      connections.push(request.url ?? "");
      response.writeHead(404).end();
    });
    const port = host.split(":").at(-1);
    const asked: [string, number][] = [];
    const mayReach = (address: string, at: number): boolean => {
      asked.push([address, at]);
      return false;
    };
    for (const name of ["localhost", "127.0.0.1", "[::1]"]) {
      await expect(pull(`${name}:${port}/app`, { mayReach })).rejects.toMatchObject(refused);
    }
    expect(connections).toEqual([]);
    expect(asked).toContainEqual(["127.0.0.1", Number(port)]);
    expect(asked).toContainEqual(["::1", Number(port)]);
    const image = await inUse.addImage();
    const pushed = pushImage(contextOf(inUse), image, `localhost:${port}/app`, { mayReach });
    await expect(pushed).rejects.toMatchObject(refused);
    expect(connections).toEqual([]);
    // Those within reach are, as before.
    await expect(pull(`localhost:${port}/app`, { mayReach: () => true })).rejects.toMatchObject({
      code: "registry_failed",
    });
    expect(connections).not.toEqual([]);
  });

  test("are not gone to on a registry's word either: redirects and token servers", async () => {
    let connections = 0;
    const inner = await serve((_request, response) => {
      connections++;
      response.end("{}");
    });
    const innerPort = Number(inner.host.split(":").at(-1));
    const redirecting = await serve((_request, response) => {
      response.writeHead(307, { location: `http://localhost:${innerPort}/v2/app/manifests/latest` }).end();
    });
    const challenging = await serve((_request, response) => {
      response.writeHead(401, { "www-authenticate": `Bearer realm="http://localhost:${innerPort}/token"` }).end();
    });
    const mayReach = (_address: string, port: number): boolean => port !== innerPort;
    await expect(pull(`${redirecting.host}/app`, { mayReach })).rejects.toMatchObject(refused);
    await expect(pull(`${challenging.host}/app`, { mayReach })).rejects.toThrow("may not be reached");
    expect(connections).toBe(0);
  });
});

describe("what others have put into the scratch directory", () => {
  test.each(["link", "directory"])("is neither used nor removed (%s)", async (kind) => {
    const { host } = await startRegistry();
    await skopeoPush(makeImage([tinyLayer()]), `${host}/app`, "--preserve-digests");
    const scratch = temporaryDirectory();
    const theirs = temporaryDirectory();
    const blob = join(theirs, "a".repeat(64));
    writeFileSync(blob, "precious");
    utimesSync(blob, DAY_AGO_S, DAY_AGO_S);
    if (kind === "link") symlinkSync(theirs, join(scratch, "partial"));
    else {
      mkdirSync(join(scratch, "partial"));
      execFileSync("cp", ["-p", blob, join(scratch, "partial")]);
      chownSync(join(scratch, "partial"), 4242, 4242);
    }
    await expect(pull(`${host}/app`, { scratch })).rejects.toMatchObject({
      code: "invalid_argument",
      details: { field: "scratch" },
    });
    expect(readdirSync(join(scratch, "partial"))).toEqual(["a".repeat(64)]);
    expect(existsSync(blob)).toBe(true);
  });
});

test("downloads that nobody has come back for go when things are pruned, and at a start", async () => {
  const partial = join(inUse.store.directory, "scratch/partial");
  const [old, young] = ["a", "b"].map((digit) => join(partial, digit.repeat(64))) as [string, string];
  for (const sweep of [() => inUse.store.prune(), () => inUse.store.recover()]) {
    mkdirSync(partial, { recursive: true });
    for (const path of [old, young]) writeFileSync(path, "part");
    utimesSync(old, DAY_AGO_S, DAY_AGO_S);
    await sweep();
    expect(readdirSync(partial)).toEqual(["b".repeat(64)]);
  }
});

test("what is downloaded and what it is unpacked to are counted together where one disk has to hold both", async () => {
  const registry = await startRegistry();
  const proxy = await startProxy(registry);
  const image = makeImage([randomLayer(10 * MIB)]);
  await skopeoPush(image, `${registry.host}/app`, "--preserve-digests");
  const stateDirectory = temporaryDirectory();
  execFileSync("mount", ["-t", "tmpfs", "-o", "size=16m", "tmpfs", stateDirectory]);
  try {
    const engine = await BubblewrapEngine.open({ stateDirectory, pool: "dir" });
    const store = openImageStore({ stateDirectory, layers: engine.layers });
    const context = contextOf({ engine, store, stateDirectory } as never);
    await expect(pullImage(context, `${proxy.host}/app`, { owner: null })).rejects.toMatchObject({
      code: "no_space",
      details: { neededBytes: 2 * (image.blobs[0]?.content.length ?? 0), freeBytes: expect.any(Number) },
    });
    expect(proxy.exchanges.filter(({ path }) => path.endsWith(image.blobs[0]?.digest ?? "?"))).toEqual([]);
    await engine.close({ sandboxes: "kill" });
  } finally {
    execFileSync("umount", [stateDirectory]);
  }
});

test("a layer that its owner may not see does not make the others be fetched again", async () => {
  const registry = await startRegistry();
  const proxy = await startProxy(registry);
  const [mine, secret] = [randomLayer(MIB, "mine"), makeLayer({ secret: "of another" })];
  await skopeoPush(makeImage([tinyLayer(), mine]), `${registry.host}/mine`, "--preserve-digests");
  const both = makeImage([tinyLayer(), mine, secret]);
  await skopeoPush(both, `${registry.host}/both`, "--preserve-digests");
  await pull(`${proxy.host}/mine`, { owner: "key-b" });
  await skopeoPush(makeImage([secret]), `${registry.host}/secret`, "--preserve-digests");
  await pull(`${proxy.host}/secret`, { owner: "key-a" });
  proxy.exchanges.length = 0;
  const record = await pull(`${proxy.host}/both`, { owner: "key-b" });
  expect(record.layers).toHaveLength(3);
  const fetched = both.blobs.map(({ digest }) => proxy.exchanges.some(({ path }) => path.endsWith(digest)));
  expect(fetched).toEqual([false, false, true]);
  expectNothingLeft(inUse);
});
