import { afterEach, describe, expect, test } from "vitest";
import { Holdfast } from "./holdfast.js";
import { Sandbox } from "./sandbox.js";
import { all, closeHttpServers, flush, quick, sendJson, useHttpServer } from "./testing/use-http-server.js";

afterEach(closeHttpServers);

const text = (seq: number) => `id: ${seq}\ndata: ${JSON.stringify({ seq, kind: "created" })}\n\n`;

describe("events", () => {
  test("come back with their cursor, each once, until the server says that there are no more", async () => {
    const asked: string[] = [];
    const { transport } = await useHttpServer(async (request, response) => {
      asked.push(request.url ?? "");
      const after = Number(new URL(request.url ?? "", "http://localhost").searchParams.get("after") ?? 0);
      response.writeHead(200, { "content-type": "text/event-stream" });
      if (after >= 6) {
        response.end("event: end\ndata: {}\n\n");
        return;
      }
      await flush(response, `: keepalive\n\n${text(after + 1)}${text(after + 2)}id: ${after + 3}\ndata: {"se`);
      response.destroy();
    });
    const seen = await all(new Sandbox(transport, "i1").events());
    expect(seen.map(({ seq }) => seq)).toEqual([1, 2, 3, 4, 5, 6]);
    expect(asked).toEqual(["", "?after=2", "?after=4", "?after=6"].map((query) => `/v1/sandboxes/i1/events${query}`));
  });

  test("that are new only miss nothing when the connection breaks before the first", async () => {
    const asked: string[] = [];
    const { transport } = await useHttpServer(async (request, response) => {
      asked.push(request.url ?? "");
      if (asked.length === 1) {
        await flush(response, "retry: 1000\nid: 41\n\n");
        response.destroy();
      } else response.end(`${text(42)}event: end\ndata: {}\n\n`);
    });
    const seen = await all(new Sandbox(transport, "i1").events({ tail: 0 }));
    expect(seen.map(({ seq }) => seq)).toEqual([42]);
    expect(asked.map((url) => url.split("?")[1])).toEqual(["tail=0", "after=41"]);
  });

  test("that are there are read page by page", async () => {
    const { url } = await useHttpServer((request, response) => {
      const query = new URL(request.url ?? "", "http://localhost").searchParams;
      expect(query.get("follow")).toBe("0");
      const after = Number(query.get("after") ?? 0);
      sendJson(response, { events: [{ seq: after + 1 }], nextAfter: after < 2 ? after + 1 : null });
    });
    const seen = await all(new Holdfast(quick({ url })).events({ follow: false }));
    expect(seen.map(({ seq }) => seq)).toEqual([1, 2, 3]);
  });
});
