/** Templates on images of a registry that wants to know who asks. */
import { readdirSync, readFileSync, statSync } from "node:fs";
import { join } from "node:path";
import { Holdfast, Image } from "@holdfast/sdk";
import { E2B, Template as TemplateBuilder } from "e2b";
import { describe, expect, test } from "vitest";
import { TEMPLATE_DEFAULTS } from "../helpers/needs-host.js";
import { serve, startRegistry } from "../helpers/registry.js";
import { makeImage, makeLayer, skopeoPush, tinyLayer } from "../helpers/registry-images.js";
import { useServer } from "../helpers/use-server.js";
import { failure } from "./cell.js";

const PASSWORD = "pass-word-of-nobody-else";
const POOL_BYTES = 1024 ** 3;
const CREDENTIALS = { username: "me", password: PASSWORD };
const server = useServer({ args: ["--build-allow", '["127.0.0.0/8"]'] });
const clientOf = () => new E2B({ apiKey: server.apiKey, apiUrl: server.url, sandboxUrl: server.url });

async function startPrivateRegistry(content: string): Promise<string> {
  const registry = await startRegistry({ users: { me: PASSWORD } });
  const reference = `127.0.0.1:${registry.port}/team/app:1`;
  await skopeoPush(
    makeImage([tinyLayer(), makeLayer({ "app/said": content })]),
    reference,
    "--dest-creds",
    `me:${PASSWORD}`,
  );
  return reference;
}

function filesWithPassword(directory: string): string[] {
  return (
    readdirSync(directory, { recursive: true, withFileTypes: true })
      .filter((entry) => entry.isFile())
      .map((entry) => join(entry.parentPath, entry.name))
      // The pool is one large file, with nothing of ours in it.
      .filter((path) => statSync(path).size < POOL_BYTES && readFileSync(path).includes(PASSWORD))
  );
}

describe("an image of a private registry", () => {
  test("is what a template is built on, for whoever has its password", async () => {
    const reference = await startPrivateRegistry("of the private one\n");
    const { Template, Sandbox } = clientOf();
    const refused = await failure(Template.build(TemplateBuilder().fromImage(reference), "private", TEMPLATE_DEFAULTS));
    expect(refused.message).toMatch(/wants to know who asks|unauthorized|credentials/i);
    const wrong = { ...CREDENTIALS, password: "wrong-word" };
    const second = await failure(
      Template.build(TemplateBuilder().fromImage(reference, wrong), "private", TEMPLATE_DEFAULTS),
    );
    expect(second.message).not.toContain("wrong-word");
    await Template.build(TemplateBuilder().fromImage(reference, CREDENTIALS), "private", TEMPLATE_DEFAULTS);
    const sandbox = await Sandbox.create("private");
    expect(await sandbox.files.read("/app/said")).toBe("of the private one\n");
    await sandbox.kill();
    expect(filesWithPassword(server.stateDirectory)).toEqual([]);
    expect(server.log).not.toContain(PASSWORD);
  }, 60_000);

  test("is what our own client builds on, and no other registry hears the password", async () => {
    const reference = await startPrivateRegistry("for our own\n");
    const heard: (string | undefined)[] = [];
    const other = await serve((request, response) => {
      heard.push(request.headers.authorization);
      response.writeHead(401, { "www-authenticate": 'Basic realm="other"' }).end();
    });
    const holdfast = new Holdfast({ url: server.url, apiKey: server.apiKey });
    const registryAuths = { [reference.split("/")[0] ?? ""]: CREDENTIALS };
    const sandbox = await holdfast.sandboxes.create({ image: Image.from(reference), memoryMb: 128, registryAuths });
    expect((await sandbox.run(["/bin/cat", "/app/said"])).stdout).toBe("for our own\n");
    await sandbox.kill();
    const elsewhere = holdfast.images.build(Image.from(`127.0.0.1:${other.port}/team/app:1`), { registryAuths });
    await expect(elsewhere).rejects.toMatchObject({ code: "build_failed" });
    expect(new Set(heard)).toEqual(new Set([undefined]));
    expect(filesWithPassword(server.stateDirectory)).toEqual([]);
  }, 60_000);

  test("needs credentials that say what they are", async () => {
    const { body: promised } = await server.call<{ templateID: string; buildID: string }>("POST", "/v3/templates", {
      name: "wrong",
    });
    const path = `/v2/templates/${promised.templateID}/builds/${promised.buildID}`;
    const start = async (fromImageRegistry: unknown, fromImage: string | undefined = "localhost:1/app") =>
      server.call<{ message: string }>("POST", path, { fromImage, fromImageRegistry });
    expect((await start({ type: "gcp", serviceAccountJson: "no json" })).body.message).toBe(
      "fromImageRegistry.serviceAccountJson: expected JSON",
    );
    const aws = { type: "aws", awsAccessKeyId: "a", awsSecretAccessKey: "b", awsRegion: "c" };
    expect(await start(aws)).toMatchObject({ status: 501, body: { message: expect.stringContaining("AWS") } });
    expect((await start({ type: "registry", username: "u", password: "p" }, "")).body.message).toMatch(
      /^fromImageRegistry: .*only beside fromImage/,
    );
    expect((await start({ type: "ldap" })).body.message).toMatch(/^fromImageRegistry/);
  });
});
