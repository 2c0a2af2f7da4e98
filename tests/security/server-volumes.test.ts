/** Volumes over the wire: whose they are, and when they go. */
import { readdirSync, readFileSync } from "node:fs";
import { request as httpRequest } from "node:http";
import { join } from "node:path";
import { setTimeout as sleep } from "node:timers/promises";
import { beforeAll, describe, expect, test } from "vitest";
import { exchange } from "../helpers/raw-http.js";
import { patienceMs } from "../helpers/scale.js";
import { MIB } from "../helpers/use-engine.js";
import { useServer } from "../helpers/use-server.js";
import { type Client, createClient, createKey, JSON_TYPE } from "./server-client.js";
import { contentUrl, entry, file, freshName, type TestVolume, volumeClient } from "./volume-client.js";

const server = useServer({ args: ["--key-requests-per-second", "none", "--volume-mb", "192"] });
const { content, createVolume, keepers, put, withVolume } = volumeClient(server);

let a: Client;
let b: Client;
beforeAll(() => {
  a = createClient(server, server.apiKey);
  b = createClient(server, createKey(server, "b").key);
});

describe("whose a volume is", () => {
  test("another key's volume is as one that there is not, by id and by name", async () => {
    const volume = await createVolume();
    const nobody = { volumeID: `v${"0".repeat(20)}`, name: "no-such-volume" };
    for (const [method, path] of [
      ["GET", (v: typeof nobody) => `/volumes/${v.volumeID}`],
      ["DELETE", (v: typeof nobody) => `/volumes/${v.volumeID}`],
      ["GET", (v: typeof nobody) => `/volumes/${v.name}`],
      ["DELETE", (v: typeof nobody) => `/volumes/${v.name}`],
    ] as const) {
      const plain = async (v: typeof nobody) => {
        const answer = await b.control({ method, target: path(v) });
        return `${answer.status} ${answer.text.replaceAll(v.volumeID, "ID").replaceAll(v.name, "NAME")}`;
      };
      expect(await plain(volume)).toBe(await plain(nobody));
      expect(await plain(volume)).toMatch(/^404 .*volume_not_found/);
    }
    expect((await b.control({ target: "/volumes" })).text).toBe("[]");
    for (const name of [volume.name, volume.volumeID]) {
      const made = await b.control({
        method: "POST",
        target: "/v2/sandboxes",
        headers: [JSON_TYPE],
        body: JSON.stringify({ templateID: "base", volumeMounts: [{ name, path: "/data" }] }),
      });
      expect([made.status, JSON.parse(made.text)]).toEqual([
        404,
        expect.objectContaining({ error_code: "volume_not_found", message: expect.stringContaining("[0].name") }),
      ]);
    }
    expect((await a.control({ target: `/volumes/${volume.volumeID}` })).status).toBe(200);
  });

  test("names are each key's own", async () => {
    const name = freshName();
    const [ofA, ofB] = [await createVolume(a, name), await createVolume(b, name)];
    expect(ofA.volumeID).not.toBe(ofB.volumeID);
    await put(ofA, "/whose", "a");
    await put(ofB, "/whose", "b");
    expect(await b.run(await withVolume(ofB, b), "cat /data/whose")).toBe("b");
    const twice = await a.control({
      method: "POST",
      target: "/volumes",
      headers: [JSON_TYPE],
      body: JSON.stringify({ name }),
    });
    expect(twice.status).toBe(409);
    const many = await Promise.all(
      Array.from({ length: 10 }, () =>
        a.control({ method: "POST", target: "/volumes", headers: [JSON_TYPE], body: `{"name":"${name}-many"}` }),
      ),
    );
    expect(many.map(({ status }) => status).sort()).toEqual([201, ...Array(9).fill(409)]);
    await a.control({ method: "DELETE", target: `/volumes/${name}-many` });
  });

  test("a token opens its own volume and nothing else, and nothing else opens it", async () => {
    const [ofA, otherOfA, ofB] = [await createVolume(), await createVolume(), await createVolume(b)];
    await put(ofA, "/file", "secret");
    const sandbox = await a.create();
    const wrong: Record<string, Record<string, string>> = {
      "no token": { Authorization: "" },
      "an empty one": { Authorization: "Bearer " },
      "another scheme": { Authorization: `Basic ${ofA.token}` },
      "half of it": { Authorization: `Bearer ${ofA.token.slice(0, 32)}` },
      "more than it": { Authorization: `Bearer ${ofA.token}0` },
      "the owner's other volume's": { Authorization: `Bearer ${otherOfA.token}` },
      "somebody else's volume's": { Authorization: `Bearer ${ofB.token}` },
      "a sandbox's": { Authorization: `Bearer ${sandbox.token}` },
      "the key": { Authorization: `Bearer ${a.key}` },
      "the key in its own header": { Authorization: "", "X-API-Key": a.key },
    };
    const requests: [string, string][] = [
      ["GET", entry("/file")],
      ["PATCH", entry("/file")],
      ["DELETE", entry("/file")],
      ["GET", "dir?path=/"],
      ["POST", "dir?path=/stolen"],
      ["GET", file("/file")],
      ["PUT", file("/file")],
    ];
    for (const [about, headers] of Object.entries(wrong)) {
      for (const [method, what] of requests) {
        const answer = await content(ofA, method, what, { headers, ...(method === "PUT" ? { body: "mine" } : {}) });
        expect([answer.status, answer.body.code], `${about}: ${method} ${what}`).toEqual([401, "unauthenticated"]);
        expect(answer.text).not.toContain(ofA.token);
      }
    }
    // Nor is it a key.
    const asKey = await exchange(server.port, {
      target: "/volumes",
      headers: [
        ["Host", "localhost"],
        ["Authorization", `Bearer ${ofA.token}`],
      ],
    });
    expect(asKey.status).toBe(401);
    expect((await content(ofA, "GET", file("/file"))).text).toBe("secret");
    expect((await content(ofA, "GET", "dir?path=/")).body).toHaveLength(1);
    await a.control({ method: "DELETE", target: `/sandboxes/${sandbox.id}` });
  });

  test("not even the operator's socket opens a content without its token", async () => {
    const volume = await createVolume();
    const status = await new Promise((resolve, reject) => {
      const options = { socketPath: server.socketPath, path: `/volumecontent/${volume.volumeID}/dir?path=/` };
      httpRequest(options, (response) => resolve(response.resume().statusCode))
        .on("error", reject)
        .end();
    });
    expect(status).toBe(401);
  });

  test("the token of a volume that is gone opens nothing, and says that it is gone", async () => {
    const volume = await createVolume();
    await put(volume, "/file", "x");
    await a.control({ method: "DELETE", target: `/volumes/${volume.volumeID}` });
    const answer = await content(volume, "GET", file("/file"));
    expect([answer.status, answer.body.code]).toEqual([404, "volume_not_found"]);
    expect((await content({ ...volume, token: "x" }, "GET", file("/file"))).status).toBe(401);
    expect(await keepers()).toEqual([]);
  });
});

describe("the removal of a volume", () => {
  const remove = (volume: TestVolume) => a.control({ method: "DELETE", target: `/volumes/${volume.volumeID}` });

  test("waits for no reader, and leaves nothing", async () => {
    const volume = await createVolume();
    await put(volume, "/file", Buffer.alloc(64 * MIB));
    const reading = await fetch(contentUrl(server, volume, file("/file")), {
      headers: { Authorization: `Bearer ${volume.token}` },
    });
    expect(await keepers()).toHaveLength(1);
    expect((await remove(volume)).status).toBe(204);
    await expect(reading.arrayBuffer()).rejects.toThrow();
    expect(await keepers()).toEqual([]);
    expect(readdirSync(join(server.stateDirectory, "pool/volumes"))).not.toContain(volume.volumeID);
    expect(readdirSync(join(server.stateDirectory, "server/volumes")).join()).not.toContain(volume.volumeID);
  });

  test("and creates at the same time: those that succeed have it, and then it stays", async () => {
    for (let round = 0; round < 6; round++) {
      const volume = await createVolume();
      const create = () =>
        a.control({
          method: "POST",
          target: "/v2/sandboxes",
          headers: [JSON_TYPE],
          body: JSON.stringify({ templateID: "base", volumeMounts: [{ name: volume.name, path: "/data" }] }),
        });
      const [removed, ...made] = await Promise.all(
        round % 2 === 0
          ? [remove(volume), create(), create()]
          : [sleep(round).then(() => remove(volume)), create(), create()],
      );
      const sandboxes = made.filter(({ status }) => status === 201);
      for (const answer of made) expect([201, 404], answer.text).toContain(answer.status);
      expect(removed?.status).toBe(sandboxes.length > 0 ? 409 : 204);
      for (const { text } of sandboxes) {
        const id = (JSON.parse(text) as { sandboxID: string }).sandboxID;
        expect(await a.run({ id }, "touch /data/file && echo well")).toBe("well\n");
        await a.control({ method: "DELETE", target: `/sandboxes/${id}` });
      }
    }
  });
});

describe("a server that is stopped or killed", () => {
  test("comes back with its volumes, their tokens and those who have them", {
    timeout: patienceMs(60_000),
  }, async () => {
    const volume = await createVolume();
    const running = await withVolume(volume);
    const stopped = await withVolume(volume);
    await put(volume, "/file", "kept");
    await a.control({
      method: "POST",
      target: `/sandboxes/${stopped.id}/pause`,
      headers: [JSON_TYPE],
      body: '{"memory":false}',
    });
    const [keeper] = await keepers();
    for (const how of ["stop", "kill"] as const) {
      if (how === "stop") await server.stop();
      else await server.kill("SIGKILL");
      await server.restart();
      // Gone with the server that made it.
      expect(server.sandboxDirectories()).not.toContain(keeper);
      expect((await content(volume, "GET", file("/file"))).text).toBe("kept");
      expect((await a.control({ method: "DELETE", target: `/volumes/${volume.volumeID}` })).status).toBe(409);
      expect(await a.run(running, "cat /data/file")).toBe("kept");
      expect((await a.control({ target: `/sandboxes/${running.id}` })).text).toContain(volume.name);
    }
    await a.control({ method: "POST", target: `/sandboxes/${stopped.id}/resume`, headers: [JSON_TYPE], body: "{}" });
    expect(await a.run(stopped, "cat /data/file")).toBe("kept");
    expect(server.log).not.toContain(volume.token);
    expect(readFileSync(join(server.stateDirectory, `server/volumes/${volume.volumeID}.json`), "utf8")).not.toContain(
      volume.token,
    );
  });

  test("has logged no fault of its own", () => {
    expect(server.log.split("\n").filter((line) => /"level":(50|60)/.test(line))).toEqual([]);
  });
});
