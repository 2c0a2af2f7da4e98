import { once } from "node:events";
import { readFileSync } from "node:fs";
import type { CommandHandle, Sandbox } from "e2b";
import { expect, onTestFinished } from "vitest";
import { issueAuthority } from "../../../packages/server/src/tls/issue.js";
import { type Cases, says, sha256 } from "../cell.js";

const WEB_SERVER = readFileSync(new URL("../fixtures/web-server.py", import.meta.url), "utf8");

/** The server puts the port in; to JavaScript it is nothing special. */
const MASKED_HOST = ["masked.example.com:$", "{PORT}"].join("");
const CHROME = "Mozilla/5.0 (X11; Linux x86_64) AppleWebKit/537.36 (KHTML, like Gecko) Chrome/140.0.0.0 Safari/537.36";

/** Until the end of the test. `certificate`: a file inside, and the server speaks TLS. */
async function serve(sandbox: Sandbox, port: number, address = "0.0.0.0", certificate = ""): Promise<CommandHandle> {
  await sandbox.files.write("/tmp/web-server.py", WEB_SERVER);
  const command = await sandbox.commands.run(`exec python3 /tmp/web-server.py ${address} ${port} ${certificate}`, {
    background: true,
    timeoutMs: 0,
  });
  onTestFinished(async () => {
    await command.kill().catch(() => {});
  });
  await says(command, "ready");
  return command;
}

interface Facts {
  readonly path: string;
  /** By lower-case name. */
  readonly headers: Record<string, string>;
}

export const hostCases: Cases = {
  "a host name is the port, the sandbox and the domain": {
    in: ({ way }) => way === "domain",
    run: async ({ sandbox, server }) => {
      expect(sandbox.getHost(3000)).toBe(`3000-${sandbox.sandboxId}.${server.domain}`);
    },
  },

  "a program inside is reached on its port, wherever it listens": async ({ sandbox, reach }) => {
    for (const [port, address] of [
      [8001, "0.0.0.0"],
      [8002, "127.0.0.1"],
    ] as const) {
      await serve(sandbox, port, address);
      const response = await reach(sandbox, port, "/a%20path/ü?q=1&r=%2F", { headers: { "X-Mine": "kept" } });
      expect(response.status).toBe(200);
      expect(response.headers.get("x-inside")).toBe("yes");
      const facts = (await response.json()) as Facts;
      expect(facts.path).toBe("/a%20path/%C3%BC?q=1&r=%2F");
      expect(facts.headers).toMatchObject({ "x-mine": "kept" });
      expect(await (await reach(sandbox, port, "/teapot")).json()).toBe("short and stout");
    }
  },

  "its secrets are not passed on to the program": async ({ sandbox, reach, server }) => {
    await serve(sandbox, 8003);
    const facts = (await (await reach(sandbox, 8003, "/")).json()) as Facts;
    expect(JSON.stringify(facts)).not.toContain(server.apiKey);
  },

  "a body goes through whole, both ways": async ({ sandbox, reach }) => {
    await serve(sandbox, 8004, "127.0.0.1");
    const body = Buffer.alloc(20 * 1024 * 1024, "0123456789abcdefghijk");
    const response = await reach(sandbox, 8004, "/", { method: "POST", body });
    expect(response.status).toBe(200);
    expect(sha256(new Uint8Array(await response.arrayBuffer()))).toBe(sha256(body));
  },

  "server-sent events arrive as they are sent": async ({ sandbox, reach }) => {
    await serve(sandbox, 8005);
    const response = await reach(sandbox, 8005, "/events", { headers: { Accept: "text/event-stream" } });
    expect(response.headers.get("content-type")).toBe("text/event-stream");
    const reader = (response.body as ReadableStream<Uint8Array>).pipeThrough(new TextDecoderStream()).getReader();
    expect((await reader.read()).value).toBe("data: first\n\n");
    await reach(sandbox, 8005, "/release");
    expect((await reader.read()).value).toBe("data: second\n\n");
    expect((await reader.read()).done).toBe(true);
  },

  "a WebSocket carries text and bytes, and its end": async ({ sandbox, openWebSocket }) => {
    await serve(sandbox, 8006, "127.0.0.1");
    const socket = openWebSocket(sandbox, 8006, "/socket");
    await once(socket, "open");
    socket.send("größe");
    expect(String((await once(socket, "message"))[0])).toBe("größe");
    const bytes = Buffer.alloc(100_000, "abc");
    socket.send(bytes);
    expect(((await once(socket, "message"))[0] as Buffer).equals(bytes)).toBe(true);
    socket.close(4001, "done");
    expect((await once(socket, "close"))[0]).toBe(4001);
  },

  "a WebSocket breaks when its sandbox is killed": async ({ create, openWebSocket }) => {
    const sandbox = await create();
    await serve(sandbox, 8007);
    const socket = openWebSocket(sandbox, 8007, "/socket");
    await once(socket, "open");
    const closed = once(socket, "close");
    await sandbox.kill();
    await closed;
  },

  "a closed port says so, to programs and to browsers": async ({ sandbox, reach }) => {
    const response = await reach(sandbox, 9999, "/");
    expect(response.status).toBe(502);
    expect(await response.json()).toMatchObject({
      sandboxId: sandbox.sandboxId,
      message: "The sandbox is running but port is not open",
      port: 9999,
      code: 502,
    });
    const page = await reach(sandbox, 9999, "/", {
      headers: {
        Accept: "text/html,application/xhtml+xml",
        "User-Agent": "Mozilla/5.0 (X11; Linux x86_64) Firefox/140.0",
      },
    });
    expect(page.status).toBe(502);
    expect(page.headers.get("content-type")).toMatch(/^text\/html/);
    const html = await page.text();
    expect(html).toMatch(/<html/i);
    expect(html).toContain("9999");
    // By its name alone, as E2B tells browsers from programs.
    const shown = await reach(sandbox, 9999, "/", { headers: { "User-Agent": CHROME } });
    expect(shown.status).toBe(502);
    expect(await shown.text()).toContain("<title>Closed Port Error</title>");
  },

  "a server that speaks TLS is reached on a port that is named so": {
    // The older one cannot name any.
    in: ({ version }) => version === "2.51",
    run: async ({ create, reach, openWebSocket }) => {
      const sandbox = await create({ network: { httpsPorts: [8443, 8444] } });
      const { certificate, key } = await issueAuthority("inside.test", Date.now());
      await sandbox.files.write("/tmp/both.pem", `${key}\n${certificate}`);
      await serve(sandbox, 8443, "127.0.0.1", "/tmp/both.pem");
      const body = Buffer.alloc(1024 * 1024, "abcdefghijk");
      const response = await reach(sandbox, 8443, "/", { method: "POST", body });
      expect(response.status).toBe(200);
      expect(sha256(new Uint8Array(await response.arrayBuffer()))).toBe(sha256(body));
      const socket = openWebSocket(sandbox, 8443, "/socket");
      await once(socket, "open");
      socket.send("through TLS");
      expect(String((await once(socket, "message"))[0])).toBe("through TLS");
      socket.terminate();
      expect((await sandbox.getInfo()).network?.httpsPorts).toEqual([8443, 8444]);

      await serve(sandbox, 8444);
      const plain = await reach(sandbox, 8444, "/");
      expect(plain.status).toBe(502);
      expect(await plain.json()).toMatchObject({ message: expect.stringContaining("does not speak TLS"), port: 8444 });
    },
  },

  "a program sees the host that it is to see": async ({ create, reach }) => {
    const sandbox = await create({ network: { maskRequestHost: MASKED_HOST } });
    await serve(sandbox, 8010);
    const facts = (await (await reach(sandbox, 8010, "/")).json()) as Facts;
    expect(facts.headers.host).toBe("masked.example.com:8010");
  },

  "a sandbox that has ended is not found behind its name": async ({ create, reach }) => {
    const sandbox = await create();
    await serve(sandbox, 8008);
    expect((await reach(sandbox, 8008, "/")).status).toBe(200);
    await sandbox.kill();
    const response = await reach(sandbox, 8008, "/");
    expect(response.status).toBe(502);
    expect(await response.json()).toMatchObject({
      sandboxId: sandbox.sandboxId,
      message: "The sandbox was not found",
      code: 502,
    });
  },

  "traffic needs the token where the public is shut out": async ({ create, reach, openWebSocket }) => {
    const sandbox = await create({ network: { allowPublicTraffic: false } });
    expect(sandbox.trafficAccessToken).toEqual(expect.any(String));
    await serve(sandbox, 8009);
    expect((await reach(sandbox, 8009, "/")).status).toBe(403);
    const header = "e2b-traffic-access-token";
    expect((await reach(sandbox, 8009, "/", { headers: { [header]: "wrong" } })).status).toBe(403);
    const token = String(sandbox.trafficAccessToken);
    const response = await reach(sandbox, 8009, "/", { headers: { [header]: token } });
    expect(response.status).toBe(200);
    expect(((await response.json()) as Facts).headers).not.toHaveProperty(header);
    const refused = openWebSocket(sandbox, 8009, "/socket");
    expect(String((await once(refused, "error"))[0])).toContain("403");
    const socket = openWebSocket(sandbox, 8009, "/socket", { [header]: token });
    await once(socket, "open");
    socket.terminate();
  },
};
