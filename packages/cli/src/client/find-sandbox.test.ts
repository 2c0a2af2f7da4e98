import { expect, test } from "vitest";
import { checkIdText, chooseByPrefix } from "./find-sandbox.js";

const ids = [
  { id: "iab1", status: "running" },
  { id: "iab2", status: "paused" },
  { id: "icd1", status: "ended" },
  { id: "icd2", status: "running" },
  { id: "ief1", status: "ended" },
];

test("a prefix that fits one is that one", () => {
  expect(chooseByPrefix("iab1", ids)).toBe("iab1");
  expect(chooseByPrefix("ief", ids)).toBe("ief1");
});

test("what is alive counts before what has ended", () => {
  expect(chooseByPrefix("icd", ids)).toBe("icd2");
});

test("a prefix that fits several is refused with their names", () => {
  expect(() => chooseByPrefix("iab", ids)).toThrow("SANDBOX: iab fits iab1, iab2");
});

test("a prefix that fits none is not found", () => {
  expect(() => chooseByPrefix("zz", ids)).toThrow("no sandbox has an id that begins with zz");
});

test("what can be no id never reaches the server", () => {
  for (const text of ["", "../x", "A", "a/b", "a?b=c", "a".repeat(33)])
    expect(() => checkIdText(text)).toThrow(/^SANDBOX/);
});
