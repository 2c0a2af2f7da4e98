import { expect, test } from "vitest";
import { contentDisposition, mediaTypeOf } from "./file-headers.js";

test.each([
  ["a.txt", 'inline; filename="a.txt"'],
  ['a"b.txt', `inline; filename="a_b.txt"; filename*=UTF-8''a%22b.txt`],
  ["a\r\nX: 1", `inline; filename="a__X: 1"; filename*=UTF-8''a%0D%0AX%3A%201`],
  ["grüße (1).txt", `inline; filename="gr__e (1).txt"; filename*=UTF-8''gr%C3%BC%C3%9Fe%20%281%29.txt`],
])("%j is safe in a header", (name, header) => {
  expect(contentDisposition(name)).toBe(header);
});

test.each([
  ["a.PNG", "image/png"],
  ["notes.md", "text/markdown; charset=utf-8"],
  ["constructor", "application/octet-stream"],
  [".constructor", "application/octet-stream"],
  ["a.toString", "application/octet-stream"],
])("%s is %s", (name, type) => {
  expect(mediaTypeOf(name)).toBe(type);
});
