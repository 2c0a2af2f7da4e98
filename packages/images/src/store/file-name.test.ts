import fc from "fast-check";
import { expect, test } from "vitest";
import { fileNameOf } from "./file-name.js";

test("plain names stay readable", () => {
  expect(fileNameOf("app-1_x.y")).toBe("app-1_x.y");
  expect(fileNameOf("localhost:5000/app")).toBe("localhost%3a5000%2fapp");
  expect(fileNameOf("V1")).toBe("%561");
});

test("no text leads out of the directory, is hidden or too long", () => {
  fc.assert(
    fc.property(
      fc.oneof(fc.string({ unit: "binary", maxLength: 400 }), fc.constantFrom("", ".", "..", "/", "../x")),
      (text) => {
        expect(fileNameOf(text)).toMatch(/^[a-z0-9_%@-][a-z0-9_%@.-]{0,199}$/);
      },
    ),
  );
});

test("two texts never share a file, not even where case does not count", () => {
  const text = fc.string({ unit: fc.constantFrom("a", "A", ".", "/", "%", "@", "2", "f", "é"), maxLength: 90 });
  fc.assert(
    fc.property(text, text, (a, b) => {
      expect(fileNameOf(a).toLowerCase() === fileNameOf(b).toLowerCase()).toBe(a === b);
    }),
  );
});
