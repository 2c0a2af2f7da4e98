import { HoldfastError } from "@holdfast/protocol";
import { describe, expect, test } from "vitest";
import { formatReference, isLoopback, parseReference, registryOrigin } from "./reference.js";

const DIGEST = `sha256:${"a".repeat(64)}`;

describe("parseReference", () => {
  test.each([
    ["debian", "docker.io/library/debian:latest"],
    ["debian:12", "docker.io/library/debian:12"],
    ["team/app", "docker.io/team/app:latest"],
    ["docker.io/debian", "docker.io/library/debian:latest"],
    ["index.docker.io/team/app:1", "docker.io/team/app:1"],
    ["localhost/app", "localhost/app:latest"],
    ["localhost:5000/a/b__c/d-e:v1.0", "localhost:5000/a/b__c/d-e:v1.0"],
    ["[::1]:5000/app", "[::1]:5000/app:latest"],
    ["Registry.Example/app", "registry.example/app:latest"],
    [`ghcr.io/o/r@${DIGEST}`, `ghcr.io/o/r@${DIGEST}`],
    [`ghcr.io/o/r:t@${DIGEST}`, `ghcr.io/o/r:t@${DIGEST}`],
  ])("reads %s as %s", (text, whole) => {
    expect(formatReference(parseReference(text))).toBe(whole);
    expect(parseReference(whole)).toEqual(parseReference(text));
  });

  test.each([
    "",
    "/",
    "Debian",
    "a//b",
    "a/../b",
    "app:",
    "app:-x",
    `app:${"t".repeat(129)}`,
    "app@sha256:abc",
    `app@sha512:${"a".repeat(128)}`,
    "host.example:99999/app",
    "host.example:/app",
    "ho st.example/app",
    "a___b",
    "app\n",
    "a".repeat(600),
    "x.example/".padEnd(300, "a"),
    "[::1/app",
    undefined,
    7,
    `${"a-".repeat(120)}!`,
  ])("refuses %j", (text) => {
    expect(() => parseReference(text)).toThrow(HoldfastError);
  });

  test("refuses a scheme and says to leave it out", () => {
    expect(() => parseReference("https://registry.example/app")).toThrow(/without a scheme/);
  });

  test("refuses credentials in the name without repeating them", () => {
    const error = (() => {
      try {
        parseReference("me:hunter2@registry.example/app");
      } catch (reason) {
        return reason as HoldfastError;
      }
      throw new Error("accepted");
    })();
    expect(error.code).toBe("invalid_argument");
    expect(error.toText()).toContain("--password-stdin");
    expect(JSON.stringify(error)).not.toContain("hunter2");
  });
});

describe("registryOrigin", () => {
  test.each([
    ["docker.io", undefined, "https://registry-1.docker.io"],
    ["registry.example", undefined, "https://registry.example"],
    ["registry.example:80", true, "http://registry.example"],
    ["localhost:5000", undefined, "http://localhost:5000"],
    ["127.9.0.1:5000", undefined, "http://127.9.0.1:5000"],
    ["[::1]:5000", undefined, "http://[::1]:5000"],
    ["localhost:5000", false, "https://localhost:5000"],
    ["localhost.example", undefined, "https://localhost.example"],
    ["10.0.0.1:5000", undefined, "https://10.0.0.1:5000"],
  ])("%s with plainHttp %s is %s", (registry, plainHttp, origin) => {
    expect(registryOrigin(registry, { plainHttp })).toBe(origin);
  });

  test("takes no other name for this machine", () => {
    expect(["127.evil.example", "localhost.", "::2", "1127.0.0.1", "0.0.0.0"].filter(isLoopback)).toEqual([]);
  });
});
