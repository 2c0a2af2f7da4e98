/** Letting go of a command's output leaves everything else of it in hand. */
import type { Command, Sandbox } from "@holdfast/engine";
import { describe, expect, it } from "vitest";
import { OutputReader, ready } from "../../helpers/output-reader.js";
import { type OpenEngine, useSharedEngine } from "../../helpers/shared-engine.js";
import { collect, MIB, shell } from "../../helpers/use-engine.js";

const ECHO = ["bash", "-c", "echo ready; while read line; do echo got $line; done; echo end"];

function write(command: Command, text: string | Buffer): Promise<void> {
  return new Promise((resolve, reject) => {
    if (command.stdin === undefined) throw new Error("the command has no stdin");
    command.stdin.write(text, (error) => (error ? reject(error) : resolve()));
  });
}

export function describeDetached(open: OpenEngine): void {
  describe("a command whose output was let go", () => {
    const use = useSharedEngine(open);

    async function started(sandbox: Sandbox, argv: readonly string[] = ECHO): Promise<Command> {
      const command = await sandbox.start({ argv, stdin: "open" });
      await ready(command);
      return command;
    }

    it("still takes input, and its end", async () => {
      const sandbox = await use.create();
      const command = await started(sandbox);
      command.detach();
      await write(command, "one\n");
      await write(command, "two\n");
      command.stdin?.end("three\n");
      expect((await command.ended).cause).toEqual({ kind: "exited", code: 0 });
      expect((await collect(await sandbox.attach(command.id))).stdout).toBe(
        "ready\ngot one\ngot two\ngot three\nend\n",
      );
    });

    it("still takes signals, sizes and a cancel", async () => {
      const sandbox = await use.create();
      const command = await sandbox.start({
        argv: ["bash", "-c", "trap 'stty size >size; exit 5' USR1; echo ready; while :; do sleep 0.01; done"],
        pty: { columns: 80, rows: 24 },
      });
      await ready(command);
      command.detach();
      await command.resize({ columns: 100, rows: 30 });
      await command.signal("SIGUSR1");
      expect((await command.ended).cause).toEqual({ kind: "exited", code: 5 });
      expect((await shell(sandbox, "cat size")).stdout).toBe("30 100\n");
      const other = await started(sandbox);
      other.detach();
      expect((await other.cancel("the test", { graceMs: 0 })).cause).toEqual({ kind: "canceled", by: "the test" });
    });

    it("loses no byte of input that was on its way, in order", async () => {
      const sandbox = await use.create();
      const command = await started(sandbox, ["bash", "-c", "echo ready; sleep 0.3; exec sha256sum"]);
      const bytes = Buffer.alloc(2 * MIB, 0);
      for (let i = 0; i < bytes.length; i += 4) bytes.writeUInt32LE(i, i);
      // More than the guest and the pipe take: the rest waits for credit when the output is let go.
      command.stdin?.end(bytes);
      command.detach();
      expect((await command.ended).cause).toEqual({ kind: "exited", code: 0 });
      const { createHash } = await import("node:crypto");
      const sum = createHash("sha256").update(bytes).digest("hex");
      expect((await collect(await sandbox.attach(command.id))).stdout).toBe(`ready\n${sum}  -\n`);
    });

    it("an attachment that is let go is a handle like any other, and its end closes nothing", async () => {
      const sandbox = await use.create();
      const command = await sandbox.start({ argv: ECHO, stdin: "open" });
      const reader = new OutputReader(command);
      await reader.until("ready\n");
      const handles = await Promise.all([1, 2, 3].map(() => sandbox.attach(command.id)));
      for (const handle of handles) handle.detach();
      for (const [index, handle] of handles.entries()) await write(handle, `from ${index}\n`);
      await reader.until("got from 2\n");
      // One that was only looked at and abandoned.
      const glimpse = await sandbox.attach(command.id);
      for await (const _ of glimpse.output()) break;
      await write(command, "still open\n");
      await reader.until("got still open\n");
      handles[1]?.stdin?.end();
      expect(await reader.rest()).toContain("end\n");
      const endings = await Promise.all([command, glimpse, ...handles].map(({ ended }) => ended));
      for (const { cause } of endings) expect(cause).toEqual({ kind: "exited", code: 0 });
    });

    it("has no stdin if it was started without, or when it has ended", async () => {
      const sandbox = await use.create();
      const deaf = await sandbox.start({ argv: ["sleep", "1000"] });
      expect(deaf.stdin).toBeUndefined();
      expect((await sandbox.attach(deaf.id)).stdin).toBeUndefined();
      const command = await started(sandbox);
      command.detach();
      command.stdin?.end();
      await command.ended;
      expect((await sandbox.attach(command.id)).stdin).toBeUndefined();
    });

    it("is not held up by what others sent and it does not read", async () => {
      const sandbox = await use.create();
      const command = await started(sandbox, ["bash", "-c", "echo ready; sleep 0.5; exec wc -c"]);
      // Each could send 64 KiB at once; they get their turn when the command reads.
      const handles = await Promise.all(Array.from({ length: 20 }, () => sandbox.attach(command.id)));
      const writes = handles.map((handle) => {
        handle.detach();
        return write(handle, Buffer.alloc(200_000));
      });
      await Promise.all(writes);
      command.stdin?.end();
      expect((await command.ended).cause).toEqual({ kind: "exited", code: 0 });
      expect((await collect(await sandbox.attach(command.id))).stdout).toBe("ready\n4000000\n");
    });
  });
}
