import { describe, expect, it } from "vitest";
import { run, shell, useEngine } from "../helpers/use-engine.js";

describe("a sandbox", () => {
  const use = useEngine();

  it("runs a command and says how it ended", async () => {
    const sandbox = await use.create();
    const result = await run(sandbox, ["echo", "hello"]);
    expect(result.stdout).toBe("hello\n");
    expect(result.cause).toEqual({ kind: "exited", code: 0 });
  });

  it("runs many commands at once", async () => {
    const sandbox = await use.create();
    const results = await Promise.all(Array.from({ length: 20 }, (_, i) => shell(sandbox, `echo ${i}; exit ${i}`)));
    expect(results.map((result) => [result.stdout, result.exitCode])).toEqual(
      Array.from({ length: 20 }, (_, i) => [`${i}\n`, i]),
    );
  });
});
