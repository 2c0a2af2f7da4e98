import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterEach, beforeEach, describe, expect, test } from "vitest";
import { findCredentials } from "./credentials.js";

let directory: string;
beforeEach(() => {
  directory = mkdtempSync(join(tmpdir(), "hf-credentials-"));
});
afterEach(() => rmSync(directory, { recursive: true, force: true }));

const base64 = (text: string) => Buffer.from(text).toString("base64");
function find(config: unknown, registry = "registry.example:5000") {
  writeFileSync(join(directory, "config.json"), typeof config === "string" ? config : JSON.stringify(config));
  return findCredentials(registry, { kind: "docker-config", directory });
}

describe("docker's config.json", () => {
  test("gives the entry of the registry and of no other", async () => {
    const config = {
      auths: { "registry.example": { auth: base64("no:no") }, "registry.example:5000": { auth: base64("me:a:b") } },
    };
    expect((await find(config)).credentials).toEqual({ kind: "password", username: "me", password: "a:b" });
    expect((await find(config, "registry.example:5001")).credentials).toBeNull();
    expect((await find(config, "evil.example")).credentials).toBeNull();
  });

  test("knows Docker Hub's old name and entries that are URLs", async () => {
    const config = { auths: { "https://index.docker.io/v1/": { auth: base64("me:pw") } } };
    expect((await find(config, "docker.io")).credentials).toMatchObject({ username: "me" });
    const url = { auths: { "https://registry.example:5000/v2/": { auth: base64("me:pw") } } };
    expect((await find(url)).credentials).toMatchObject({ username: "me" });
  });

  test("takes identity and registry tokens", async () => {
    expect((await find({ auths: { "registry.example:5000": { identitytoken: "t" } } })).credentials).toEqual({
      kind: "identity",
      token: "t",
    });
    expect((await find({ auths: { "registry.example:5000": { registrytoken: "t" } } })).credentials).toEqual({
      kind: "token",
      token: "t",
    });
  });

  test("runs no helper, and says so", async () => {
    const { credentials, note } = await find({ credsStore: "desktop", auths: { "registry.example:5000": {} } });
    expect(credentials).toBeNull();
    expect(note).toContain('the helper "desktop", and helpers are not run');
    const other = await find({ credHelpers: { "registry.example:5000": "ecr-login" } });
    expect(other.note).toContain("ecr-login");
  });

  test.each([
    "",
    "[]",
    "null",
    "{",
    '{"auths":[]}',
    '{"auths":{"registry.example:5000":7}}',
    '{"auths":{"registry.example:5000":{"auth":{}}}}',
    `{"auths":{"registry.example:5000":{"auth":"${base64("nocolon")}"}}}`,
    `{"auths":{"registry.example:5000":{"auth":"${base64("me:a\r\nX-Evil: 1")}"}}}`,
  ])("finds nothing in %s", async (text) => {
    expect((await find(text)).credentials).toBeNull();
  });

  test("need not be there", async () => {
    const found = await findCredentials("x.example", { kind: "docker-config", directory: join(directory, "nowhere") });
    expect(found.credentials).toBeNull();
  });
});

test("credentials given by the caller cannot smuggle in a header", async () => {
  for (const password of ["", "a\r\nX: y", "\0"])
    await expect(findCredentials("x", { kind: "password", username: "me", password })).rejects.toThrow(/password/);
  await expect(findCredentials("x", { kind: "password", username: "a:b", password: "x" })).rejects.toThrow(/username/);
  await expect(findCredentials("x", { kind: "token", token: "a\nb" })).rejects.toThrow(/token/);
});
