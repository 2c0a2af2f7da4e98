import { expect, test } from "vitest";
import { OutputTail } from "./output-tail.js";

const encode = (text: string) => new TextEncoder().encode(text);

test("an output that fits is whole", () => {
  const tail = new OutputTail(10);
  tail.add(encode("hello"));
  tail.add(encode("world"));
  expect([tail.text(), tail.truncated]).toEqual(["helloworld", false]);
});

test("of a long output the end is kept, however it comes", () => {
  const all = Array.from({ length: 5000 }, (_, i) => `line ${i}\n`).join("");
  for (const size of [1, 7, 64, 999, 100_000]) {
    const tail = new OutputTail(100);
    for (let start = 0; start < all.length; start += size) tail.add(encode(all.slice(start, start + size)));
    expect([tail.text(), tail.truncated]).toEqual([all.slice(-100), true]);
  }
});

test("a character whose beginning is missing is left out", () => {
  const tail = new OutputTail(5);
  tail.add(encode("aa🦀bb"));
  expect(tail.text()).toBe("bb");
});

test("a gap makes it incomplete", () => {
  const tail = new OutputTail(10);
  tail.gap();
  tail.add(encode("end"));
  expect([tail.text(), tail.truncated]).toEqual(["end", true]);
});

test("nothing is kept where nothing is wanted", () => {
  const tail = new OutputTail(0);
  tail.add(encode("hello"));
  expect([tail.text(), tail.truncated]).toEqual(["", true]);
});
