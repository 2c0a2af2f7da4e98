import type { BuildInfo, BuildLogLine, ImageInfo } from "@holdfast/protocol";
import { Image } from "@holdfast/recipe";
import { afterEach, describe, expect, test } from "vitest";
import { buildImage } from "./build.js";
import {
  type Answer,
  bodyOf,
  closeHttpServers,
  flush,
  line,
  sendJson,
  useHttpServer,
} from "./testing/use-http-server.js";

afterEach(closeHttpServers);

const IMAGE = { id: "img1", digest: "sha256:1" } as ImageInfo;
const image = Image.from("tiny").addFile("/greeting", "hello").env({ A: "1" });

function build(state: BuildInfo["state"], changes: Partial<BuildInfo> = {}): BuildInfo {
  return {
    id: "b1",
    state,
    digest: null,
    names: [],
    steps: [],
    createdAt: "",
    startedAt: null,
    endedAt: null,
    imageId: null,
    cached: false,
    error: null,
    cause: null,
    ...changes,
  };
}

const READY = build("ready", { imageId: "img1" });
const logLine = (seq: number): BuildLogLine => ({ seq, at: "", step: "1", stream: "stdout", text: `line ${seq}` });
const log = (seq: number): string => line({ type: "log", ...logLine(seq) });

interface Seen {
  readonly request: string;
  readonly body: string;
}

/** Answers what every build asks for; the log is the test's. Nothing is missing unless it says so. */
async function useBuilds(answerLog: Answer, missing: (digests: readonly string[]) => readonly string[] = () => []) {
  const seen: Seen[] = [];
  const { transport } = await useHttpServer(async (request, response) => {
    const body = (await bodyOf(request)).toString();
    const route = `${request.method} ${request.url}`;
    seen.push({ request: route, body });
    if (route === "POST /v1/images/blobs/missing") {
      const { digests } = JSON.parse(body) as { digests: string[] };
      sendJson(response, { missing: missing(digests) });
    } else if (route.startsWith("PUT /v1/images/blobs/")) response.writeHead(204).end();
    else if (route === "POST /v1/images/builds") sendJson(response, build("building"), 202);
    else if (route === "GET /v1/images/img1") sendJson(response, IMAGE);
    else if (route === "DELETE /v1/images/builds/b1") sendJson(response, build("canceled"));
    else await answerLog(request, response);
  });
  return { transport, seen, requests: () => seen.map(({ request }) => request) };
}

const readyAtOnce: Answer = (_request, response) => {
  response.end(line({ type: "ended", build: READY }));
};

describe("a build", () => {
  test("sends what the server lacks, and only that", async () => {
    const { blobs } = await image.resolve();
    const lacking = blobs[0]?.digest ?? "";
    const { transport, seen, requests } = await useBuilds(readyAtOnce, () => [lacking, "sha256:unasked"]);
    expect(await buildImage(transport, image)).toEqual(IMAGE);
    expect(requests()).toEqual([
      "POST /v1/images/blobs/missing",
      `PUT /v1/images/blobs/${lacking}`,
      "POST /v1/images/builds",
      "GET /v1/images/builds/b1/log?from=0",
      "GET /v1/images/img1",
    ]);
    expect(JSON.parse(seen[0]?.body ?? "")).toEqual({ digests: blobs.map(({ digest }) => digest) });
    expect(seen[1]?.body).toBe(await new Response(blobs[0]?.open()).text());
  });

  test("asks about no files where there are none", async () => {
    const { transport, requests } = await useBuilds(readyAtOnce);
    await buildImage(transport, Image.from("tiny"));
    expect(requests()[0]).toBe("POST /v1/images/builds");
  });

  test("says what it is to be called and what it gets, over what the image says", async () => {
    const { transport, seen } = await useBuilds(readyAtOnce);
    const declared = Image.from("tiny").builder({ memoryMb: 512, cpus: 1 });
    await buildImage(transport, declared, { name: ["a", "b:1"], builder: { memoryMb: 1024 }, forceFrom: 0 });
    const { recipe } = await declared.resolve();
    expect(JSON.parse(seen[0]?.body ?? "")).toEqual({
      recipe: JSON.parse(JSON.stringify(recipe)) as unknown,
      builder: { memoryMb: 1024, cpus: 1 },
      names: ["a", "b:1"],
      forceFrom: 0,
    });
    await buildImage(transport, declared, { name: "one", builder: { memoryMb: undefined } });
    expect(JSON.parse(seen.at(-3)?.body ?? "")).toMatchObject({ names: ["one"], builder: { memoryMb: 512, cpus: 1 } });
  });

  test("tells every line and every change of its steps", async () => {
    const { transport } = await useBuilds((_request, response) => {
      response.end(
        line({ type: "build", build: build("building") }) +
          log(0) +
          line({ type: "keepalive" }) +
          log(1) +
          line({ type: "ended", build: READY }),
      );
    });
    const lines: BuildLogLine[] = [];
    const states: string[] = [];
    const onBuild = ({ state }: BuildInfo): void => void states.push(state);
    await buildImage(transport, image, { onLog: (entry) => lines.push(entry), onBuild });
    expect(lines).toEqual([logLine(0), logLine(1)]);
    expect(states).toEqual(["building", "ready"]);
  });

  test("goes on after the last line when the connection breaks, in a line or between two", async () => {
    const asked: string[] = [];
    const { transport } = await useBuilds(async (request, response) => {
      asked.push(request.url ?? "");
      if (asked.length === 1) {
        await flush(response, log(0) + log(1) + log(2).slice(0, 9));
        response.destroy();
      } else if (asked.length === 2) response.end(log(2));
      else response.end(log(3) + line({ type: "ended", build: READY }));
    });
    const lines: number[] = [];
    await buildImage(transport, image, { onLog: ({ seq }) => lines.push(seq) });
    expect(lines).toEqual([0, 1, 2, 3]);
    expect(asked.map((url) => url.split("?")[1])).toEqual(["from=0", "from=2", "from=3"]);
  });

  test("that fails throws the step, the cause and the last lines", async () => {
    const error = {
      code: "build_failed",
      message: "step 2 failed",
      hint: "Give it more.",
      details: { step: "2", suggestedMemoryMb: 2048, tail: [logLine(7)] },
    };
    const { transport } = await useBuilds((_request, response) => {
      response.end(line({ type: "ended", build: { ...build("failed"), error } }));
    });
    await expect(buildImage(transport, image)).rejects.toMatchObject(error);
  });

  test("that somebody else cancels says so", async () => {
    const { transport } = await useBuilds((_request, response) => {
      response.end(line({ type: "ended", build: build("canceled") }));
    });
    await expect(buildImage(transport, image)).rejects.toMatchObject({ code: "canceled" });
  });

  test("whose log cannot be had is an error, not a wait", async () => {
    const { transport } = await useBuilds((_request, response) => {
      sendJson(response, { code: "build_not_found", message: "gone" }, 404);
    });
    await expect(buildImage(transport, image)).rejects.toMatchObject({ code: "build_not_found" });
    const { transport: other } = await useBuilds((_request, response) => {
      response.end(line({ type: "error", error: { code: "engine_fault", message: "no" } }));
    });
    await expect(buildImage(other, image)).rejects.toMatchObject({ code: "engine_fault", message: "no" });
  });

  test("is canceled on the server before the caller hears of it", async () => {
    const leaving = new AbortController();
    const { transport, requests } = await useBuilds(async (_request, response) => {
      await flush(response, log(0));
    });
    const building = buildImage(transport, image, { signal: leaving.signal, onLog: () => leaving.abort() });
    await expect(building).rejects.toMatchObject({ code: "canceled" });
    expect(requests().at(-1)).toBe("DELETE /v1/images/builds/b1");
  });

  test("that is refused leaves nothing to cancel", async () => {
    const { transport } = await useHttpServer((_request, response) => {
      sendJson(response, { code: "invalid_argument", message: "recipe: no" }, 400);
    });
    await expect(buildImage(transport, Image.from("tiny"))).rejects.toMatchObject({ code: "invalid_argument" });
  });
});
