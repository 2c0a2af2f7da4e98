import { expect, test } from "vitest";
import { attributesFromHeaders, metadataOf } from "./metadata.js";

test("headers become attributes, and attributes metadata", () => {
  expect(attributesFromHeaders({ "x-metadata-author": "me", "x-metadata-": undefined, other: "x" })).toEqual({
    "user.e2b.author": "me",
  });
  const attributes = { "user.e2b.author": Buffer.from("me"), "user.other": Buffer.from("x") };
  expect(metadataOf({ attributes })).toEqual({ author: "me" });
  expect(metadataOf({ attributes: { "user.other": Buffer.from("x") } })).toBeUndefined();
});

test.each([
  [{ "x-metadata-": "x" }],
  [{ "x-metadata-a": "ü" }],
  [{ [`x-metadata-${"k".repeat(250)}`]: "x" }],
  [{ "x-metadata-a": "x".repeat(2048), "x-metadata-b": "x".repeat(2048) }],
])("what does not fit is refused by name", (headers) => {
  expect(() => attributesFromHeaders(headers)).toThrow(/^X-Metadata/);
});
