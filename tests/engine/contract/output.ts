/** Output is bytes with offsets: kept within bounds, read again from anywhere, and what is missing is said exactly. */
import { createHash } from "node:crypto";
import type { Command } from "@holdfast/engine";
import { describe, expect, it } from "vitest";
import { ready } from "../../helpers/output-reader.js";
import { type OpenEngine, useSharedEngine } from "../../helpers/shared-engine.js";
import { collect, MIB, run, SMALL_LIMITS, shell } from "../../helpers/use-engine.js";

/** Eight bytes a line, so that every offset tells which line must stand there. */
const LINE_BYTES = 8;
const numberedLines = (first: number, count: number): string =>
  Array.from({ length: count }, (_, i) => `${String(first + i).padStart(LINE_BYTES - 1, "0")}\n`).join("");
const printLines = (count: number): string[] => ["seq", "-f", "%07.0f", "0", String(count - 1)];

const HEAD_BYTES = 64 * 1024;

interface Piece {
  readonly kind: "data" | "gap";
  readonly offset: number;
  length: number;
  text: string;
}

/** The output of one stream with neighbouring data joined. */
async function pieces(command: Command): Promise<Piece[]> {
  const joined: Piece[] = [];
  for await (const event of command.output()) {
    const length = event.kind === "data" ? event.bytes.length : event.length;
    const text = event.kind === "data" ? event.bytes.toString("latin1") : "";
    const last = joined.at(-1);
    if (last !== undefined) expect(event.offset).toBe(last.offset + last.length);
    if (last?.kind === "data" && event.kind === "data") {
      last.length += length;
      last.text += text;
    } else {
      joined.push({ kind: event.kind, offset: event.offset, length, text });
    }
  }
  return joined;
}

export function describeOutput(open: OpenEngine): void {
  describe("output", () => {
    const use = useSharedEngine(open);

    it("is read again from any offset", async () => {
      const sandbox = await use.create();
      const command = await sandbox.start({ argv: printLines(1000) });
      await command.ended;
      const again = await collect(await sandbox.attach(command.id, { from: { stdout: 600 * LINE_BYTES, stderr: 0 } }));
      expect(again.stdout).toBe(numberedLines(600, 400));
      expect(again.cause).toEqual({ kind: "exited", code: 0 });
    });

    it("keeps head and tail of what is too much, and names the gap to the byte", async () => {
      const outputBytes = 128 * 1024;
      const sandbox = await use.create({ limits: { ...SMALL_LIMITS, outputBytes } });
      const lines = 100_000;
      const command = await sandbox.start({ argv: printLines(lines) });
      command.detach();
      await command.ended;
      const parts = await pieces(await sandbox.attach(command.id));
      const [head, gap, tail] = parts;
      expect(parts.map(({ kind }) => kind)).toEqual(["data", "gap", "data"]);
      expect(head?.text).toBe(numberedLines(0, HEAD_BYTES / LINE_BYTES));
      const total = lines * LINE_BYTES;
      expect((head?.length ?? 0) + (gap?.length ?? 0) + (tail?.length ?? 0)).toBe(total);
      expect(tail?.length).toBeLessThanOrEqual(outputBytes);
      expect(tail?.length).toBeGreaterThanOrEqual(outputBytes / 2);
      expect(tail?.text.endsWith(numberedLines(lines - 100, 100))).toBe(true);
    });

    it("keeps more in a spill file when asked", async () => {
      const sandbox = await use.create({ limits: { ...SMALL_LIMITS, outputBytes: 64 * 1024 } });
      const lines = 500_000;
      const command = await sandbox.start({ argv: printLines(lines), spillBytes: 8 * MIB });
      await command.ended;
      const from = 123_456;
      const again = await collect(
        await sandbox.attach(command.id, { from: { stdout: from * LINE_BYTES, stderr: 0 }, whenReaderIsSlow: "block" }),
      );
      expect(again.gaps).toBe(0);
      expect(again.stdout === numberedLines(from, lines - from)).toBe(true);
    });

    it("counts a spill file against the disk", async () => {
      const sandbox = await use.create({ limits: { ...SMALL_LIMITS, outputBytes: 64 * 1024 } });
      const before = (await sandbox.stats()).diskBytes ?? 0;
      const command = await sandbox.start({
        argv: ["head", "-c", String(16 * MIB), "/dev/urandom"],
        spillBytes: 16 * MIB,
      });
      await command.ended;
      await shell(sandbox, "sync");
      expect(((await sandbox.stats()).diskBytes ?? 0) - before).toBeGreaterThan(12 * MIB);
    });

    it("goes to two readers, whole to each", async () => {
      const sandbox = await use.create();
      const command = await sandbox.start({
        argv: ["bash", "-c", "echo ready; read line; seq 1 100000"],
        stdin: "open",
        whenReaderIsSlow: "block",
      });
      const second = await sandbox.attach(command.id, { from: { stdout: 0, stderr: 0 }, whenReaderIsSlow: "block" });
      command.stdin?.end("go\n");
      const results = await Promise.all([collect(command), collect(second)]);
      const [first] = results;
      expect(first.stdout.length).toBe(6 + 588_895);
      expect(results[1].stdout === first.stdout).toBe(true);
      expect(results.map(({ gaps }) => gaps)).toEqual([0, 0]);
    });

    it("comes live to a reader that attaches while the command runs", async () => {
      const sandbox = await use.create();
      const command = await sandbox.start({
        argv: ["bash", "-c", "echo one ready; read line; echo $line"],
        stdin: "open",
      });
      await ready(command);
      const late = await sandbox.attach(command.id, { from: { stdout: 4, stderr: 0 } });
      late.stdin?.end("two\n");
      expect((await collect(late)).stdout).toBe("ready\ntwo\n");
    });

    it("is not lost to a reader that let go", async () => {
      const sandbox = await use.create();
      const command = await sandbox.start({ argv: ["bash", "-c", "echo ready; read line; echo after"], stdin: "open" });
      await ready(command);
      command.detach();
      const back = await sandbox.attach(command.id);
      back.stdin?.end("go\n");
      expect((await collect(back)).stdout).toBe("ready\nafter\n");
    });

    it("has one reader for each handle", async () => {
      const sandbox = await use.create();
      const command = await sandbox.start({ argv: ["true"] });
      command.output();
      expect(() => command.output()).toThrow(expect.objectContaining({ code: "invalid_argument" }));
    });

    it("of a command nobody started is not found", async () => {
      const sandbox = await use.create();
      await expect(sandbox.attach(4711)).rejects.toMatchObject({ code: "command_not_found" });
    });

    it("from a place that lies ahead begins there", async () => {
      const sandbox = await use.create();
      const command = await sandbox.start({ argv: ["bash", "-c", "read line; printf 0123456789"], stdin: "open" });
      const ahead = await sandbox.attach(command.id, { from: { stdout: 5, stderr: 0 } });
      command.stdin?.end("go\n");
      expect((await collect(ahead)).stdout).toBe("56789");
    });

    it("of a slow reader blocks the command and loses nothing when told to", async () => {
      const sandbox = await use.create({ limits: { ...SMALL_LIMITS, outputBytes: 64 * 1024 } });
      const command = await sandbox.start({
        argv: ["bash", "-c", "seq 1 400000 | tee >(sha256sum >&2)"],
        whenReaderIsSlow: "block",
      });
      const hash = createHash("sha256");
      let stderr = "";
      for await (const event of command.output()) {
        expect(event.kind).toBe("data");
        if (event.kind !== "data") continue;
        if (event.stream === "stderr") stderr += event.bytes.toString();
        else hash.update(event.bytes);
        await new Promise((resolve) => setTimeout(resolve, 2));
      }
      expect(stderr.slice(0, 64)).toBe(hash.digest("hex"));
    });

    it("of one slow reader does not hold up another command", async () => {
      const sandbox = await use.create();
      const blocked = await sandbox.start({ argv: ["yes"], whenReaderIsSlow: "block" });
      expect((await run(sandbox, ["echo", "through"])).stdout).toBe("through\n");
      expect((await blocked.cancel("the test", { graceMs: 0 })).cause).toMatchObject({ kind: "canceled" });
    });
  });
}
