import { expect, test } from "vitest";
import { plainText } from "./plain-text.js";

test.each([
  ["\u001b[31mred\u001b[0m", "red"],
  ["\u001b[2K\u001b[1Gdone", "done"],
  ["\u001b]0;a title\u0007text", "text"],
  ["\u001b]8;;http://a\u001b\\link\u001b]8;;\u001b\\", "link"],
  ["a\tb", "a    b"],
  ["bell\u0007 half\u001b", "bell\uFFFD half\uFFFD"],
  ["right\u202eto left", "right\uFFFDto left"],
])("%j becomes %j", (text, plain) => {
  expect(plainText(text)).toBe(plain);
});
