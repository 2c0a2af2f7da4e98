// biome-ignore-all lint/suspicious/noTemplateCurlyInString: the dollar signs are what is tested.
import fc from "fast-check";
import { describe, expect, test } from "vitest";
import { expandVariables, expandWord, templateOf, textOf, UNKNOWN } from "./variables.js";

const values: Record<string, string> = { A: "one", EMPTY: "", Q: "a'b\"c", D: "$A" };
const lookup = (name: string): string | undefined => values[name];

function expand(word: string, escapeCharacter = "\\"): string {
  const result = textOf(expandWord(word, { escapeCharacter, lookup }));
  return "text" in result ? result.text : `unknown ${result.unknown}`;
}

describe("a word of a Dockerfile", () => {
  test.each([
    ["plain", "plain"],
    ["$A", "one"],
    ["${A}", "one"],
    ["$A/b", "one/b"],
    ["$Ab", ""],
    ["${A}b", "oneb"],
    ["$NOT", ""],
    ["a$", "a$"],
    ["$.", "$."],
    ["$1$@x", "x"],
    ["${A:-two}", "one"],
    ["${EMPTY:-two}", "two"],
    ["${EMPTY-two}", ""],
    ["${NOT:-two}", "two"],
    ["${NOT-two}", "two"],
    ["${NOT:-${A:-x}-$A}", "one-one"],
    ["${A:+two}", "two"],
    ["${EMPTY:+two}", ""],
    ["${EMPTY+two}", "two"],
    ["${NOT:+two}", ""],
    ["${NOT:-a\\}b}", "a}b"],
    ["\\$A", "$A"],
    ["\\\\$A", "\\one"],
    ["'$A'", "$A"],
    ["'\\'", "\\"],
    ['"$A"', "one"],
    ['"\\$A \\" \\\\ \\n"', '$A " \\ \\n'],
    ["a\\ b", "a b"],
    ["a'b'\"c\"d", "abcd"],
    ["$Q", "a'b\"c"],
    ["$D", "$A"],
    ["trailing\\", "trailing"],
  ])("%s is %s", (word, expected) => {
    expect(expand(word)).toBe(expected);
  });

  test("has another escape character if the file says so", () => {
    expect(expand('`$A C:\\x `` "`""', "`")).toBe('$A C:\\x ` "');
  });

  test.each([
    ["${A", 'a "}" is missing'],
    ["${A:-x", 'a "}" is missing'],
    ["${}", "has no name"],
    ["${A#x}", "${A#x…} is not supported"],
    ["${A%%x}", "is not supported"],
    ["${A:?x}", "${A:?…} is not supported"],
    ["${A/x/y}", "is not supported"],
    ["'a", "a single quote is not closed"],
    ['"a', "a double quote is not closed"],
    ["${A:-".repeat(40), "nested deeper than 32"],
  ])("%s is refused", (word, message) => {
    expect(() => expand(word)).toThrow(message);
  });
});

describe("what is not known yet", () => {
  const later = (name: string): string | undefined | typeof UNKNOWN => (name === "PATH" ? UNKNOWN : values[name]);
  const templateFor = (word: string): string => templateOf(expandWord(word, { escapeCharacter: "\\", lookup: later }));

  test.each([
    ["/opt/bin:$PATH", "/opt/bin:${PATH}"],
    ["$A:${PATH}", "one:${PATH}"],
    ["/x${PATH:+:$PATH}", "/x${PATH:+:${PATH}}"],
    ["${PATH:-$A}", "${PATH:-one}"],
    ["'$PATH'$PATH", "\\$PATH${PATH}"],
    ["$D}\\\\$PATH", "\\$A\\}\\\\${PATH}"],
  ])("%s is left as %s", (word, expected) => {
    expect(templateFor(word)).toBe(expected);
  });

  test("is filled in where it is known", () => {
    expect(
      expandVariables("/opt:${PATH} \\$5 \\} \\\\ \\n '$X'", (name) => (name === "PATH" ? "/bin" : undefined)),
    ).toBe("/opt:/bin $5 } \\ \\n ''");
  });

  test("comes to the same as knowing it at once", () => {
    const piece = fc.constantFrom(
      "$PATH",
      "${PATH:+x$PATH}",
      "${PATH-y}",
      "${PATH:-'}'}",
      "\\$",
      "'",
      '"',
      "a b",
      "\\\\",
      "}",
      "$A",
    );
    const value = fc.option(fc.constantFrom("", "/bin", "$A", "\\", "}"), { nil: undefined });
    fc.assert(
      fc.property(fc.array(piece), value, (pieces, path) => {
        const word = pieces.join("");
        const known = (name: string): string | undefined => (name === "PATH" ? path : values[name]);
        let expected: string;
        try {
          expected = expandWord(word, { escapeCharacter: "\\", lookup: known }).join("");
        } catch {
          // Quotes that are not closed are refused in both cases.
          expect(() => templateFor(word)).toThrow();
          return;
        }
        expect(expandVariables(templateFor(word), known)).toBe(expected);
      }),
    );
  });
});

test("a short template cannot ask for a huge text", () => {
  const long = "x".repeat(60_000);
  expect(() => expandVariables("${A}".repeat(10_000), () => long)).toThrow("longer than 65536 bytes");
});
