/** Connections from outside to a program inside. */
import { createHash, randomBytes } from "node:crypto";
import { once } from "node:events";
import { finished } from "node:stream/promises";
import type { Command, Sandbox } from "@holdfast/engine";
import { describe, expect, it } from "vitest";
import { NODE_INSIDE } from "../../helpers/inside.js";
import { ready } from "../../helpers/output-reader.js";
import { scaled } from "../../helpers/scale.js";
import { type OpenEngine, useSharedEngine } from "../../helpers/shared-engine.js";
import { MIB, SMALL_LIMITS } from "../../helpers/use-engine.js";

const PORT = 8080;

/** A server inside that does one thing with each connection. */
async function serve(sandbox: Sandbox, listenAt: string, onConnection: string): Promise<Command> {
  const script = `require("net").createServer({ allowHalfOpen: true }, (socket) => { socket.on("error", () => {}); ${onConnection} }).listen(${listenAt}, () => console.log("ready"))`;
  const command = await sandbox.start({ argv: ["node", "-e", script] });
  await ready(command);
  return command;
}

async function readAll(stream: AsyncIterable<unknown>): Promise<Buffer> {
  const chunks: Buffer[] = [];
  for await (const chunk of stream) chunks.push(chunk as Buffer);
  return Buffer.concat(chunks);
}

export function describeDial(open: OpenEngine): void {
  describe.skipIf(!NODE_INSIDE)("a connection to the inside (needs node below /usr)", () => {
    const use = useSharedEngine(open);
    const create = () => use.create({ limits: { ...SMALL_LIMITS, memoryBytes: 256 * MIB } });

    it.each([
      ["a port", `${PORT}, "127.0.0.1"`, { port: PORT }],
      ["a port of IPv6 only", `{ port: ${PORT}, host: "::1" }`, { port: PORT }],
      ["a unix socket", '"/tmp/server.sock"', { path: "/tmp/server.sock" }],
    ])("reaches %s, and an end of one side is not the other's", async (_what, listenAt, target) => {
      const sandbox = await create();
      await serve(
        sandbox,
        listenAt,
        'let all = ""; socket.on("data", (text) => { all += text; }); socket.on("end", () => socket.end("got " + all))',
      );
      const socket = await sandbox.dial(target);
      socket.write("hel");
      socket.end("lo");
      expect((await readAll(socket)).toString()).toBe("got hello");
    });

    it("is refused where nobody listens", async () => {
      const sandbox = await create();
      await expect(sandbox.dial({ port: 9 })).rejects.toMatchObject({ code: "connection_refused" });
      await expect(sandbox.dial({ path: "/tmp/nobody" })).rejects.toMatchObject({ code: "file_not_found" });
      await expect((async () => sandbox.dial({ port: 70_000 }))()).rejects.toMatchObject({ code: "invalid_argument" });
    });

    it("carries much both ways at once, in order", async () => {
      const bytes = scaled(100) * MIB;
      const sandbox = await create();
      await serve(sandbox, String(PORT), "socket.pipe(socket)");
      const socket = await sandbox.dial({ port: PORT });
      const [sent, received] = [createHash("sha256"), createHash("sha256")];
      const block = randomBytes(256 * 1024);
      const writing = (async () => {
        for (let i = 0; i < bytes / block.length; i++) {
          block.writeUInt32LE(i, 0);
          const piece = Buffer.from(block);
          sent.update(piece);
          if (!socket.write(piece)) await once(socket, "drain");
        }
        socket.end();
      })();
      let count = 0;
      for await (const chunk of socket) {
        received.update(chunk as Buffer);
        count += (chunk as Buffer).length;
      }
      await writing;
      expect(count).toBe(bytes);
      expect(received.digest("hex")).toBe(sent.digest("hex"));
    });

    it("is one of many at once", async () => {
      const sandbox = await create();
      await serve(sandbox, String(PORT), "socket.pipe(socket)");
      const answers = await Promise.all(
        Array.from({ length: 20 }, async (_, i) => {
          const socket = await sandbox.dial({ port: PORT });
          socket.end(`hello ${i}`);
          return (await readAll(socket)).toString();
        }),
      );
      expect(answers).toEqual(Array.from({ length: 20 }, (_, i) => `hello ${i}`));
    });

    it("that nobody reads holds up only itself", async () => {
      const sandbox = await create();
      await serve(
        sandbox,
        String(PORT),
        'const more = () => { while (socket.write(Buffer.alloc(65536))); socket.once("drain", more); }; more()',
      );
      const idle = await sandbox.dial({ port: PORT });
      const busy = await sandbox.dial({ port: PORT });
      let count = 0;
      for await (const chunk of busy) {
        count += (chunk as Buffer).length;
        if (count > 4 * MIB) break;
      }
      expect(idle.readableLength).toBeLessThan(MIB);
      idle.destroy();
    });

    it("ends when the program inside does", async () => {
      const sandbox = await create();
      const server = await serve(sandbox, String(PORT), 'socket.write("x")');
      const socket = await sandbox.dial({ port: PORT });
      socket.on("error", () => {});
      await once(socket, "data");
      await server.cancel("the test", { graceMs: 0 });
      socket.resume();
      socket.end();
      await finished(socket, { writable: false }).catch(() => {});
      expect(socket.readableEnded || socket.destroyed).toBe(true);
    });

    it("ends with its sandbox, as an error and not as an end", async () => {
      const sandbox = await create();
      await serve(sandbox, String(PORT), 'socket.write("x")');
      const socket = await sandbox.dial({ port: PORT });
      const failed = once(socket, "error");
      await once(socket, "data");
      socket.resume();
      await sandbox.kill("the test");
      expect((await failed)[0]).toMatchObject({ name: "HoldfastError", code: "sandbox_ended" });
    });
  });
}
