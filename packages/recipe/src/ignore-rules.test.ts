import { describe, expect, test } from "vitest";
import { globPattern } from "./glob.js";
import { IgnoreRules } from "./ignore-rules.js";

describe("a wildcard", () => {
  test.each<[string, string[], string[]]>([
    ["*.txt", ["a.txt", ".txt", "a b.txt"], ["a/b.txt", "a.txt.gz", "atxt"]],
    ["a?c", ["abc", "a😀c"], ["ac", "a/c", "abbc"]],
    ["[a-c]x", ["ax", "cx"], ["dx", "x", "-x"]],
    ["[^a-c]x", ["dx"], ["ax", "/x"]],
    ["arr[[]0].txt", ["arr[0].txt"], ["arr0.txt"]],
    ["[a\\]]", ["a", "]"], ["\\"]],
    ["a\\*", ["a*"], ["ab"]],
    ["c++ (1) {x} ^$|.", ["c++ (1) {x} ^$|."], ["c"]],
    ["**", ["a"], ["a/b"]],
  ])("%s", (glob, matching, others) => {
    expect(matching.filter((path) => !globPattern(glob).test(path))).toEqual([]);
    expect(others.filter((path) => globPattern(glob).test(path))).toEqual([]);
  });

  test.each(["*a*a*a*a*a*a*a*a*a*a*a*a*a*a*a*a*b", "?*".repeat(60), "[^b]*".repeat(60)])(
    "is quick, whatever it is: %s",
    (glob) => {
      const began = performance.now();
      expect(globPattern(`${glob}x`).test("a".repeat(255))).toBe(false);
      expect(globPattern(`**/${glob}/**/${glob}x`, { doubleStar: true }).test("a/".repeat(2000))).toBe(false);
      expect(performance.now() - began).toBeLessThan(5000);
    },
  );

  test.each(["[", "[a", "[^", "[z-a]", "[a-", "[\\"])("that is not well formed is refused: %s", (glob) => {
    expect(() => globPattern(glob)).toThrow("not ended well");
  });
});

describe("an ignore file", () => {
  test.each<[string, string[], string[]]>([
    ["node_modules", ["node_modules", "node_modules/a/b"], ["a/node_modules", "node_modules.txt"]],
    ["/a/", ["a", "a/b"], ["b/a"]],
    ["*/temp*", ["a/temp", "a/temporary.txt", "a/temp/x"], ["temp", "a/b/temp"]],
    ["**/*.log", ["a.log", "a/b/c.log", "a.log/x"], ["a.logs"]],
    ["a/**", ["a/b", "a/b/c"], ["a", "b"]],
    ["a/**/z", ["a/z", "a/b/c/z", "a/b/z/y"], ["z", "a/zz"]],
    ["**", ["a", "a/b", ".x"], []],
    ["# a\n\n  b  \r\n./c/../d", ["b", "d"], ["a", "c", "# a"]],
    ["\uFEFFa", ["a"], []],
    ["*.md\n!README*.md\nREADME-secret.md", ["a.md", "README-secret.md"], ["README.md", "README-x.md"]],
    ["*\n!src/keep", ["src", "src/a", "b"], ["src/keep", "src/keep/deep"]],
    ["src\n!src/keep\nsrc/keep/no", ["src/a", "src/keep/no"], ["src/keep/yes"]],
    [".\n..\n/\n!", [], ["a"]],
    ["constructor\nc++(1)", ["constructor", "c++(1)"], ["toString", "c"]],
    ["Readme", ["Readme"], ["README"]],
  ])("%j", (text, ignored, kept) => {
    const rules = IgnoreRules.parse(text);
    expect(ignored.filter((path) => !rules.ignoresPath(path))).toEqual([]);
    expect(kept.filter((path) => rules.ignoresPath(path))).toEqual([]);
  });
});
