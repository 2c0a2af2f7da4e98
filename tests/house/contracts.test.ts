import { createHash } from "node:crypto";
import { existsSync } from "node:fs";
import { join } from "node:path";
import { expect, test } from "vitest";
import { errorSpecs } from "../../packages/protocol/src/errors.js";
import * as guestWire from "../../packages/protocol/src/guest-wire.js";
import { readText, root } from "./tree.js";

/** `FRAME: { HELLO: 1 }` is `FRAME_HELLO = 1` in C. */
function numbersOfTypeScript(module: Readonly<Record<string, unknown>>): Map<string, number> {
  const numbers = new Map<string, number>();
  for (const [name, value] of Object.entries(module)) {
    if (typeof value === "number") numbers.set(name, value);
    if (typeof value !== "object" || value === null) continue;
    for (const [key, number] of Object.entries(value)) numbers.set(`${name}_${key.toUpperCase()}`, Number(number));
  }
  return numbers;
}

function numbersOfC(source: string): Map<string, number> {
  const pattern = /^(?:#define\s+([A-Z]\w*)\s+|\s*([A-Z]\w*)\s*=\s*)(0x[0-9a-f]+|\d+)\b/gim;
  return new Map(
    [...source.matchAll(pattern)].map(([, define, member, number]) => [define ?? member ?? "", Number(number)]),
  );
}

function sorted(numbers: ReadonlyMap<string, number>): [string, number][] {
  return [...numbers].sort(([a], [b]) => (a < b ? -1 : 1));
}

test("host and guest hold the same protocol numbers", () => {
  const inC = numbersOfC(readText("guest/src/wire.h"));
  expect(inC.size).toBeGreaterThan(100);
  expect(sorted(inC)).toEqual(sorted(numbersOfTypeScript(guestWire)));
});

/** A code is documented where it begins a heading or a table row: `## `code`` or `| `code` | …`. */
function documentedCodes(markdown: string): string[] {
  return [...markdown.matchAll(/^(?:#+\s*|\|\s*)`([a-z][a-z0-9_]*)`/gm)].map(([, code]) => code ?? "");
}

test("docs/errors.md explains every error code once, and no other", () => {
  expect(documentedCodes(readText("docs/errors.md")).sort()).toEqual(Object.keys(errorSpecs).sort());
});

test("every suite that SPECIFICATION.md names is there", () => {
  // "x" stands for any of them.
  const named = [
    ...readText("SPECIFICATION.md").matchAll(/`(contract|engine|security|server|sdk|e2e|guest)\/([a-z-]{2,})`/g),
  ];
  const missing = named.filter(([, suite, name]) => {
    const folder = { contract: "tests/engine/contract", sdk: "tests/contract", guest: "guest/tests" }[suite ?? ""];
    return !["ts", "test.ts", "test.mjs"].some((ending) =>
      existsSync(join(root, folder ?? `tests/${suite}`, `${name}.${ending}`)),
    );
  });
  expect(named.length).toBeGreaterThan(20);
  expect(missing.map(([text]) => text)).toEqual([]);
});

test.each(["process", "filesystem"])("what is generated from %s.proto was generated from what it says now", (name) => {
  const hash = createHash("sha256")
    .update(readText(`packages/server/proto/${name}/${name}.proto`))
    .digest("hex");
  expect(readText(`packages/server/src/envd/gen/${name}.ts`)).toContain(`${name}.proto ${hash}`);
});
