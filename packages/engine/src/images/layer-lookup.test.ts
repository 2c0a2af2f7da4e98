import { mkdirSync, mkdtempSync, rmSync, symlinkSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { dirname, join } from "node:path";
import { afterEach, beforeEach, describe, expect, it } from "vitest";
import { firstLink, lookUp, resolveDirectory } from "./layer-lookup.js";

let root: string;
beforeEach(() => {
  root = mkdtempSync(join(tmpdir(), "layer-lookup-"));
});
afterEach(() => rmSync(root, { recursive: true, force: true }));

/** A name that ends in / is a directory, one with -> a link, any other a file. */
function layer(name: string, entries: readonly string[]): string {
  const directory = join(root, name);
  mkdirSync(directory);
  for (const entry of entries) {
    const [path = "", target] = entry.split("->");
    mkdirSync(dirname(join(directory, path)), { recursive: true });
    if (target !== undefined) symlinkSync(target, join(directory, path));
    else if (path.endsWith("/")) mkdirSync(join(directory, path), { recursive: true });
    else writeFileSync(join(directory, path), "");
  }
  return directory;
}

describe("lookUp", () => {
  it("finds the uppermost, and what directories of several layers hold together", () => {
    const layers = [layer("a", ["d/x", "f->d"]), layer("b", ["d/y/", "d/x->y", "f/"])];
    expect(lookUp(layers, ["d"])).toEqual({ kind: "directory" });
    expect(lookUp(layers, ["d", "x"])).toEqual({ kind: "other" });
    expect(lookUp(layers, ["d", "y"])).toEqual({ kind: "directory" });
    expect(lookUp(layers, ["f"])).toEqual({ kind: "link", target: "d" });
    expect(lookUp(layers, ["f", "x"])).toEqual({ kind: "missing" });
    expect(lookUp(layers, ["nothing", "at", "all"])).toEqual({ kind: "missing" });
  });

  it("finds nothing below a file that hides a directory", () => {
    const layers = [layer("a", ["d"]), layer("b", ["d/x"])];
    expect(lookUp(layers, ["d", "x"])).toEqual({ kind: "missing" });
    expect(lookUp([...layers].reverse(), ["d", "x"])).toEqual({ kind: "other" });
  });
});

describe("resolveDirectory", () => {
  it.each([
    ["usr/bin", "usr/bin", []],
    ["a link beside it", "system/bin", ["usr->system", "system/bin/"]],
    ["an absolute link", "programs", ["usr/bin->/programs"]],
    ["links of links", "p/q", ["usr->/a/b", "a/b->../c", "c/bin->/p/./q"]],
    ["above the root", "bin", ["usr->../../.."]],
    ["a loop", undefined, ["usr->usr"]],
    ["a file", undefined, ["usr"]],
    ["a name that is too long", undefined, [`usr->${"x".repeat(256)}`]],
    ["a path that is too long", undefined, [`usr->${"xy/".repeat(400)}`]],
  ])("leads to %s", (_what, expected, entries) => {
    expect(resolveDirectory([layer("a", entries)], "/usr/bin")?.join("/")).toBe(expected);
  });
});

describe("firstLink", () => {
  it("says where the first one lies", () => {
    const layers = [layer("a", ["data/"]), layer("b", ["data/deep->/etc", "other->data"])];
    expect(firstLink(layers, "/data/deep/x")).toBe("/data/deep");
    expect(firstLink(layers, "/other")).toBe("/other");
    expect(firstLink(layers, "/data/new/x")).toBeUndefined();
  });
});
