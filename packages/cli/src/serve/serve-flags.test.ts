import { loadConfig, printConfig } from "@holdfast/server";
import { Command } from "commander";
import { expect, test } from "vitest";
import { addServeCommand } from "../commands/serve-command.js";
import { fieldsFromFlags, type ServeFlags } from "./serve-flags.js";

interface Setting {
  readonly value: unknown;
  readonly flag: string;
}

const settings = JSON.parse(printConfig(loadConfig({ env: {} }))) as Record<string, Setting>;
const program = new Command("holdfast");
addServeCommand(program, () => {});
const options = program.commands[0]?.options ?? [];

function parse(...args: string[]): Record<string, unknown> {
  const outer = new Command("holdfast");
  addServeCommand(outer, () => {});
  const [serve] = outer.commands;
  serve?.action(() => {});
  outer.parse(["serve", ...args], { from: "user" });
  return fieldsFromFlags(serve?.opts<ServeFlags>() ?? {});
}

test("there is a flag for every setting, and no other", () => {
  const flags = options
    .map(({ long }) => long)
    .filter((name) => !["--config", "--print-config", "--json"].includes(name ?? ""));
  expect(flags.sort()).toEqual(
    Object.values(settings)
      .map(({ flag }) => flag)
      .sort(),
  );
});

test("help shows the defaults that hold", () => {
  for (const { flag, value } of Object.values(settings)) {
    const { description = "" } = options.find(({ long }) => long === flag) ?? {};
    const shown = /\(default: (.*)\)$/.exec(description)?.[1];
    if (value === null) expect(shown).toBe("none");
    else if (typeof value === "number" && flag !== "--sandbox-cpus")
      expect([flag, shown]).toEqual([flag, String(value)]);
    else if (typeof value === "string") expect([flag, shown]).toEqual([flag, value]);
  }
});

test("every flag reaches the setting it is for", () => {
  const given = parse("--state-dir", "/s", "--port", "0", "--key-sandboxes", "none", "--tls", "--domain", "a.test");
  expect(loadConfig({ env: {}, flags: given })).toMatchObject({
    stateDirectory: "/s",
    port: 0,
    keySandboxes: null,
    tls: "self",
    domain: "a.test",
  });
  expect(fieldsFromFlags({ config: "x", printConfig: true, json: true })).toEqual({});
});
