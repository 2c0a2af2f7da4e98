import type { ForkList, ImageInfo } from "@holdfast/protocol";
import { Image } from "@holdfast/recipe";
import { afterEach, describe, expect, test } from "vitest";
import { Images, type TransferProgress } from "./images.js";
import { createSandbox, Sandbox } from "./sandbox.js";
import {
  type Answer,
  all,
  bodyOf,
  closeHttpServers,
  flush,
  line,
  sendJson,
  useHttpServer,
} from "./testing/use-http-server.js";

afterEach(closeHttpServers);

const IMAGE = { id: "img1", digest: "sha256:1" } as ImageInfo;

async function useImages(answer: Answer): Promise<Images> {
  return new Images((await useHttpServer(answer)).transport);
}

/** Answers everything the same, and says what was asked for. */
async function useAnswer(value: unknown): Promise<{ readonly images: Images; readonly seen: string[] }> {
  const seen: string[] = [];
  const images = await useImages(async (request, response) => {
    seen.push(`${request.method} ${request.url} ${(await bodyOf(request)).toString()}`.trimEnd());
    sendJson(response, value);
  });
  return { images, seen };
}

describe("images", () => {
  test("are listed, found, named and removed", async () => {
    const { images, seen } = await useAnswer({ images: [IMAGE], builds: [] });
    expect(await images.list()).toEqual([IMAGE]);
    expect(await images.builds()).toEqual([]);
    await images.get("team/app:1");
    await images.setName("img1", "team/app:2");
    await images.removeName("img1", "team/app:2");
    await images.remove("sha256:0123456789ab");
    await images.prune({ all: true, unusedForMs: 5 });
    expect(seen).toEqual([
      "GET /v1/images",
      "GET /v1/images/builds",
      "GET /v1/images/team%2Fapp%3A1",
      'POST /v1/images/img1/names {"name":"team/app:2"}',
      "DELETE /v1/images/img1/names?name=team%2Fapp%3A2",
      "DELETE /v1/images/sha256%3A0123456789ab",
      'POST /v1/images/prune {"all":true,"unusedForMs":5}',
    ]);
  });

  test("come in as a stream, with all their names", async () => {
    const { images, seen } = await useAnswer(IMAGE);
    const content = new Blob(["archive"]).stream();
    expect(await images.import(content, { name: ["a", "b:1"], platform: "linux/arm64" })).toEqual(IMAGE);
    expect(seen).toEqual(["POST /v1/images/import?name=a&name=b%3A1&platform=linux%2Farm64 archive"]);
  });

  test("go out as a stream", async () => {
    const images = await useImages((request, response) => {
      response.end(`archive of ${request.url}`);
    });
    const stream = await images.export("a", { format: "docker", compression: "gzip" });
    expect(await new Response(stream).text()).toBe("archive of /v1/images/a/export?format=docker&compression=gzip");
  });

  test("that break off on their way out are an error", async () => {
    const images = await useImages(async (_request, response) => {
      await flush(response, "half");
      response.destroy();
    });
    await expect(new Response(await images.export("a")).text()).rejects.toMatchObject({ code: "server_unreachable" });
  });

  test("that are refused while they are sent are let go of", async () => {
    const images = await useImages((_request, response) => {
      sendJson(response, { code: "no_space", message: "full" }, 507);
    });
    let canceled = false;
    const endless = new ReadableStream<Uint8Array>({
      pull: (controller) => controller.enqueue(new Uint8Array(1024)),
      cancel: () => {
        canceled = true;
      },
    });
    await expect(images.import(endless)).rejects.toMatchObject({ code: "no_space" });
    await expect.poll(() => canceled).toBe(true);
  });
});

describe("a transfer", () => {
  const progress: TransferProgress = { phase: "download", what: "a layer", doneBytes: 1, totalBytes: 2 };

  test("tells how far it is, and ends with what came of it", async () => {
    const seen: string[] = [];
    const images = await useImages(async (request, response) => {
      seen.push(`${request.method} ${request.url} ${(await bodyOf(request)).toString()}`);
      const last =
        request.url === "/v1/images/pull" ? { type: "image", image: IMAGE } : { type: "pushed", digest: "sha256:2" };
      response.end(line({ type: "progress", ...progress }) + line({ type: "keepalive" }) + line(last));
    });
    const told: TransferProgress[] = [];
    const onProgress = (far: TransferProgress): void => void told.push(far);
    const auth = { username: "me", password: "secret" };
    expect(await images.pull("debian:12", { auth, names: ["d"], onProgress })).toEqual(IMAGE);
    expect(await images.push("d", "localhost:5000/d", { plainHttp: true, compression: "none", onProgress })).toEqual({
      digest: "sha256:2",
    });
    expect(told).toEqual([progress, progress]);
    expect(seen).toEqual([
      'POST /v1/images/pull {"reference":"debian:12","auth":{"username":"me","password":"secret"},"names":["d"]}',
      'POST /v1/images/d/push {"reference":"localhost:5000/d","plainHttp":true,"compression":"none"}',
    ]);
  });

  test("that fails on its way, breaks off or ends with something else is an error", async () => {
    const lines = [
      line({ type: "error", error: { code: "registry_failed", message: "no" } }),
      line({ type: "progress", ...progress }),
      line({ type: "pushed", digest: "sha256:2" }),
    ];
    const images = await useImages((_request, response) => {
      response.end(lines.shift());
    });
    await expect(images.pull("a")).rejects.toMatchObject({ code: "registry_failed" });
    await expect(images.pull("a")).rejects.toMatchObject({ code: "server_unreachable" });
    await expect(images.pull("a")).rejects.toMatchObject({ code: "engine_fault" });
  });
});

test("the log of a build is read to its end", async () => {
  const images = await useImages((_request, response) => {
    const entry = { seq: 0, at: "", step: "1", stream: "stdout", text: "hello" };
    response.end(
      line({ type: "build", build: {} }) + line({ type: "log", ...entry }) + line({ type: "ended", build: {} }),
    );
  });
  expect((await all(images.buildLog("b1"))).map(({ text }) => text)).toEqual(["hello"]);
});

describe("a sandbox", () => {
  test("of an image says its name, its size and how strict to be", async () => {
    const bodies: unknown[] = [];
    const { transport } = await useHttpServer(async (request, response) => {
      bodies.push(JSON.parse((await bodyOf(request)).toString()));
      sendJson(response, { id: "i1" }, 201);
    });
    await createSandbox(transport, { image: "app", memoryMb: 512, cpus: 0.5, diskMb: 1024, strict: true });
    await createSandbox(transport, { limits: { memoryBytes: 5, pids: 7 }, cpus: 2 });
    expect(bodies).toEqual([
      {
        image: "app",
        strict: true,
        limits: { memoryBytes: 512 * 1024 ** 2, cpuMillis: 500, diskBytes: 1024 ** 3 },
      },
      { limits: { memoryBytes: 5, pids: 7, cpuMillis: 2000 } },
    ]);
    await expect(createSandbox(transport, { image: "app", memoryMB: 512 } as object)).rejects.toMatchObject({
      code: "invalid_argument",
      message: "create.memoryMB: there is no such option",
      details: { field: "memoryMB" },
    });
    await expect(createSandbox(transport, { limits: { memoryBytes: 5 }, memoryMb: 1 })).rejects.toThrow(
      "limits.memoryBytes: is given twice",
    );
  });

  test("of a declared image is made when that is built", async () => {
    const seen: string[] = [];
    const { transport } = await useHttpServer(async (request, response) => {
      const body = (await bodyOf(request)).toString();
      seen.push(`${request.method} ${request.url}`);
      if (request.url === "/v1/sandboxes") {
        seen.push((JSON.parse(body) as { image: string }).image);
        sendJson(response, { id: "i1" }, 201);
      } else if (request.url === "/v1/images/builds") sendJson(response, { id: "b1" }, 202);
      else if (request.url === "/v1/images/img1") sendJson(response, IMAGE);
      else response.end(line({ type: "ended", build: { id: "b1", state: "ready", imageId: "img1" } }));
    });
    expect((await createSandbox(transport, { image: Image.base() })).id).toBe("i1");
    expect(seen).toEqual([
      "POST /v1/images/builds",
      "GET /v1/images/builds/b1/log?from=0",
      "GET /v1/images/img1",
      "POST /v1/sandboxes",
      "img1",
    ]);
  });

  test("is kept as an image", async () => {
    const seen: string[] = [];
    const { transport } = await useHttpServer(async (request, response) => {
      seen.push(`${request.method} ${request.url} ${(await bodyOf(request)).toString()}`);
      sendJson(response, { image: IMAGE, holds: "files" }, 201);
    });
    expect(await new Sandbox(transport, "i1").snapshot({ name: "kept" })).toMatchObject({ holds: "files" });
    expect(seen).toEqual(['POST /v1/sandboxes/i1/snapshots {"name":"kept"}']);
  });

  test("is forked, and says how", async () => {
    const { transport } = await useHttpServer((_request, response) => {
      const forks = ["i2", "i3"].map((id) => ({ sandbox: { id }, restored: "files" }));
      sendJson(response, { forks, method: "clone" }, 201);
    });
    const forks = await new Sandbox(transport, "i1").fork({ count: 2 });
    expect(forks.map(({ id }) => id)).toEqual(["i2", "i3"]);
    expect(forks).toMatchObject({ restored: "files", method: "clone" });
  });

  test("is forked as often as was asked for, or not at all", async () => {
    const killed: string[] = [];
    const { transport } = await useHttpServer((request, response) => {
      if (request.method === "DELETE") {
        killed.push(request.url ?? "");
        sendJson(response, {});
        return;
      }
      const list = {
        forks: [
          { sandbox: { id: "i2" }, restored: "files" },
          { error: { code: "host_capacity", message: "no memory is left" } },
        ],
        method: "clone",
      } as unknown as ForkList;
      sendJson(response, list, 201);
    });
    await expect(new Sandbox(transport, "i1").fork({ count: 2 })).rejects.toMatchObject({ code: "host_capacity" });
    expect(killed).toEqual(["/v1/sandboxes/i2"]);
  });
});
