// The server and the commands that speak to it, as their users start them; exec and cp have files of their own.
import { mkdtempSync, readdirSync, readFileSync } from "node:fs";
import { createServer } from "node:net";
import { join } from "node:path";
import type { HostInfo, Postmortem, SandboxEvent, SandboxInfo } from "@holdfast/protocol";
import { describe, expect, test } from "vitest";
import { ServerInUse } from "./use-server.js";

const server = new ServerInUse();

describe("serve", () => {
  test("prints one line when it is ready, and makes one key", async () => {
    expect(server.process.stdout.split("\n")).toHaveLength(2);
    expect(server.ready).toEqual({
      url: expect.stringMatching(/^http:\/\/127\.0\.0\.1:\d+$/) as string,
      socketPath: join(server.stateDirectory, "server/holdfast.sock"),
      domain: null,
      caPath: null,
      apiKey: expect.stringMatching(/^e2b_[0-9a-f]{40}$/) as string,
      pid: server.process.child.pid,
    });
    const response = await fetch(`${server.ready.url}/v1/host`, {
      headers: { "x-api-key": server.ready.apiKey ?? "" },
    });
    expect(response.status).toBe(200);
  });

  test("a second server in the same directory is refused", async () => {
    const result = await server.holdfast("serve", "--port", "0");
    expect(result.code).toBe(125);
    expect(result.stderr).toContain("holdfast: another server uses this state directory");
    expect(result.stderr).toContain("--state-dir");
    expect(result.stdout.toString()).toBe("");
  });

  test("a port that is taken is refused", async () => {
    const other = mkdtempSync(join(server.scratch, "state-"));
    const port = new URL(server.ready.url).port;
    const result = await server.holdfast("serve", "--state-dir", other, "--pool", "dir", "--port", port);
    expect(result.code).toBe(125);
    expect(result.stderr).toContain(`holdfast: cannot listen on 127.0.0.1:${port} (EADDRINUSE)`);
    expect(result.stderr).toContain("--port");
  });

  test("settings come from flags, and wrong ones are refused by name", async () => {
    const shown = await server.json<Record<string, { value: unknown; from: string }>>(
      "serve",
      "--print-config",
      "--sandbox-pids",
      "99",
    );
    expect(shown.sandboxPids).toMatchObject({ value: 99, from: "--sandbox-pids" });
    for (const [args, said] of [
      [["--port", "many"], "port: expected a port from 0 to 65535"],
      [["--host", "0.0.0.0"], "API keys would cross the network readable"],
      [["--tls", "self"], "a certificate of our own needs a name"],
      [["--bogus"], "unknown option '--bogus'"],
    ] as const) {
      const result = await server.holdfast("serve", ...args);
      expect({ code: result.code, stderr: result.stderr }).toEqual({
        code: 125,
        stderr: expect.stringContaining(said) as string,
      });
    }
  });
});

describe("keys", () => {
  test("are made, listed and revoked while the server runs", async () => {
    const made = await server.holdfast(
      "key",
      "create",
      "writer",
      "--sandboxes",
      "1",
      "--memory",
      "1g",
      "--rate",
      "none",
    );
    const secret = made.stdout.toString().trimEnd();
    expect(secret).toMatch(/^e2b_[0-9a-f]{40}$/);
    expect(made.stderr).toContain("shown only now");
    const listed = await server.ok("key", "list");
    expect(listed).toMatch(/^k[0-9a-f]{12} .* 1 +1G +- +writer$/m);
    expect(listed).not.toContain(secret);
    const keys = await server.json<{ id: string; name: string }[]>("key", "list", "--json");
    const id = keys.find(({ name }) => name === "writer")?.id ?? "";

    const remote = ["--url", server.ready.url, "--api-key", secret];
    const box = await server.ok("create", ...remote);
    expect((await server.holdfast("create", ...remote)).stderr).toContain("limit_reached");
    expect(await server.ok("ps", "-q", ...remote)).toBe(box);
    const other = ["--url", server.ready.url, "--api-key", server.ready.apiKey ?? ""];
    expect(await server.ok("ps", "-q", ...other)).toBe("");
    expect((await server.holdfast("exec", ...other, box, "--", "true")).stderr).toContain("sandbox_not_found");

    expect((await server.holdfast("key", "revoke", id)).stderr).toContain(`revoked key ${id}`);
    expect(await server.holdfast("key", "revoke", id)).toMatchObject({ code: 125 });
    const refused = await server.holdfast("ps", ...remote);
    expect({ code: refused.code, stderr: refused.stderr }).toEqual({
      code: 125,
      stderr: expect.stringContaining("[unauthenticated]") as string,
    });
  });

  test("are not there where no server has run", async () => {
    const result = await server.holdfast("key", "list", "--state-dir", server.scratch);
    expect(result.code).toBe(125);
    expect(result.stderr).toContain("no server has run there");
    expect(readdirSync(server.scratch)).toEqual([]);
  });
});

describe("no server", () => {
  test("at the socket, in one line with what to do", async () => {
    const result = await server.holdfast("ps", "--state-dir", server.scratch);
    expect(result.code).toBe(125);
    expect(result.stderr).toMatch(
      /^holdfast: no server answers at .*holdfast\.sock \[server_unreachable\]\n {2}Start one/,
    );
  });

  test("at an address, in one line with what to do", async () => {
    const listener = createServer().listen(0, "127.0.0.1");
    await new Promise((resolve) => listener.once("listening", resolve));
    const { port } = listener.address() as { port: number };
    await new Promise((resolve) => listener.close(resolve));
    const result = await server.holdfast("ps", "--url", `http://127.0.0.1:${port}`, "--api-key", "e2b_0");
    expect(result.code).toBe(125);
    expect(result.stderr).toMatch(/^holdfast: no server answers at http:\/\/127\.0\.0\.1:\d+ \[server_unreachable\]\n/);
  });

  test("a key is needed for an address", async () => {
    const result = await server.holdfast("ps", "--url", server.ready.url);
    expect(result.stderr).toContain("--url is given, but no API key");
  });
});

describe("create, ps and kill", () => {
  test("a sandbox is as it was asked for, and found by the beginning of its id", async () => {
    const box = await server.ok(
      "create",
      "--memory",
      "128m",
      "--cpus",
      "0.5",
      "--timeout",
      "10m",
      "--metadata",
      "agent=writer",
    );
    const [info] = await server.json<SandboxInfo[]>("ps", "--json");
    expect(info).toMatchObject({
      id: box,
      status: "running",
      limits: { memoryBytes: 128 * 1024 ** 2, cpuMillis: 500 },
      metadata: { agent: "writer" },
    });
    const table = await server.ok("ps");
    expect(table).toMatch(
      new RegExp(`^ID +TEMPLATE +STATUS .*\\n${box} +base +running +\\d+s +9m\\d+s +128M +agent=writer$`),
    );
    expect(await server.ok("exec", box.slice(0, 8), "--", "echo", "found")).toBe("found");
    expect(await server.ok("kill", box.slice(0, 8))).toBe(`${box}  Killed by the operator.`);
    expect(await server.ok("ps", "-q")).toBe("");
    expect(await server.ok("ps", "--all")).toContain("Killed by the operator.");
  });

  test("all are ended at once, and what is not there is told", async () => {
    await Promise.all([server.ok("create"), server.ok("create"), server.ok("create")]);
    expect((await server.ok("kill", "--all")).split("\n")).toHaveLength(3);
    const missing = await server.holdfast("kill", "zzz");
    expect(missing.code).toBe(1);
    expect(missing.stderr).toContain("no sandbox has an id that begins with zzz");
    expect(await server.holdfast("kill")).toMatchObject({ code: 125 });
    expect((await server.holdfast("kill", "../x")).stderr).toContain("SANDBOX: expected an id");
  });

  test("wrong limits are named by their flag", async () => {
    const result = await server.holdfast("create", "--memory", "1k");
    expect(result.code).toBe(125);
    expect(result.stderr).toContain("holdfast: --memory: expected");
  });
});

describe("pause and resume", () => {
  test("with its memory, and with its files only", async () => {
    const box = await server.ok("create", "--timeout", "10m");
    await server.ok("exec", box, "--detach", "--", "sh", "-c", "echo kept > file; sleep 300");
    expect((await server.holdfast("pause", box)).stderr).toContain("is paused with its memory");
    expect(await server.ok("ps")).toMatch(/ paused +\d+s +- /);
    const refused = await server.holdfast("exec", box, "--", "true");
    expect({ code: refused.code, stderr: refused.stderr }).toEqual({
      code: 125,
      stderr: expect.stringContaining("[sandbox_paused]") as string,
    });
    expect((await server.holdfast("resume", box, "--timeout", "20m")).stderr).toMatch(
      /runs \(boot 1\), for (20m|19m\d+s)/,
    );
    expect(await server.ok("exec", box, "--", "sh", "-c", "pgrep -x sleep > /dev/null && cat file")).toBe("kept");
    expect(await server.json<SandboxInfo>("pause", box, "--files-only", "--json")).toMatchObject({
      status: "paused",
      memoryKept: false,
    });
    expect(await server.json<SandboxInfo>("resume", box, "--json")).toMatchObject({ status: "running", boots: 2 });
    expect(await server.ok("exec", box, "--", "sh", "-c", "pgrep -x sleep; cat file")).toBe("kept");
  });
});

describe("looking on", () => {
  test("top and host show what is used beside what may be", async () => {
    const box = await server.ok("create", "--memory", "128m", "--timeout", "10m");
    await server.ok("exec", box, "--detach", "--", "sh", "-c", "while :; do :; done");
    const look = await server.json<{
      sandboxes: { id: string; usage: { cpuMillis: number; memoryLimitBytes: number } }[];
    }>("top", "--once", "--json");
    expect(look.sandboxes).toMatchObject([{ id: box, usage: { memoryLimitBytes: 128 * 1024 ** 2 } }]);
    expect(look.sandboxes[0]?.usage.cpuMillis).toBeGreaterThan(100);
    const table = await server.ok("top", "--once");
    expect(table).toMatch(new RegExp(`^${box} +running +\\d+%`, "m"));
    expect(
      Math.max(
        ...table
          .split("\n")
          .slice(2)
          .map((line) => line.length),
      ),
    ).toBeLessThanOrEqual(80);
    expect(await server.json<HostInfo>("host", "--json")).toMatchObject({ sandboxes: { running: 1, paused: 0 } });
    expect(await server.ok("host")).toContain("1 running, 0 paused");
  });

  test("events are shown from a number on, and as they happen", async () => {
    const box = await server.ok("create", "--timeout", "10m");
    const lines = (text: string) => text.split("\n").map((line) => JSON.parse(line) as SandboxEvent);
    const [created] = lines(await server.ok("events", box, "--json"));
    expect(created).toMatchObject({ sandboxId: box, kind: "created" });
    const following = server.start("events", "--follow", "--json", "--after", String(created?.seq));
    expect(await server.holdfast("exec", box, "--", "false")).toMatchObject({ code: 1 });
    await following.says("command_ended");
    following.child.kill("SIGINT");
    const { code, stdout } = await following.ended;
    expect(code).toBe(0);
    expect(lines(stdout.toString().trimEnd()).map(({ kind }) => kind)).toEqual(["command_started", "command_ended"]);
    expect(await server.ok("events", box)).toMatch(/ command_ended +Command 1: Exited with code 1\.$/m);
    expect(await server.holdfast("events", "--after", "x")).toMatchObject({ code: 125 });
  });

  test("a post-mortem has the cause, the numbers, the last output and the processes", async () => {
    const box = await server.ok("create", "--timeout", "10m", "--metadata", "agent=writer");
    await server.ok("exec", box, "--detach", "--", "sh", "-c", "echo the last words; exec sleep 300");
    await expect.poll(async () => server.ok("logs", box)).toContain("the last words");
    expect((await server.holdfast("postmortem", box)).code).toBe(125);
    await server.ok("kill", box);
    const text = await server.ok("postmortem", box);
    for (const part of [
      "Killed by the operator.",
      "was running",
      "| the last words",
      "sleep 300",
      "agent",
      "memory ",
    ]) {
      expect(text).toContain(part);
    }
    expect(await server.json<Postmortem>("postmortem", box, "--json")).toMatchObject({
      ending: { cause: { kind: "killed" } },
    });
    const logs = await server.holdfast("logs", box);
    expect(logs.stdout.toString()).toBe("the last words\n");
    expect(logs.stderr).toContain("the sandbox has ended");
  });
});

test("`holdfast run` loads nothing of the server, nor of its client", async () => {
  // What V8 has seen is what was loaded.
  const result = await server.shell(`NODE_V8_COVERAGE='${server.scratch}' holdfast run -- true`).ended;
  expect(result).toMatchObject({ code: 0, stderr: "" });
  const seen = readdirSync(server.scratch).flatMap((name) => {
    const { result } = JSON.parse(readFileSync(join(server.scratch, name), "utf8")) as { result: { url: string }[] };
    return result.map(({ url }) => url);
  });
  expect(seen.some((url) => url.endsWith("/cli/dist/run/run.js"))).toBe(true);
  const heavy =
    /fastify|undici|pino|kysely|libsql|\/zod\/|connectrpc|packages\/(server|sdk)\/|dist\/(serve|client|cp|keys)\//;
  expect(seen.filter((url) => url.startsWith("file:") && heavy.test(url))).toEqual([]);
});

test("a server that is stopped leaves sandboxes running, and the next one takes them over", async () => {
  const box = await server.ok("create", "--timeout", "10m");
  await server.ok("exec", box, "--detach", "--", "sh", "-c", "while :; do date +%s%N > /tmp/beat; sleep 0.1; done");
  const stopped = await server.stop("SIGINT");
  expect(stopped.code).toBe(0);
  expect(stopped.stderr).toContain("1 sandbox runs on; start again to take them over");
  expect((await server.holdfast("ps")).stderr).toContain("no server answers");

  const again = server.start("serve", "--port", "0");
  await again.says("the next start takes them over");
  expect(again.stdout).toContain("1 sandbox was taken over from an earlier run.");
  expect(again.stdout).toMatch(/^ {2}e2b_\S+ {2}default, made \d{4}-\d\d-\d\d$/m);
  expect(again.stdout).not.toContain(server.ready.apiKey);
  expect(await server.ok("exec", box, "--", "pgrep", "-c", "-f", "tmp/beat")).not.toBe("0");
  await server.ok("kill", box);
  again.child.kill("SIGTERM");
  expect(await again.ended).toMatchObject({ code: 0 });
  await server.serve();
  expect(server.ready.apiKey).toBeNull();
});
