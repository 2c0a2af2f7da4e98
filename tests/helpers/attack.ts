/** Hostile programs: compiled on the host, brought in through the file API, run inside. */
import { execFileSync } from "node:child_process";
import { mkdtempSync, readFileSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import type { CommandSpec, Sandbox } from "@holdfast/engine";
import { type RunResult, run } from "./use-engine.js";

const FIXTURES = fileURLToPath(new URL("../fixtures/security/", import.meta.url));
const compiled = new Map<string, Buffer>();

/** A static program made of tests/fixtures/security/NAME.c. */
export function compile(name: string): Buffer {
  const known = compiled.get(name);
  if (known !== undefined) return known;
  const directory = mkdtempSync(join(tmpdir(), "attack-"));
  try {
    const output = join(directory, name);
    execFileSync("gcc", ["-static", "-O1", "-pthread", "-w", "-o", output, join(FIXTURES, `${name}.c`)]);
    const program = readFileSync(output);
    compiled.set(name, program);
    return program;
  } finally {
    rmSync(directory, { recursive: true, force: true });
  }
}

export const WHO = ["user", "root"] as const;

/** Brings the program in and runs it. */
export async function attack(
  sandbox: Sandbox,
  name: string,
  args: readonly string[] = [],
  spec: Partial<CommandSpec> = {},
): Promise<RunResult> {
  const path = `/tmp/attack-${name}`;
  await sandbox.files.write(path, compile(name), { mode: 0o755 });
  return run(sandbox, [path, ...args], { limits: { wallMs: 30_000 }, graceMs: 500, ...spec });
}
