import type { ServerResponse } from "node:http";
import type { CommandEnding, CommandInfo, OutputLine } from "@holdfast/protocol";
import { afterEach, describe, expect, test } from "vitest";
import { Command } from "./command.js";
import type { OutputItem } from "./output.js";
import { closeHttpServers, flush, line, sendJson, useHttpServer } from "./testing/use-http-server.js";

afterEach(closeHttpServers);

const ENDING: CommandEnding = {
  cause: { kind: "exited", code: 3 },
  incidents: [],
  exitCode: 3,
  usage: { memoryPeakBytes: 1, cpuMs: 1, wallMs: 1, pidsPeak: null, stdoutBytes: 10, stderrBytes: 0 },
  message: "Exited with code 3.",
};
const INFO = { id: 4, pid: 40, ending: null } as CommandInfo;

function data(stream: "stdout" | "stderr", offset: number, bytes: Uint8Array | string): OutputLine {
  return { type: "data", stream, offset, base64: Buffer.from(bytes as string).toString("base64") };
}

async function read(output: AsyncGenerator<OutputItem, CommandEnding>) {
  const items: OutputItem[] = [];
  for (;;) {
    const { done, value } = await output.next();
    if (done === true) return { items, ending: value };
    items.push(value);
  }
}

function textOf(items: readonly OutputItem[], stream: "stdout" | "stderr"): string {
  const parts = items.flatMap((item) => (item.type === "data" && item.stream === stream ? [item.bytes] : []));
  return Buffer.concat(parts).toString();
}

describe("output", () => {
  test("loses and doubles nothing, wherever the connection is cut", async () => {
    const stdout = Array.from({ length: 400 }, (_, i) => `größer ${i}\n`).join("");
    const stderr = Array.from({ length: 300 }, (_, i) => `🦀 ${i}\n`).join("");
    const all = { stdout: Buffer.from(stdout), stderr: Buffer.from(stderr) };
    let connections = 0;

    async function send(response: ServerResponse, from: { stdout: number; stderr: number }): Promise<void> {
      let text = "";
      for (const stream of ["stdout", "stderr"] as const) {
        for (let offset = from[stream]; offset < all[stream].length; offset += 61) {
          text += line(data(stream, offset, all[stream].subarray(offset, offset + 61)));
          if (offset % 5 === 0) text += line({ type: "keepalive" });
        }
      }
      text += line({ type: "ended", ending: ENDING });
      const bytes = Buffer.from(text);
      // Cut anywhere, within a line as well; in one way or the other. A large part at last, so that it ends.
      const limit = connections < 40 ? 100 + ((connections * 7919) % 1500) : bytes.length;
      await flush(response, bytes.subarray(0, limit));
      if (limit >= bytes.length || connections % 2 === 0) response.end();
      else response.destroy();
    }

    const { transport } = await useHttpServer(async (request, response) => {
      connections += 1;
      const query = new URL(request.url ?? "", "http://localhost").searchParams;
      await send(response, { stdout: Number(query.get("stdout")), stderr: Number(query.get("stderr")) });
    });
    const { items, ending } = await read(new Command(transport, "/sandboxes/i1", INFO).output());
    expect(textOf(items, "stdout")).toBe(stdout);
    expect(textOf(items, "stderr")).toBe(stderr);
    expect(items.every((item) => item.type === "data")).toBe(true);
    expect(ending).toEqual(ENDING);
    expect(connections).toBeGreaterThan(5);
  });

  test("begins at the given offsets and drops what it has", async () => {
    const asked: string[] = [];
    const { transport } = await useHttpServer((request, response) => {
      asked.push(request.url ?? "");
      response.end(
        line(data("stdout", 3, "3456789")) + line(data("stdout", 0, "01")) + line({ type: "ended", ending: ENDING }),
      );
    });
    const { items } = await read(new Command(transport, "/sandboxes/i1", INFO).output({ stdout: 5 }));
    expect(asked).toEqual(["/v1/sandboxes/i1/commands/4/output?stdout=5&stderr=0"]);
    expect(items.map((item) => [item.offset, item.type === "data" && Buffer.from(item.bytes).toString()])).toEqual([
      [5, "56789"],
    ]);
  });

  test("says what is missing, also where the server does not", async () => {
    const { transport } = await useHttpServer((_request, response) => {
      response.end(
        line({ type: "gap", stream: "stdout", offset: 0, length: 4 }) +
          line(data("stdout", 4, "ab")) +
          line(data("stdout", 8, "cd")) +
          line({ type: "ended", ending: ENDING }),
      );
    });
    const { items } = await read(new Command(transport, "/sandboxes/i1", INFO).output());
    expect(items.map((item) => (item.type === "gap" ? [item.offset, item.length] : item.offset))).toEqual([
      [0, 4],
      4,
      [6, 2],
      8,
    ]);
  });

  test("of a sandbox that ended meanwhile ends with what is known", async () => {
    let connections = 0;
    const { transport } = await useHttpServer(async (request, response) => {
      connections += 1;
      if (request.url?.includes("/output") !== true) sendJson(response, { ...INFO, ending: ENDING });
      else if (connections > 1) sendJson(response, { code: "sandbox_ended", message: "it has ended" }, 410);
      else {
        await flush(response, line(data("stdout", 0, "hello")));
        response.destroy();
      }
    });
    const { items, ending } = await read(new Command(transport, "/sandboxes/i1", INFO).output());
    expect(items.at(-1)).toEqual({ type: "gap", stream: "stdout", offset: 5, length: 5 });
    expect(ending).toEqual(ENDING);
  });

  test("of a sandbox that is paused stops and says so", async () => {
    const { transport } = await useHttpServer((_request, response) => {
      response.end(
        line(data("stdout", 0, "hello")) +
          line({ type: "error", error: { code: "sandbox_paused", message: "paused" } }),
      );
    });
    await expect(read(new Command(transport, "/sandboxes/i1", INFO).output())).rejects.toMatchObject({
      code: "sandbox_paused",
    });
  });

  test("gives up when the server stays away", async () => {
    const { transport } = await useHttpServer((_request, response) => {
      response.destroy();
    });
    Object.assign(transport.retry, { reconnectMs: 50 });
    await expect(read(new Command(transport, "/sandboxes/i1", INFO).output())).rejects.toMatchObject({
      code: "server_unreachable",
    });
  });

  test("leaving it closes the connection", async () => {
    let closed: () => void = () => {};
    const left = new Promise<void>((resolve) => {
      closed = resolve;
    });
    const { transport } = await useHttpServer((_request, response) => {
      response.on("close", closed);
      response.write(line(data("stdout", 0, "hello")));
    });
    for await (const item of new Command(transport, "/sandboxes/i1", INFO).output()) {
      expect(item.offset).toBe(0);
      break;
    }
    await left;
  });

  test("waiting for the end asks for no output", async () => {
    const asked: string[] = [];
    const { transport } = await useHttpServer((request, response) => {
      asked.push(request.url ?? "");
      if (asked.length === 1) response.end(line({ type: "keepalive" }));
      else response.end(line({ type: "ended", ending: ENDING }));
    });
    const command = new Command(transport, "/sandboxes/i1", INFO);
    expect(await command.ended).toEqual(ENDING);
    expect(await command.wait()).toEqual(ENDING);
    expect(asked).toEqual(Array(2).fill("/v1/sandboxes/i1/commands/4/output?data=0"));
  });
});
