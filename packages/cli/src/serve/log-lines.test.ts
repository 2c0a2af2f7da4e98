import { expect, test } from "vitest";
import { coloursFor } from "../text/colours.js";
import { formatLogLine } from "./log-lines.js";

const plain = coloursFor({ isTTY: false });
const time = new Date(2026, 0, 2, 3, 4, 5).getTime();

test("a line has the time, the level, the message and the facts", () => {
  const line = JSON.stringify({ level: 40, time, pid: 1, hostname: "h", sandbox: "i1", tookMs: 12, msg: "slow" });
  expect(formatLogLine(line, plain)).toBe("03:04:05 warn  slow sandbox=i1 tookMs=12\n");
});

test("an error is its message", () => {
  const line = JSON.stringify({
    level: 50,
    time,
    err: { type: "Error", message: "no such file", stack: "…" },
    msg: "x",
  });
  expect(formatLogLine(line, plain)).toBe('03:04:05 error x err="no such file"\n');
});

test("control characters of others do not reach the terminal", () => {
  const line = JSON.stringify({ level: 30, time, msg: "a\u001b[2Jb", tag: "x\ny" });
  expect(formatLogLine(line, plain)).toBe('03:04:05 info  a\uFFFD[2Jb tag="x\\ny"\n');
});

test("a line that is no JSON is shown as it is", () => {
  expect(formatLogLine("oops\n", plain)).toBe("oops\n");
});

test("long values are cut", () => {
  expect(formatLogLine(JSON.stringify({ level: 30, time, x: "y".repeat(500) }), plain).length).toBeLessThan(160);
});
