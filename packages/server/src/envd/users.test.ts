import { HoldfastError } from "@holdfast/protocol";
import { describe, expect, test } from "vitest";
import { checkUserName, userFromAuthorization } from "./users.js";

const basic = (text: string) => `Basic ${Buffer.from(text).toString("base64")}`;

function errorOf(work: () => unknown): HoldfastError {
  try {
    work();
  } catch (error) {
    return HoldfastError.from(error);
  }
  throw new Error("nothing was thrown");
}

describe("the user of a request", () => {
  test.each([
    [basic("root:"), "root"],
    [basic("user:ignored:password"), "user"],
    [`basic ${Buffer.from("root:").toString("base64")}`, "root"],
    [basic(":"), undefined],
    [undefined, undefined],
    [null, undefined],
    ["", undefined],
    ["Bearer abc", undefined],
  ])("%s is %s", (header, user) => {
    expect(userFromAuthorization(header)).toBe(user);
  });

  test.each(["Basic", "Basic ???", "Basic cm9vdA=="])("%s is refused", (header) => {
    expect(errorOf(() => userFromAuthorization(header)).code).toBe("unauthenticated");
  });

  test.each(["0", "1000", "a\0b", "x".repeat(300)])("no user is called %j", (name) => {
    const error = errorOf(() => checkUserName(name));
    expect(error.code).toBe("user_not_found");
    expect(error.message).toMatch(/^invalid username: '/);
    expect(error.message.length).toBeLessThan(300);
  });
});
