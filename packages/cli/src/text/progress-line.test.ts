import { expect, test } from "vitest";
import { bar, ProgressLine, TransferText } from "./progress-line.js";

test("a bar is as full as it is far", () => {
  expect(bar(0)).toBe(`[${".".repeat(24)}]   0 %`);
  expect(bar(0.5)).toBe(`[${"#".repeat(12)}${".".repeat(12)}]  50 %`);
  expect(bar(7)).toBe(`[${"#".repeat(24)}] 100 %`);
});

test("layers that go side by side are told as one", () => {
  const transfer = new TransferText(0);
  transfer.add({ phase: "download", what: "a", doneBytes: 1024, totalBytes: 2048 });
  transfer.add({ phase: "download", what: "b", doneBytes: 0, totalBytes: 2048 });
  transfer.add({ phase: "unpack", what: "a", doneBytes: 512, totalBytes: null });
  transfer.add({ phase: "download", what: "a", doneBytes: 2048, totalBytes: 2048 });
  expect(transfer.text(500)).toBe(`download ${bar(0.5)} of 4 KiB  unpack 512 B`);
  expect(transfer.text(2000)).toContain("unpack 512 B, 256 B/s");
});

test("a line is written over on a terminal, never wider than it, and nowhere else", () => {
  const written: string[] = [];
  const line = new ProgressLine({ isTTY: true, columns: 10, write: (text) => written.push(text) });
  line.show("a text that is too long");
  line.clear();
  expect(written).toEqual(["\r\u001b[Ka text t…", "\r\u001b[K"]);
  const none = new ProgressLine({ write: (text) => written.push(text) });
  none.show("x");
  none.clear();
  expect(written).toHaveLength(2);
});
