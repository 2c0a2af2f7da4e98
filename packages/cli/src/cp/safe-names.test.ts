import { expect, test } from "vitest";
import { partsOfName, showName, staysInside } from "./safe-names.js";

test("a name that would leave the target is refused", () => {
  expect(partsOfName("./a//b/")).toEqual(["a", "b"]);
  expect(partsOfName("./")).toEqual([]);
  for (const name of ["/etc/passwd", "../x", "a/../../x", "a/..", "a\0b"]) {
    expect(() => partsOfName(name)).toThrow("would leave the target directory");
  }
});

test("a link may point anywhere inside, and nowhere else", () => {
  expect(staysInside("b", 0)).toBe(true);
  expect(staysInside("./b/c", 0)).toBe(true);
  expect(staysInside("../b", 1)).toBe(true);
  expect(staysInside("..", 1)).toBe(true);
  for (const [target, depth] of [
    ["/etc/passwd", 3],
    ["..", 0],
    ["../../b", 1],
    ["", 0],
    ["a\0", 0],
  ] as const) {
    expect(staysInside(target, depth)).toBe(false);
  }
});

test("going up after a name is refused, because the name may be a link", () => {
  expect(staysInside("a/b/c/../../..", 0)).toBe(false);
  expect(staysInside("a/../b", 5)).toBe(false);
});

test("names are shown without control characters", () => {
  expect(showName("a\u001b[31mb")).toBe("a\uFFFD[31mb");
  expect(showName(Buffer.from("größe").toString("latin1"))).toBe("größe");
});
