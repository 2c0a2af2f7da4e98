import { readFileSync } from "node:fs";
import type { Command } from "commander";
import { expect, test } from "vitest";
import { createProgram } from "./program.js";

const docs = readFileSync(new URL("../../../docs/cli.md", import.meta.url), "utf8");
const program = createProgram("0", () => {});

/** `## build` up to the next heading of that kind. */
function section(name: string): string {
  return new RegExp(`^## ${name}\\n(.*?)(?=^## |(?![^]))`, "ms").exec(docs)?.[1] ?? "";
}

const commandOf = (name: string): Command => {
  const found = program.commands.find((command) => command.name() === name);
  if (found === undefined) throw new Error(`there is no command ${name}`);
  return found;
};

test("docs/cli.md has a place for every command", () => {
  const headings = [...docs.matchAll(/^## (.*)$/gm)].flatMap(([, text = ""]) => text.split(/, | and /));
  const names = program.commands.map((command) => command.name()).filter((name) => name !== "completion");
  expect(names.filter((name) => !headings.includes(name))).toEqual([]);
  expect(docs).toContain("holdfast completion");
});

test("docs/cli.md tells every flag of build and of the commands about images", () => {
  const everywhere = ["--url", "--api-key", "--state-dir", "--pool"];
  const missing = (command: Command, text: string, path: string): string[] =>
    command.options
      .filter(({ long }) => !everywhere.includes(long ?? "") && !text.includes(long ?? ""))
      .filter(({ short }) => short === undefined || !new RegExp(`[[ \`]${short}[,\\] ]`).test(text))
      .map(({ long }) => `${path} ${long}`);
  expect(missing(commandOf("build"), section("build"), "build")).toEqual([]);
  const images = section("image");
  for (const command of commandOf("image").commands) {
    const row = images.split("\n").find((line) => line.startsWith(`| \`image ${command.name()} `)) ?? "";
    expect(row, `image ${command.name()}`).not.toBe("");
    expect(missing(command, row, `image ${command.name()}`)).toEqual([]);
  }
  for (const flag of everywhere) expect(section("build")).toContain(flag);
});
