import { describe, expect, test } from "vitest";
import { parseFileQuery } from "./query.js";

describe("parseFileQuery", () => {
  test("takes what it knows and leaves the rest", () => {
    expect(parseFileQuery("/files?path=%2Fa%20b%2Bc+d%C3%BC&username=user&x=%ff&flag")).toEqual({
      path: "/a b+c dü",
      username: "user",
    });
    expect(parseFileQuery("/files")).toEqual({});
    expect(parseFileQuery("/files?path")).toEqual({ path: "" });
    expect(parseFileQuery("/files?path=a=b&signature=v1_x%3D")).toEqual({ path: "a=b", signature: "v1_x=" });
  });

  test.each(["/files?path=%ff", "/files?path=%", "/files?path=a&path=b", "/files?username=%00"])(
    "refuses %s",
    (url) => {
      expect(() => parseFileQuery(url)).toThrow(/^(path|username): /);
    },
  );
});
