import { describe, expect, test } from "vitest";
import { parseChallenges } from "./challenge.js";

const read = (header: string) =>
  parseChallenges(header).map(({ scheme, parameters }) => [scheme, Object.fromEntries(parameters)]);

describe("parseChallenges", () => {
  test("reads what registries send", () => {
    expect(
      read('Bearer realm="https://auth.example/token",service="registry.example",scope="repository:a/b:pull,push"'),
    ).toEqual([
      [
        "bearer",
        { realm: "https://auth.example/token", service: "registry.example", scope: "repository:a/b:pull,push" },
      ],
    ]);
    expect(read('Basic realm="basic-realm"')).toEqual([["basic", { realm: "basic-realm" }]]);
  });

  test("reads several in one header, bare values, spaces and escapes", () => {
    expect(read('BASIC realm = "a \\"b\\" , c" , Bearer  realm=x,service=y')).toEqual([
      ["basic", { realm: 'a "b" , c' }],
      ["bearer", { realm: "x", service: "y" }],
    ]);
    expect(read('Negotiate, Basic realm="x"')).toEqual([
      ["negotiate", {}],
      ["basic", { realm: "x" }],
    ]);
    expect(read('NTLM TlRMTVNTUAAC==, Basic realm="x"')).toEqual([
      ["ntlm", {}],
      ["basic", { realm: "x" }],
    ]);
  });

  test("lets no second realm replace the first", () => {
    expect(read('Bearer realm="https://a",realm="https://evil"')).toEqual([["bearer", { realm: "https://a" }]]);
  });

  test.each(["", ",,,", "=", '"', 'realm="x"', "Bearer realm=", 'Bearer realm="never closed', "é", "\0", "Bearer =x"])(
    "makes no parameter of %j",
    (header) => {
      for (const { parameters } of parseChallenges(header)) expect(parameters.size).toBe(0);
    },
  );

  test("is quick with long nonsense and refuses what is too long", () => {
    const started = performance.now();
    for (const piece of ["a ", "a=,", 'a="', "\\", "a= ", ", "])
      parseChallenges(`Bearer ${piece.repeat(4000 / piece.length)}`);
    expect(performance.now() - started).toBeLessThan(500);
    expect(parseChallenges(`Bearer realm="${"x".repeat(9000)}"`)).toEqual([]);
  });
});
