import { afterEach, describe, expect, test } from "vitest";
import { Sandbox } from "./sandbox.js";
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

async function useFiles(answer: Answer) {
  return new Sandbox((await useHttpServer(answer)).transport, "i1").files;
}

describe("files", () => {
  test("are read as text, bytes or a stream", async () => {
    const content = Buffer.from("\uFEFFgrößer 🦀");
    const files = await useFiles((_request, response) => {
      response.end(content);
    });
    expect(await files.read("/a")).toBe(content.toString());
    expect(Buffer.from(await files.read("/a", { as: "bytes" }))).toEqual(content);
    const chunks = await all(await files.read("/a", { as: "stream" }));
    expect(Buffer.concat(chunks)).toEqual(content);
  });

  test("that break off in the middle are an error, not a short file", async () => {
    const files = await useFiles(async (_request, response) => {
      response.writeHead(200, { "content-length": 100 });
      await flush(response, "half");
      response.destroy();
    });
    await expect(files.read("/a")).rejects.toMatchObject({ code: "server_unreachable" });
    const stream = await files.read("/a", { as: "stream" });
    await expect(all(stream)).rejects.toMatchObject({ code: "server_unreachable" });
  });

  test("are written from anything", async () => {
    const seen: string[] = [];
    const files = await useFiles(async (request, response) => {
      seen.push(`${request.method} ${request.url} ${(await bodyOf(request)).toString()}`);
      sendJson(response, { path: "/a" });
    });
    await files.write("/a b", "text", { mode: 0o644, user: "root" });
    await files.write("/a", new TextEncoder().encode("bytes"));
    await files.write("/a", new Blob(["blob"]));
    await files.write("/a", new Blob(["stream"]).stream());
    expect(seen).toEqual([
      "PUT /v1/sandboxes/i1/files?path=%2Fa+b&user=root&mode=0644 text",
      "PUT /v1/sandboxes/i1/files?path=%2Fa bytes",
      "PUT /v1/sandboxes/i1/files?path=%2Fa blob",
      "PUT /v1/sandboxes/i1/files?path=%2Fa stream",
    ]);
  });

  test("that are refused while they are sent are let go of, even if they have no end", async () => {
    let canceled = false;
    const files = await useFiles((_request, response) => {
      sendJson(response, { code: "no_space", message: "full" }, 507);
    });
    const endless = new ReadableStream<Uint8Array>({
      pull: (controller) => controller.enqueue(new Uint8Array(1024)),
      cancel: () => {
        canceled = true;
      },
    });
    await expect(files.write("/a", endless)).rejects.toMatchObject({ code: "no_space" });
    await new Promise((resolve) => setTimeout(resolve, 10));
    expect(canceled).toBe(true);
  });

  test("exist or not", async () => {
    const files = await useFiles((request, response) => {
      if (request.url?.includes("path=%2Fthere") === true) sendJson(response, { path: "/there" });
      else sendJson(response, { code: "file_not_found", message: "no such file" }, 404);
    });
    expect([await files.exists("/there"), await files.exists("/nowhere")]).toEqual([true, false]);
  });

  test("are listed, and an error on the way is one", async () => {
    const files = await useFiles((_request, response) => {
      response.end(
        line({ name: "a", type: "file" }) +
          line({ type: "error", error: { code: "file_access_denied", message: "no" } }),
      );
    });
    const names: string[] = [];
    const reading = (async () => {
      for await (const { name } of files.list("/")) names.push(name);
    })();
    await expect(reading).rejects.toMatchObject({ code: "file_access_denied" });
    expect(names).toEqual(["a"]);
  });

  test("a watch that was interrupted says so", async () => {
    let connections = 0;
    const files = await useFiles(async (_request, response) => {
      connections += 1;
      await flush(response, line({ type: "ready" }) + line({ type: "event", kind: "create", name: `${connections}` }));
      if (connections === 1) response.destroy();
    });
    const leaving = new AbortController();
    const seen: string[] = [];
    for await (const { kind, name } of await files.watch("/", { signal: leaving.signal })) {
      seen.push(`${kind} ${name}`.trim());
      if (seen.length === 3) break;
    }
    expect(seen).toEqual(["create 1", "overflow", "create 2"]);
  });
});
