import type { Digest } from "@holdfast/recipe";
import { describe, expect, it } from "vitest";
import { stepTitle } from "./step-title.js";

const tree: Digest = `sha256:${"1".repeat(64)}`;
const trees = new Map([[tree, { isFile: false, files: 214, sizeBytes: 3.1 * 1024 * 1024 }]]);

describe("stepTitle", () => {
  it("says what a step does", () => {
    expect(stepTitle({ kind: "run", command: "make -j4" }, trees)).toBe("RUN make -j4");
    expect(stepTitle({ kind: "apt", packages: ["build-essential", "cmake"] }, trees)).toBe("APT build-essential cmake");
    expect(stepTitle({ kind: "copy", tree, to: "/app" }, trees)).toBe("COPY ./ -> /app (214 files, 3.1 MiB)");
    expect(
      stepTitle({ kind: "copy-from", source: { kind: "stage", index: 0 }, paths: ["/out"], to: "/app" }, trees),
    ).toBe("COPY /out -> /app (from stage 0)");
  });

  it("is one line that fits a terminal, and holds no secret", () => {
    const title = stepTitle({ kind: "run", command: `echo a\n  b\u001b[31m${"x".repeat(500)}` }, trees);
    expect(title).toMatch(/^RUN echo a b\uFFFD\[31mx+…$/);
    expect(title).toHaveLength(160);
    expect(stepTitle({ kind: "env", variables: { TOKEN: "secret" } }, trees)).toBe("ENV TOKEN");
  });
});
