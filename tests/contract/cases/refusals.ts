import { randomUUID } from "node:crypto";
import { expect } from "vitest";
import { type Cases, failure } from "../cell.js";

const WRONG_KEY = `e2b_${"0".repeat(40)}`;

export const refusalCases: Cases = {
  "a wrong key is an error of authentication": async ({ sandbox, client, sdk, server }) => {
    const options = { apiKey: WRONG_KEY };
    for (const call of [
      () => client.Sandbox.create(options),
      () => client.Sandbox.connect(sandbox.sandboxId, options),
      () => client.Sandbox.kill(sandbox.sandboxId, options),
      () => client.Sandbox.getInfo(sandbox.sandboxId, options),
      () => client.Sandbox.list(options).nextItems(),
    ]) {
      const error = await failure(call());
      expect(error).toBeInstanceOf(sdk.AuthenticationError);
      expect(error.message).not.toContain(server.apiKey);
    }
    expect(await sandbox.isRunning()).toBe(true);
  },

  "a wrong token opens no sandbox": async ({ sandbox, client, sdk }) => {
    const { envdVersion } = await sandbox.getInfo();
    for (const envdAccessToken of [undefined, "wrong"]) {
      const thief = new client.Sandbox({
        sandboxId: sandbox.sandboxId,
        sandboxDomain: sandbox.sandboxDomain,
        envdVersion,
        ...(envdAccessToken === undefined ? {} : { envdAccessToken }),
        // Statics resolve what is bound to the class; the constructor wants it by name.
        ...(client.Sandbox as unknown as { boundOpts: object }).boundOpts,
      });
      expect(await failure(thief.commands.run("true"))).toBeInstanceOf(sdk.AuthenticationError);
      expect(await failure(thief.commands.list())).toBeInstanceOf(sdk.AuthenticationError);
      expect(await failure(thief.files.list("/"))).toBeInstanceOf(sdk.AuthenticationError);
      expect(await failure(thief.files.read("/etc/passwd"))).toBeInstanceOf(sdk.AuthenticationError);
      expect(await failure(thief.files.write("/tmp/stolen", "x"))).toBeInstanceOf(sdk.AuthenticationError);
    }
    expect(await sandbox.files.exists("/tmp/stolen")).toBe(false);
  },

  "a template that there is not is not found": async ({ client, sdk }) => {
    const error = await failure(client.Sandbox.create("no-such-template"));
    expect(error).toBeInstanceOf(sdk.SandboxError);
    expect(error.message).toMatch(/^404: .*no-such-template/);
  },

  "a time to live that cannot be had is refused by name": async ({ client, sandbox, sdk }) => {
    for (const call of [
      () => client.Sandbox.create({ timeoutMs: 0 }),
      () => client.Sandbox.create({ timeoutMs: 400 * 24 * 3600 * 1000 }),
      () => sandbox.setTimeout(400 * 24 * 3600 * 1000),
    ]) {
      const error = await failure(call());
      expect(error).toBeInstanceOf(sdk.SandboxError);
      expect(error.message).toMatch(/^400: .*timeout/);
    }
  },

  "an MCP gateway that the template has not fails the create, and leaves nothing": async ({ client, sdk }) => {
    const metadata = { gateway: randomUUID() };
    // Which servers there are is the gateway's to know.
    const mcp = { nonesuch: {} } as object;
    const error = await failure(client.Sandbox.create("base", { timeoutMs: 60_000, metadata, mcp }));
    expect(error).toBeInstanceOf(sdk.SandboxError);
    expect(error.message).toContain("Failed to start MCP gateway");
    expect(await client.Sandbox.list({ query: { metadata } }).nextItems()).toEqual([]);
  },

  "what cannot be honoured is refused by name, not dropped": async ({ client }) => {
    const { Secret } = client;
    const calls: [() => Promise<unknown>, RegExp][] = [
      [() => Secret.create("name", "value"), /secret/i],
      [() => Secret.list().nextItems(), /secret/i],
    ];
    for (const [call, subject] of calls) {
      const error = await failure(call());
      expect(error.message).toMatch(/501|not implemented/i);
      expect(error.message).toMatch(subject);
    }
  },
};
