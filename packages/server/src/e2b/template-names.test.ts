import { HoldfastError } from "@holdfast/protocol";
import { describe, expect, it } from "vitest";
import { isTemplateId, parseTag, parseTemplateName, readTemplateName, tagsOf } from "./template-names.js";

describe("the name of a template", () => {
  it.each([
    ["app", { name: "app", tag: undefined }],
    ["my_app-2", { name: "my_app-2", tag: undefined }],
    ["app:v1.2", { name: "app", tag: "v1.2" }],
    [" App:Latest ", { name: "app", tag: "latest" }],
  ])("is read from %j", (text, expected) => {
    expect(parseTemplateName(text, "name")).toEqual(expected);
    expect(readTemplateName(text)).toEqual(expected);
  });

  it.each([
    "",
    ":",
    ":v1",
    "app:",
    "app:a:b",
    "team/app",
    "a b",
    "a.b",
    "ä",
    "a\0",
    "../x",
    "x".repeat(129),
    "app:x y",
  ])("is not %j", (text) => {
    expect(() => parseTemplateName(text, "name")).toThrow(HoldfastError);
    expect(() => parseTemplateName(text, "name")).toThrow(/^name: expected /);
    expect(readTemplateName(text)).toBeUndefined();
  });

  it("is not an id", () => {
    expect(isTemplateId(`t${"a1".repeat(10)}`)).toBe(true);
    for (const text of ["t", `t${"a".repeat(19)}`, `t${"A".repeat(20)}`, `img${"a".repeat(20)}`]) {
      expect(isTemplateId(text)).toBe(false);
    }
  });
});

describe("the tags of a build", () => {
  it("are those of the name and those that are given, each once", () => {
    expect(tagsOf({ name: "app", tag: "v1" }, ["Stable", "v1"])).toEqual(["v1", "stable"]);
    expect(tagsOf({ name: "app", tag: undefined }, ["a"])).toEqual(["a"]);
    expect(tagsOf({ name: "app", tag: undefined }, [])).toEqual(["default"]);
  });

  it("are refused by their place", () => {
    expect(() => tagsOf({ name: "app", tag: undefined }, ["ok", "not ok"])).toThrow(/^tags\[1\]: expected a tag/);
    expect(() => parseTag("", "tag")).toThrow(/^tag: /);
  });
});
