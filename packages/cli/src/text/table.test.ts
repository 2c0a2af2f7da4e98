import { expect, test } from "vitest";
import { coloursFor } from "./colours.js";
import { formatTable, visibleWidth, wrapText } from "./table.js";

test("columns line up", () => {
  expect(
    formatTable([
      ["a", "long cell", "x"],
      ["bbb", "c", "y"],
    ]),
  ).toBe("a    long cell  x\nbbb  c          y\n");
});

test("colours do not count as width", () => {
  const { red } = coloursFor({ isTTY: true }, { TERM: "xterm" });
  expect(visibleWidth(red("abc"))).toBe(3);
  const [first, second] = formatTable([
    [red("ab"), "x"],
    ["abcd", "y"],
  ]).split("\n");
  expect(visibleWidth(first ?? "")).toBe(visibleWidth(second ?? ""));
});

test("the last column wraps below itself", () => {
  expect(formatTable([["name", "one two three four five six seven"]], { width: 30 })).toBe(
    "name  one two three four five\n      six seven\n",
  );
});

test("a word longer than the line stays whole", () => {
  expect(wrapText("see /a/very/long/path/indeed now", 10)).toEqual(["see", "/a/very/long/path/indeed", "now"]);
});

test("colours are for terminals, and not where NO_COLOR is set", () => {
  expect(coloursFor({ isTTY: false }, {}).red("x")).toBe("x");
  expect(coloursFor({ isTTY: true }, { NO_COLOR: "1" }).red("x")).toBe("x");
  expect(coloursFor({ isTTY: true }, { NO_COLOR: "" }).red("x")).not.toBe("x");
});
