import { expect, test } from "vitest";
import { OutputTail, TAIL_BYTES } from "./output-tail.js";

test("keeps the last bytes and no more", () => {
  const tail = new OutputTail();
  tail.add(0, Buffer.alloc(TAIL_BYTES, "a"));
  tail.add(TAIL_BYTES, Buffer.from("end"));
  expect(tail.bytes.length).toBe(TAIL_BYTES);
  expect(tail.bytes.toString()).toBe(`${"a".repeat(TAIL_BYTES - 3)}end`);
  expect(tail.end).toBe(TAIL_BYTES + 3);
});

test("ignores what it has seen, from a second reader", () => {
  const tail = new OutputTail();
  tail.add(0, Buffer.from("hello "));
  tail.add(0, Buffer.from("hello "));
  tail.add(3, Buffer.from("lo world"));
  expect(tail.bytes.toString()).toBe("hello world");
});

test("starts anew after a gap: what is not in one piece is no tail", () => {
  const tail = new OutputTail();
  tail.add(0, Buffer.from("old"));
  tail.add(100, Buffer.from("new"));
  expect(tail.bytes.toString()).toBe("new");
});

test("holds a copy, not the chunk it came in", () => {
  const tail = new OutputTail();
  const chunk = Buffer.alloc(1024 * 1024, "x");
  tail.add(0, chunk);
  chunk.fill("y");
  expect(tail.bytes.toString()).toBe("x".repeat(TAIL_BYTES));
});
