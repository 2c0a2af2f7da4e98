import { spawnSync } from "node:child_process";
import { expect, test } from "vitest";
import { createProgram } from "../program.js";
import { completionScript } from "./completion-script.js";
import { SHELLS } from "./shells.js";

const program = createProgram("0", () => {});

test.each(SHELLS)("the script for %s knows every command and every option", (shell) => {
  const script = completionScript(shell, program);
  for (const command of program.commands) {
    expect(script).toContain(command.name());
    for (const { long } of command.options) {
      expect(script).toContain(shell === "fish" ? `-l ${long?.slice(2)}` : long);
    }
  }
});

/** What bash offers for the last of these words. */
function completeInBash(...words: readonly string[]): string[] {
  const script = `${completionScript("bash", program)}
COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1)); _holdfast; printf '%s\\n' "\${COMPREPLY[@]}"`;
  const { stdout, stderr } = spawnSync("bash", ["-c", script, "bash", ...words], { encoding: "utf8" });
  expect(stderr).toBe("");
  return stdout.split("\n").filter((line) => line !== "");
}

test("bash completes commands, options, values and programs", () => {
  expect(completeInBash("holdfast", "d")).toEqual(["doctor"]);
  expect(completeInBash("holdfast", "run", "--mem")).toEqual(["--memory"]);
  expect(completeInBash("holdfast", "run", "--pool", "")).toEqual(["btrfs", "dir"]);
  expect(completeInBash("holdfast", "completion", "z")).toEqual(["zsh"]);
  expect(completeInBash("holdfast", "run", "--memory", "1g", "basena")).toContain("basename");
  expect(completeInBash("holdfast", "run", "--", "basena")).toContain("basename");
  expect(completeInBash("holdfast", "run", "ls", "--mem")).toEqual([]);
});
