import { spawnSync } from "node:child_process";
import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import type { Command } from "commander";
import { expect, test } from "vitest";
import { createProgram } from "../program.js";
import { completionScript } from "./completion-script.js";
import { SHELLS } from "./shells.js";

const program = createProgram("0", () => {});

function allCommands(of: Command): Command[] {
  return of.commands.flatMap((command) => [command, ...allCommands(command)]);
}

test.each(SHELLS)("the script for %s knows every command and every option", (shell) => {
  const script = completionScript(shell, program);
  for (const command of allCommands(program)) {
    expect(script).toContain(command.name());
    for (const { long } of command.options) {
      expect(script).toContain(shell === "fish" ? `-l ${long?.slice(2)}` : long);
    }
  }
});

/** What bash offers for the last of these words. */
function completeInBash(words: readonly string[], path = process.env.PATH): string[] {
  const script = `${completionScript("bash", program)}
COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1)); _holdfast; printf '%s\\n' "\${COMPREPLY[@]}"`;
  const { stdout, stderr } = spawnSync("bash", ["-c", script, "bash", "holdfast", ...words], {
    encoding: "utf8",
    env: { ...process.env, PATH: path },
  });
  expect(stderr).toBe("");
  return stdout.split("\n").filter((line) => line !== "");
}

test("bash completes commands, options, values and programs", () => {
  expect(completeInBash(["d"])).toEqual(["doctor"]);
  expect(completeInBash(["run", "--mem"])).toEqual(["--memory"]);
  expect(completeInBash(["run", "--pool", ""])).toEqual(["btrfs", "dir"]);
  expect(completeInBash(["completion", "z"])).toEqual(["zsh"]);
  expect(completeInBash(["help", "post"])).toEqual(["postmortem"]);
  expect(completeInBash(["run", "--memory", "1g", "basena"])).toContain("basename");
  expect(completeInBash(["run", "--", "basena"])).toContain("basename");
  expect(completeInBash(["run", "ls", "--mem"])).toEqual([]);
});

test("bash completes commands within commands", () => {
  expect(completeInBash(["key", ""])).toEqual(["create", "list", "revoke"]);
  expect(completeInBash(["key", "create", "--sand"])).toEqual(["--sandboxes"]);
  expect(completeInBash(["create", "--on-timeout", ""])).toEqual(["kill", "pause", "stop"]);
  expect(completeInBash(["serve", "--tls", ""])).toEqual(["off", "self", "files"]);
});

test("bash offers the sandboxes there are where one is named", () => {
  const directory = mkdtempSync(join(tmpdir(), "holdfast-completion-"));
  try {
    writeFileSync(join(directory, "holdfast"), '#!/bin/sh\n[ "$1 $2" = "ps --quiet" ] && printf "iaa1\\niab2\\n"\n', {
      mode: 0o755,
    });
    const path = `${directory}:${process.env.PATH}`;
    expect(completeInBash(["exec", ""], path)).toEqual(["iaa1", "iab2"]);
    expect(completeInBash(["kill", "iaa1", "iab"], path)).toEqual(["iab2"]);
    expect(completeInBash(["exec", "iaa1", "--us"], path)).toEqual(["--user"]);
    expect(completeInBash(["exec", "iaa1", "-it", "--", "basena"], path)).toContain("basename");
    expect(completeInBash(["exec", "iaa1", "ls", "--us"], path)).toEqual([]);
  } finally {
    rmSync(directory, { recursive: true, force: true });
  }
});
