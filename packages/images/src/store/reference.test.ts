import fc from "fast-check";
import { describe, expect, test } from "vitest";
import { formatImageName, parseDigest, parseImageReference } from "./reference.js";

const HEX = "0123456789abcdef".repeat(4);

describe("parseImageReference", () => {
  test.each([
    ["app", { name: "app", tag: undefined }],
    ["app:1.2", { name: "app", tag: "1.2" }],
    ["team/app:1.2", { name: "team/app", tag: "1.2" }],
    ["localhost:5000/a/b", { name: "localhost:5000/a/b", tag: undefined }],
    ["localhost:5000/a/b:tag", { name: "localhost:5000/a/b", tag: "tag" }],
    ["registry.example.com/a:V1", { name: "registry.example.com/a", tag: "V1" }],
    ["[::1]:5000/a", { name: "[::1]:5000/a", tag: undefined }],
    ["debian_12.slim-x", { name: "debian_12.slim-x", tag: undefined }],
    // E2B's names and tags.
    ["_a-", { name: "_a-", tag: undefined }],
    ["a--b__c:.-_", { name: "a--b__c", tag: ".-_" }],
  ])("takes %s apart", (text, expected) => {
    expect(parseImageReference(text)).toEqual({ ...expected, digest: undefined });
  });

  test("takes a digest, with and without a tag", () => {
    expect(parseImageReference(`app@sha256:${HEX}`)).toEqual({ name: "app", tag: undefined, digest: `sha256:${HEX}` });
    expect(parseImageReference(`app:1@sha256:${HEX}`)).toEqual({ name: "app", tag: "1", digest: `sha256:${HEX}` });
  });

  test.each([
    "",
    ":x",
    "name:",
    "name:a:b",
    "/app",
    "app/",
    "a//b",
    "../etc/passwd",
    "a/../b",
    "App",
    "a b",
    "a\0b",
    "a\nb",
    "ä",
    "name@",
    "name@sha256:abc",
    `name@sha512:${HEX}`,
    `@sha256:${HEX}`,
    "a".repeat(256),
    `a:${"t".repeat(129)}`,
    "-.example.com/a",
    "a..b",
    ".",
    "..",
  ])("refuses %j and says what is allowed", (text) => {
    expect(() => parseImageReference(text)).toThrow(expect.objectContaining({ code: "invalid_argument" }));
  });

  test.each([undefined, null, 7, {}, ["app"]])("refuses %j, which is no text", (value) => {
    expect(() => parseImageReference(value)).toThrow(expect.objectContaining({ code: "invalid_argument" }));
  });

  test("shows only the beginning of what is far too long", () => {
    expect(() => parseImageReference("A".repeat(100_000))).toThrow(/^.{1,800}$/s);
  });

  test("every text is refused with invalid_argument or comes back the same", () => {
    fc.assert(
      fc.property(fc.string({ unit: "binary" }), (text) => {
        let parsed: ReturnType<typeof parseImageReference>;
        try {
          parsed = parseImageReference(text);
        } catch (error) {
          expect((error as { code: string }).code).toBe("invalid_argument");
          return;
        }
        const { name, tag, digest } = parsed;
        const named = tag === undefined ? name : formatImageName({ name, tag });
        expect(digest === undefined ? named : `${named}@${digest}`).toBe(text);
      }),
    );
  });
});

test("a digest is sha256 and 64 lower-case digits", () => {
  expect(parseDigest(`sha256:${HEX}`)).toBe(`sha256:${HEX}`);
  for (const bad of [HEX, `sha256:${HEX}0`, `sha256:${HEX.toUpperCase()}`, "sha256:../../x", 1, undefined]) {
    expect(() => parseDigest(bad)).toThrow(expect.objectContaining({ code: "invalid_argument" }));
  }
});
