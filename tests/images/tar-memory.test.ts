/** What holdfast-tar keeps until its end is bounded, however small the archive was that it came in. */
import { spawn } from "node:child_process";
import { readFileSync, rmSync } from "node:fs";
import { expect, test } from "vitest";
import { TAR_PROGRAM } from "../helpers/registry-images.js";
import { patienceMs } from "../helpers/scale.js";
import { temporaryDirectory } from "../helpers/use-images.js";

const MIB = 1024 * 1024;
const BLOCK = 512;

function header(type: string, size: number): Buffer {
  const block = Buffer.alloc(BLOCK);
  block.write("x", 0);
  block.write("0000755\0", 100);
  block.write("0000000\0", 108);
  block.write("0000000\0", 116);
  block.write(`${size.toString(8).padStart(11, "0")}\0`, 124);
  block.write("00000000000\0", 136);
  block.write("        ", 148);
  block.write(type, 156);
  block.write("ustar\x0000", 257, "latin1");
  const sum = block.reduce((total, byte) => total + byte, 0);
  block.write(`${sum.toString(8).padStart(6, "0")}\0 `, 148, "latin1");
  return block;
}

/** One directory of the longest name there is, as often as wanted. */
function longDirectory(): Buffer {
  const path = Array.from({ length: 16 }, () => "d".repeat(250)).join("/");
  const rest = ` path=${path}\n`;
  const record = Buffer.from(`${rest.length + 4}${rest}`);
  const padding = Buffer.alloc((BLOCK - (record.length % BLOCK)) % BLOCK);
  return Buffer.concat([header("x", record.length), record, padding, header("5", 0)]);
}

test("a million directories of long names are refused before they take the host's memory", {
  timeout: patienceMs(120_000),
}, async () => {
  const into = temporaryDirectory();
  const child = spawn(TAR_PROGRAM, ["unpack", "--into", into, "--max-entries", "5000000"], {
    stdio: ["pipe", "ignore", "pipe"],
  });
  let said = "";
  child.stderr.setEncoding("utf8").on("data", (text: string) => {
    said += text;
  });
  const exited = new Promise<number | null>((resolve) => child.once("exit", resolve));
  let hasExited = false;
  void exited.then(() => {
    hasExited = true;
  });
  child.stdin.on("error", () => undefined);
  const many = Buffer.concat(Array.from({ length: 200 }, longDirectory));
  let peakBytes = 0;
  for (let sent = 0; sent < 1_000_000 && !hasExited; sent += 200) {
    await new Promise<void>((resolve) => {
      child.stdin.write(many, () => resolve());
      void exited.then(() => resolve());
    });
    if (sent % 10_000 > 0 || hasExited) continue;
    const status = readFileSync(`/proc/${child.pid}/status`, "utf8");
    peakBytes = Math.max(peakBytes, Number(/^VmHWM:\s+(\d+) kB$/m.exec(status)?.[1] ?? 0) * 1024);
    if (peakBytes > 1024 * MIB) child.kill("SIGKILL");
  }
  child.stdin.end();
  expect(await exited).toBe(1);
  expect(JSON.parse(said)).toMatchObject({ code: "too_large" });
  expect(peakBytes).toBeLessThan(640 * MIB);
  rmSync(into, { recursive: true, force: true });
});
