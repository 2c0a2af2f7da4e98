import type { CommandEnding, OutputLine } from "@holdfast/protocol";
import { afterEach, describe, expect, test } from "vitest";
import { Sandbox } from "./sandbox.js";
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

const ENDING: CommandEnding = {
  cause: { kind: "out_of_memory", scope: "sandbox", limitBytes: 1, peakBytes: 1, kills: 1, victims: [] },
  incidents: [],
  exitCode: 137,
  usage: { memoryPeakBytes: 1, cpuMs: 1, wallMs: 1, pidsPeak: null, stdoutBytes: 0, stderrBytes: 0 },
  message: "Killed for memory.",
};
const STARTED = { type: "started", command: { id: 1, pid: 12, ending: null } };

function data(offset: number, text: string, stream: "stdout" | "stderr" = "stdout"): OutputLine {
  return { type: "data", stream, offset, base64: Buffer.from(text).toString("base64") };
}

async function useSandbox(answer: Answer): Promise<Sandbox> {
  return new Sandbox((await useHttpServer(answer)).transport, "i1");
}

describe("run", () => {
  test("gives what happened as a value, in one request", async () => {
    const requests: unknown[] = [];
    const sandbox = await useSandbox(async (request, response) => {
      requests.push([request.method, request.url, JSON.parse((await bodyOf(request)).toString())]);
      response.end(
        [STARTED, data(0, "out"), data(0, "err", "stderr"), { type: "ended", ending: ENDING }].map(line).join(""),
      );
    });
    const result = await sandbox.run("python3 big.py", { timeoutMs: 5000, cwd: "/tmp", limits: { pids: 4 } });
    expect(result).toEqual({
      ...ENDING,
      stdout: "out",
      stderr: "err",
      truncated: { stdout: false, stderr: false },
    });
    expect(requests).toEqual([
      [
        "POST",
        "/v1/sandboxes/i1/run",
        {
          argv: ["/bin/bash", "-l", "-c", "python3 big.py"],
          stdin: "closed",
          cwd: "/tmp",
          limits: { pids: 4, wallMs: 5000 },
        },
      ],
    ]);
  });

  test("goes on after the connection broke, with characters whole", async () => {
    const text = "größer 🦀";
    const bytes = Buffer.from(text);
    const sandbox = await useSandbox(async (request, response) => {
      if (request.method === "POST") {
        const half = { ...data(0, ""), base64: bytes.subarray(0, 3).toString("base64") };
        await flush(response, line(STARTED) + line(half));
        response.destroy();
        return;
      }
      expect(request.url).toBe("/v1/sandboxes/i1/commands/1/output?stdout=3&stderr=0");
      response.end(
        line({ ...data(3, ""), base64: bytes.subarray(3).toString("base64") }) +
          line({ type: "ended", ending: ENDING }),
      );
    });
    let told = "";
    const { stdout } = await sandbox.run(["cat"], {
      onStdout: async (part) => {
        await Promise.resolve();
        told += part;
      },
    });
    expect([stdout, told]).toEqual([text, text]);
  });

  test("keeps the end of a long output and says that it did", async () => {
    const sandbox = await useSandbox((_request, response) => {
      response.end([STARTED, data(0, "0123456789"), { type: "ended", ending: ENDING }].map(line).join(""));
    });
    const { stdout, truncated } = await sandbox.run("seq", { maxOutputBytes: 4 });
    expect([stdout, truncated.stdout]).toEqual(["6789", true]);
  });

  test("sends its input while the output comes", async () => {
    const input: string[] = [];
    let finish: () => void = () => {};
    const sandbox = await useSandbox(async (request, response) => {
      const body = (await bodyOf(request)).toString();
      if (request.url === "/v1/sandboxes/i1/run") {
        response.write(line(STARTED));
        finish = () => response.end(line({ type: "ended", ending: ENDING }));
        return;
      }
      input.push(`${request.url} ${body}`);
      response.writeHead(204).end();
      finish();
    });
    const stdin = new ReadableStream<Uint8Array>({
      start(controller) {
        controller.enqueue(new TextEncoder().encode("one "));
        controller.enqueue(new TextEncoder().encode("two"));
        controller.close();
      },
    });
    await sandbox.run("cat", { stdin });
    expect(input).toEqual(["/v1/sandboxes/i1/commands/1/stdin?close=1 one two"]);
  });

  test("ends the command when it is canceled", async () => {
    const leaving = new AbortController();
    const requests: string[] = [];
    const sandbox = await useSandbox((request, response) => {
      requests.push(`${request.method} ${request.url}`);
      if (request.method === "DELETE") sendJson(response, ENDING);
      else {
        response.write(line(STARTED));
        setTimeout(() => leaving.abort(), 20);
      }
    });
    await expect(sandbox.run("sleep 100", { signal: leaving.signal })).rejects.toMatchObject({ code: "canceled" });
    expect(requests).toEqual(["POST /v1/sandboxes/i1/run", "DELETE /v1/sandboxes/i1/commands/1"]);
  });

  test("says that it does not know when the connection broke at the start", async () => {
    const sandbox = await useSandbox((_request, response) => {
      response.end();
    });
    await expect(sandbox.run("true")).rejects.toMatchObject({
      code: "server_unreachable",
      hint: expect.stringContaining("may be running"),
    });
  });
});
