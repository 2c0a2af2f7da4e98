/** Images, builds, logs, snapshots, forks, templates and volumes are of the key that made them, and of nobody else. */
import { type BuildInfo, HoldfastError, Image, type ImageInfo, type Sandbox } from "@holdfast/sdk";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { operatorCall } from "../helpers/operator-call.js";
import { patienceMs } from "../helpers/scale.js";
import { type Key, OFFLINE, recipe, run, useImageServer } from "./image-server.js";

const use = useImageServer();
let image: ImageInfo;
let build: BuildInfo;
let sandbox: Sandbox;
let snapshot: ImageInfo;
let template: { readonly templateID: string; readonly buildID: string };
let volume: { readonly volumeID: string };

async function call<T>(key: Key, method: string, path: string, body?: unknown) {
  const answer = await fetch(`${use.server.url}${path}`, {
    method,
    headers: { "X-API-Key": key.secret, ...(body === undefined ? {} : { "Content-Type": "application/json" }) },
    ...(body === undefined ? {} : { body: JSON.stringify(body) }),
  });
  const text = await answer.text();
  const isJson = answer.headers.get("content-type")?.startsWith("application/json") === true;
  return { status: answer.status, text, body: (isJson && text !== "" ? JSON.parse(text) : undefined) as T };
}

beforeAll(async () => {
  const { sdk } = use.a;
  const declared = Image.from("tiny").builder(OFFLINE).runCommands("echo WORDS-OF-A | tee /words");
  image = await sdk.images.build(declared, { name: "app" });
  build = (await sdk.images.builds()).find(({ imageId }) => imageId === image.id) as BuildInfo;
  sandbox = await sdk.sandboxes.create({ image: "app", memoryMb: 64 });
  await sandbox.files.write("/root/words", "WORDS-OF-A");
  snapshot = (await sandbox.snapshot({ name: "kept" })).image;
  template = (await call<typeof template>(use.a, "POST", "/v3/templates", { name: "mine" })).body;
  volume = (await call<typeof volume>(use.a, "POST", "/volumes", { name: "data" })).body;
}, patienceMs(60_000));

afterAll(async () => {
  await sandbox?.kill();
  await call(use.a, "DELETE", `/volumes/${volume.volumeID}`);
});

const ownWords = () => [image.id, snapshot.id, image.digest, snapshot.digest, "app", "kept", image.digest.slice(7, 30)];

describe("another key", () => {
  it("finds no image by id, digest or name, whatever it wants of it", async () => {
    for (const reference of ownWords()) {
      const path = `/v1/images/${encodeURIComponent(reference)}`;
      const requests: [string, string, unknown?][] = [
        ["GET", path],
        ["DELETE", path],
        ["GET", `${path}/export`],
        ["POST", `${path}/names`, { name: "stolen" }],
        ["DELETE", `${path}/names?name=${encodeURIComponent(reference.replace(/^sha256:/, ""))}`],
        ["POST", `${path}/push`, { reference: "nowhere.invalid/app" }],
        ["POST", "/v1/sandboxes", { image: reference }],
        ["POST", "/v1/sandboxes", { template: reference }],
        ["POST", "/v2/sandboxes", { templateID: reference }],
        ["POST", "/v2/sandboxes", { templateID: `${reference}:default` }],
      ];
      for (const [method, target, body] of requests) {
        const answer = await call(use.b, method, target, body);
        expect([400, 404], `${method} ${target} ${answer.text}`).toContain(answer.status);
        expect(answer.text).not.toContain("WORDS-OF-A");
      }
    }
    expect((await use.a.sdk.images.get("app")).names).toEqual(["app:latest"]);
  });

  it("is shown none in any list", async () => {
    for (const path of ["/v1/images", "/v1/images/builds", "/snapshots", "/templates", "/v2/templates", "/volumes"]) {
      const { status, text } = await call(use.b, "GET", path);
      expect(status, path).toBe(200);
      for (const word of [image.id, snapshot.id, build.id, template.templateID, volume.volumeID, "WORDS-OF-A"]) {
        expect(text, path).not.toContain(word);
      }
    }
    const hint = await call(use.b, "POST", "/v1/sandboxes", { image: "no-such-image" });
    expect(hint.text).not.toMatch(/"app|kept|mine/);
  });

  it("can build on none, nor copy from one", async () => {
    for (const base of [
      { kind: "image", name: image.id },
      { kind: "image", name: image.digest },
      { kind: "snapshot", id: snapshot.id },
      { kind: "snapshot", id: "kept" },
    ]) {
      for (const given of [
        recipe([run("cat /words /root/words")], { base }),
        recipe([{ kind: "copy-from", source: base, paths: ["/words", "/root/words"], to: "/got/" }, run("cat /got/*")]),
      ]) {
        const result = await use.build(use.b, given).catch((error: unknown) => HoldfastError.from(error));
        if (result instanceof HoldfastError) continue;
        expect(result.build.state, JSON.stringify(base)).toBe("failed");
        expect(result.output.join()).not.toContain("WORDS-OF-A");
      }
    }
    const fromTemplate = (await call<typeof template>(use.b, "POST", "/v3/templates", { name: "theirs" })).body;
    const start = `/v2/templates/${fromTemplate.templateID}/builds/${fromTemplate.buildID}`;
    for (const name of ["mine", template.templateID, "kept", snapshot.id, `${snapshot.id}:default`, "app"]) {
      expect((await call(use.b, "POST", start, { fromTemplate: name })).status, name).toBe(404);
    }
  });

  it("can neither see, follow nor cancel a build", async () => {
    for (const [method, path] of [
      ["GET", `/v1/images/builds/${build.id}`],
      ["DELETE", `/v1/images/builds/${build.id}`],
      ["GET", `/v1/images/builds/${build.id}/log`],
      ["GET", `/templates/${template.templateID}/builds/${template.buildID}/status`],
      ["GET", `/templates/${template.templateID}/builds/${template.buildID}/logs`],
      ["GET", `/templates/mine/builds/${template.buildID}/status`],
      ["POST", `/v2/templates/${template.templateID}/builds/${template.buildID}`],
      ["GET", `/templates/${template.templateID}/files/${"0".repeat(64)}`],
      ["GET", `/templates/${template.templateID}/tags`],
      ["DELETE", `/templates/${template.templateID}`],
    ] as const) {
      const answer = await call(use.b, method, path, method === "POST" ? {} : undefined);
      expect(answer.status, `${method} ${path} ${answer.text}`).toBe(404);
      expect(answer.text).not.toContain("WORDS-OF-A");
    }
    // A build of its own by that id is asked for under a template of its own.
    const own = (await call<typeof template>(use.b, "POST", "/v3/templates", { name: "own" })).body;
    const crossed = await call(use.b, "GET", `/templates/${own.templateID}/builds/${template.buildID}/status`);
    expect(crossed.status).toBe(404);
  });

  it("can neither keep nor copy a sandbox, nor mount a volume", async () => {
    for (const path of [
      `/v1/sandboxes/${sandbox.id}/snapshots`,
      `/v1/sandboxes/${sandbox.id}/fork`,
      `/sandboxes/${sandbox.id}/snapshots`,
      `/sandboxes/${sandbox.id}/fork`,
    ]) {
      expect((await call(use.b, "POST", path, {})).status, path).toBe(404);
    }
    for (const name of ["data", volume.volumeID]) {
      const mounting = { templateID: "base", volumeMounts: [{ name, path: "/data" }] };
      expect((await call(use.b, "POST", "/v2/sandboxes", mounting)).status).toBe(404);
      expect((await call(use.b, "GET", `/volumes/${name}`)).status).toBe(404);
      expect((await call(use.b, "DELETE", `/volumes/${name}`)).status).toBe(404);
    }
  });

  it("has names, snapshots and templates of its own beside those of the same name", async () => {
    const own = await use.b.sdk.images.build(Image.from("tiny").builder(OFFLINE).runCommands("echo B > /words"), {
      name: ["app", "kept"],
    });
    expect((await use.a.sdk.images.get("app")).id).toBe(image.id);
    expect((await use.a.sdk.images.get("kept")).id).toBe(snapshot.id);
    expect((await use.b.sdk.images.get("app")).id).toBe(own.id);
    await use.b.sdk.images.remove(own.id);
    expect((await use.a.sdk.images.get("app")).id).toBe(image.id);
  });
});

describe("the operator", () => {
  it("has builds that keys cannot read, though they may use what came of them", async () => {
    const started = await operatorCall<BuildInfo>(use.server, "POST", "/v1/images/builds", {
      recipe: recipe([run("echo WORDS-OF-THE-OPERATOR; exit 3")]),
      builder: OFFLINE,
    });
    expect(started.status).toBe(202);
    const path = `/v1/images/builds/${started.body.id}`;
    const state = async () => (await operatorCall<BuildInfo>(use.server, "GET", path)).body.state;
    await expect.poll(state, { timeout: patienceMs(20_000) }).toBe("failed");
    expect((await call(use.b, "GET", path)).status).toBe(404);
    const listed = await call(use.b, "GET", "/v1/images/builds");
    expect(listed.text).not.toContain(started.body.id);
    expect(listed.text).not.toContain("WORDS-OF-THE-OPERATOR");
    const everybodys = await operatorCall(use.server, "GET", "/v1/images/builds");
    expect(everybodys.text).toContain(started.body.id);
    expect(everybodys.text).toContain(build.id);
  });

  it("shows nobody the files of a key's sandbox by taking a snapshot of it", async () => {
    const taken = await operatorCall<{ image: ImageInfo }>(
      use.server,
      "POST",
      `/v1/sandboxes/${sandbox.id}/snapshots`,
      {
        name: "by-the-operator",
      },
    );
    expect(taken.status, taken.text).toBe(201);
    const { id, shared, names } = taken.body.image;
    expect({ shared, names }).toEqual({ shared: false, names: ["by-the-operator:latest"] });
    for (const reference of [id, "by-the-operator"]) {
      expect((await call(use.b, "GET", `/v1/images/${reference}`)).status).toBe(404);
      expect((await call(use.b, "POST", "/v1/sandboxes", { image: reference })).status).toBe(404);
    }
    expect((await use.a.sdk.images.get("by-the-operator")).id).toBe(id);
    // The operator can make a sandbox of it; what is kept of that is still no image for everybody.
    const made = await operatorCall<{ id: string }>(use.server, "POST", "/v1/sandboxes", { image: id });
    expect(made.status, made.text).toBe(201);
    const again = await operatorCall<{ image: ImageInfo }>(
      use.server,
      "POST",
      `/v1/sandboxes/${made.body.id}/snapshots`,
      {},
    );
    expect(again.body.image.shared).toBe(false);
    await operatorCall(use.server, "DELETE", `/v1/sandboxes/${made.body.id}`);
    for (const image of [again.body.image.id, id]) await operatorCall(use.server, "DELETE", `/v1/images/${image}`);
  });

  it("has images that keys can use, and neither change nor remove", async () => {
    const { id } = await use.b.sdk.images.get("tiny");
    expect((await call(use.b, "DELETE", `/v1/images/${id}`)).status).toBe(403);
    expect((await call(use.b, "DELETE", `/v1/images/${id}/names?name=tiny`)).status).toBe(404);
    expect((await call(use.b, "POST", "/v1/images/prune", {})).status).toBe(403);
    expect((await use.a.sdk.images.get("tiny")).id).toBe(id);
  });
});
