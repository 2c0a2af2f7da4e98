import type { RecipeStep } from "@holdfast/recipe";
import { describe, expect, it } from "vitest";
import type { ImageConfig } from "../types.js";
import { applyStep, DEFAULT_PATH, insidePath } from "./apply-step.js";

const BASE: ImageConfig = {
  env: { PATH: "/bin", A: "1" },
  workdir: "/work",
  user: null,
  entrypoint: null,
  cmd: ["base-command"],
  exposedPorts: ["80/tcp"],
  labels: { a: "b" },
  start: null,
  architecture: "amd64",
  os: "linux",
};

function after(...steps: RecipeStep[]): ImageConfig {
  return steps.reduce((state, step) => applyStep(state, step), { config: BASE, cmdIsOwn: false } as {
    config: ImageConfig;
    cmdIsOwn: boolean;
  }).config;
}

describe("applyStep", () => {
  it("adds to the path that commands have anyway", () => {
    const bare = { config: { ...BASE, env: {} }, cmdIsOwn: false };
    const step: RecipeStep = { kind: "env", variables: { PATH: "/opt/bin:$PATH", X: "$HOME$toString" }, expand: true };
    expect(applyStep(bare, step).config.env).toEqual({ PATH: `/opt/bin:${DEFAULT_PATH}`, X: "" });
  });

  it("adds to what is there", () => {
    expect(
      after(
        { kind: "env", variables: { A: "2", B: "$A" } },
        { kind: "expose", ports: ["80/tcp", "8000/tcp"] },
        { kind: "label", labels: { c: "d" } },
      ),
    ).toMatchObject({
      env: { PATH: "/bin", A: "2", B: "$A" },
      exposedPorts: ["80/tcp", "8000/tcp"],
      labels: { a: "b", c: "d" },
    });
  });

  it("expands variables by those in force before the step", () => {
    const variables = { A: "x$A", PATH: "/opt:$PATH" };
    expect(after({ kind: "env", variables, expand: true }).env).toEqual({ A: "x1", PATH: "/opt:/bin" });
  });

  it("lets a new entry point take the base's arguments away, but not the recipe's own", () => {
    const entrypoint: RecipeStep = { kind: "entrypoint", argv: ["/run"] };
    expect(after(entrypoint)).toMatchObject({ entrypoint: ["/run"], cmd: null });
    expect(after({ kind: "cmd", argv: ["own"] }, entrypoint)).toMatchObject({ entrypoint: ["/run"], cmd: ["own"] });
    expect(after(entrypoint, { kind: "entrypoint", argv: [] })).toMatchObject({ entrypoint: null });
  });

  it("follows work directories", () => {
    expect(after({ kind: "workdir", path: "a/b" }, { kind: "workdir", path: "c" }).workdir).toBe("/work/a/b/c");
    expect(after({ kind: "workdir", path: "." }).workdir).toBe("/work");
    expect(insidePath({ workdir: null }, "x/")).toBe("/x/");
    expect(insidePath({ workdir: "/work" }, "./")).toBe("/work/");
    expect(insidePath({ workdir: "/work" }, "/")).toBe("/");
  });
});
