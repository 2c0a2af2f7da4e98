// What the README shows is what happens: its commands are run, and what they print is compared, numbers aside.
import { execFile } from "node:child_process";
import { readFileSync } from "node:fs";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { expect, it } from "vitest";
import { CLI, useCli } from "./use-cli.js";

const root = fileURLToPath(new URL("../..", import.meta.url));

interface Example {
  readonly command: string;
  readonly output: string;
}

/** The commands in ```console blocks, each with the lines below it. */
function readExamples(text: string): Example[] {
  const blocks = [...text.matchAll(/^```console\n(.*?)^```$/gms)].map((match) => match[1] ?? "");
  return blocks.flatMap((block) =>
    block
      .split(/^# /m)
      .filter((part) => part !== "")
      .map((part) => ({ command: part.slice(0, part.indexOf("\n")), output: part.slice(part.indexOf("\n") + 1) })),
  );
}

/** Pids, sizes and times differ from run to run; ids are random. */
function withoutNumbers(text: string): string {
  return text.replace(/"sandboxId":"[a-z0-9]+"/, '"sandboxId":"ID"').replace(/\d+(\.\d+)?/g, "N");
}

function runInShell(command: string): Promise<string> {
  const script = command.replace(/^npx holdfast/, `"${process.execPath}" "${CLI}"`);
  return new Promise((resolve) => {
    execFile(
      "/bin/sh",
      ["-c", `${script} 2>&1`],
      { env: { ...process.env, HOLDFAST_STATE_DIR: cli.stateDirectory } },
      (_error, stdout) => resolve(stdout),
    );
  });
}

const cli = useCli();

const examples = readExamples(readFileSync(join(root, "README.md"), "utf8"));

it("the README has examples to check", () => expect(examples.length).toBeGreaterThan(4));

it.each(examples)("$command", async ({ command, output }) => {
  const printed = withoutNumbers(await runInShell(command));
  for (const line of output.split("\n")) expect(printed).toContain(withoutNumbers(line));
});
