import { HoldfastError } from "@holdfast/protocol";
import type { Digest } from "@holdfast/recipe";
import { describe, expect, it } from "vitest";
import { validate } from "../http/validate.js";
import { buildStartSchema, recipeFromTemplate, type StartingPoint } from "./template-recipe.js";

const HASH = "ab".repeat(32);
const ARCHIVE: Digest = `sha256:${"cd".repeat(32)}`;
const IMAGE: StartingPoint = { base: { kind: "image", name: "ubuntu:22.04" }, user: null, workdir: null };
const TEMPLATE: StartingPoint = { base: { kind: "image", name: "below" }, user: "root", workdir: "/below" };

function translate(body: object, from: StartingPoint = TEMPLATE) {
  return recipeFromTemplate(validate(buildStartSchema, body, "body"), from, () => ARCHIVE);
}

function stepsOf(...steps: object[]) {
  return translate({ steps }).recipe.steps;
}

describe("the steps of a template", () => {
  it("come after the user and the directory that E2B takes for granted", () => {
    const { recipe, leadingSteps } = translate({ steps: [{ type: "RUN", args: ["make"] }] }, IMAGE);
    expect(leadingSteps).toBe(2);
    expect(recipe.base).toEqual(IMAGE.base);
    expect(recipe.steps).toEqual([
      { kind: "user", name: "user", create: true },
      { kind: "workdir", path: "/home/user" },
      { kind: "run", command: "make", shell: ["/bin/bash", "-l", "-c"] },
    ]);
  });

  it("go on from what a template has in force", () => {
    const { recipe, leadingSteps } = translate({ steps: [{ type: "RUN", args: ["make", "root"] }] });
    expect(leadingSteps).toBe(0);
    expect(recipe.steps).toEqual([{ kind: "run", command: "make", shell: ["/bin/bash", "-l", "-c"], user: "root" }]);
    expect(translate({}, { ...TEMPLATE, workdir: null }).recipe.steps).toEqual([
      { kind: "workdir", path: "/home/user" },
    ]);
  });

  it("are users, directories and variables", () => {
    expect(
      stepsOf(
        { type: "USER", args: ["builder"] },
        { type: "USER", args: ["root"] },
        { type: "USER", args: ["1000:1000"] },
        { type: "WORKDIR", args: ["app/"] },
        { type: "ENV", args: ["A", "1", "B", "", "A", "2"] },
      ),
    ).toEqual([
      { kind: "user", name: "builder", create: true },
      { kind: "user", name: "root" },
      { kind: "user", name: "1000:1000" },
      { kind: "workdir", path: "app" },
      { kind: "env", variables: { A: "2", B: "" } },
    ]);
  });

  it.each([
    ["plain $5 and $(date) \\n", { V: "plain $5 and $(date) \\n" }, undefined],
    ["/opt:$PATH", { V: "/opt:$PATH" }, true],
    [`\${HOME}/$(date)\\$5`, { V: `\${HOME}/\\$(date)\\\\\\$5` }, true],
    ["${broken $PATH", { V: "${broken $PATH" }, undefined],
  ])("take %j for a value as E2B does", (value, variables, expand) => {
    const [step] = stepsOf({ type: "ENV", args: ["V", value] });
    expect(step).toEqual({ kind: "env", variables, ...(expand === undefined ? {} : { expand }) });
  });

  it("keep a value beside one that is expanded", () => {
    const [step] = stepsOf({ type: "ENV", args: ["A", "$PATH", "B", "${broken", "C", "a}b"] });
    expect(step).toEqual({ kind: "env", variables: { A: "$PATH", B: "\\${broken", C: "a}b" }, expand: true });
  });

  it.each([
    ["folder/*", "folder"],
    ["./folder/", "folder"],
    ["a/b.txt", "a/b.txt"],
    ["*.txt", "."],
    [".", "."],
    ["src/{a,b}/x", "src"],
    ["src/**/*.ts", "src"],
    ["s?c/x", "."],
  ])("copy of %j what comes before its pattern", (from, expected) => {
    const [step] = stepsOf({ type: "COPY", args: [from, "/app/", "", ""], filesHash: HASH, gzip: true });
    expect(step).toEqual({ kind: "copy-archive", archive: ARCHIVE, from: expected, to: "/app/" });
  });

  it("copy for the user in force, unless another is named", () => {
    const copy = (...more: string[]) => ({ type: "COPY", args: ["a", "b", ...more], filesHash: HASH });
    const { recipe } = translate(
      { steps: [copy(), { type: "USER", args: ["me"] }, copy(), copy("root", "0644")] },
      IMAGE,
    );
    expect(recipe.steps.filter(({ kind }) => kind === "copy-archive")).toEqual([
      { kind: "copy-archive", archive: ARCHIVE, from: "a", to: "b", owner: "user" },
      { kind: "copy-archive", archive: ARCHIVE, from: "a", to: "b", owner: "me" },
      { kind: "copy-archive", archive: ARCHIVE, from: "a", to: "b", mode: 0o644 },
    ]);
  });

  it.each([
    [{ type: "EXPOSE", args: ["80"] }, "steps[0].type"],
    [{ type: "RUN" }, "steps[0].args[0]"],
    [{ type: "RUN", args: ["a\0b"] }, "steps[0].command"],
    [{ type: "RUN", args: ["x", "no user!"] }, "steps[0].user"],
    [{ type: "ENV", args: ["A"] }, "steps[0].args"],
    [{ type: "ENV", args: [] }, "steps[0].args"],
    [{ type: "ENV", args: ["A=B", "x"] }, "steps[0].variables"],
    [{ type: "WORKDIR", args: [""] }, "steps[0].args[0]"],
    [{ type: "WORKDIR", args: ["../x"] }, "steps[0].path"],
    [{ type: "USER", args: [] }, "steps[0].args[0]"],
    [{ type: "USER", args: ["a b"] }, "steps[0].name"],
    [{ type: "USER", args: ["me", "true"] }, "steps[0].args[1]"],
    [{ type: "COPY", args: ["a", "b"] }, "steps[0].filesHash"],
    [{ type: "COPY", args: ["a"], filesHash: HASH }, "steps[0].args[1]"],
    [{ type: "COPY", args: ["a", "b", "", "rw"], filesHash: HASH }, "steps[0].args[3]"],
    [{ type: "COPY", args: ["a", "b"], filesHash: "x" }, "steps[0].filesHash"],
    [{ type: "COPY", args: ["a", "b"], filesHash: HASH, unknown: 1 }, "steps[0].unknown"],
    [{ type: "RUN", args: "x" }, "steps[0].args"],
    [null, "steps[0]"],
  ])("are refused by name: %j", (step, field) => {
    expect(() => translate({ steps: [step] })).toThrow(HoldfastError);
    expect(() => translate({ steps: [step] })).toThrow(new RegExp(`^${field.replaceAll(/[[\].]/g, "\\$&")}`));
  });
});

describe("what a template starts", () => {
  it.each([
    [{}, null],
    [{ startCmd: "", readyCmd: "" }, null],
    [{ startCmd: "serve" }, { command: "serve", readyWhen: { kind: "seconds", seconds: 20 } }],
    [
      { startCmd: "serve", readyCmd: "sleep 5" },
      { command: "serve", readyWhen: { kind: "seconds", seconds: 5 } },
    ],
    [
      { startCmd: "serve", readyCmd: "test -f x" },
      { command: "serve", readyWhen: { kind: "command", command: "test -f x" } },
    ],
    [{ readyCmd: "true" }, { command: ":", readyWhen: { kind: "command", command: "true" } }],
  ])("is %j", (body, start) => {
    expect(translate(body).recipe.start).toEqual(start);
  });
});

describe("what is forced", () => {
  const run = (force: boolean) => ({ type: "RUN", args: ["x"], force });
  it("is made anew from there on", () => {
    expect(translate({ steps: [run(false), run(false)] }).forceFrom).toBeUndefined();
    expect(translate({ steps: [run(false), run(true), run(false)] }, IMAGE).forceFrom).toBe(3);
    expect(translate({ force: true, steps: [run(true)] }, IMAGE).forceFrom).toBe(0);
  });
});
