import { expect, test } from "vitest";
import { displayWidth, fit, justify } from "./fit.js";

test.each([
  ["plain", 5],
  ["日本", 4],
  ["e\u0301", 1],
  ["🙂", 2],
  ["", 0],
])("%j takes %d cells", (text, cells) => {
  expect(displayWidth(text)).toBe(cells);
});

test("what has room is left as it is, the rest is cut with an ellipsis", () => {
  expect(fit("make -j4", 8)).toBe("make -j4");
  expect(fit("make -j4", 7)).toBe("make -…");
  expect(fit("日本語", 5)).toBe("日本…");
  expect(fit("日本語", 4)).toBe("日…");
  expect(fit("abc", 1)).toBe("…");
  expect(fit("abc", 0)).toBe("");
});

test("the right side stays at the right, and whole", () => {
  expect(justify("step", "1.2s", 12)).toBe("step    1.2s");
  expect(justify("a step with a long name", "1.2s", 12)).toBe("a step… 1.2s");
});
