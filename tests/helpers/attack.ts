/** Hostile programs: compiled on the host, brought in through the file API, run inside. */
import { execFileSync } from "node:child_process";
import { chmodSync, existsSync, mkdtempSync, readdirSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { BubblewrapEngine, type CommandSpec, type Sandbox, type SandboxSpec } from "@holdfast/engine";
import { afterAll, beforeAll, expect } from "vitest";
import { assertNoLeaks, type Inventory, OUR_DIRECTORIES, takeInventory } from "./leaks.js";
import { type RunResult, run, SMALL_LIMITS } from "./use-engine.js";

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

/** Runs it on the host, for looking at what was left there. */
export function runOnHost(name: string, args: readonly string[]): string {
  const directory = mkdtempSync(join(tmpdir(), "attack-"));
  try {
    writeFileSync(join(directory, name), compile(name), { mode: 0o755 });
    return execFileSync(join(directory, name), args, { encoding: "utf8" });
  } finally {
    rmSync(directory, { recursive: true, force: true });
  }
}

/** Root inside can be had by everybody there, by sudo: what root cannot do is the boundary. */
export const WHO = ["user", "root"] as const;

const DEADLINE = { limits: { wallMs: 30_000 }, graceMs: 500 } as const;

/** Brings the program in and runs it. */
export async function attack(
  sandbox: Sandbox,
  name: string,
  args: readonly string[] = [],
  spec: Partial<CommandSpec> = {},
): Promise<RunResult> {
  const path = `/tmp/attack-${name}`;
  await sandbox.files.write(path, compile(name), { mode: 0o755 });
  return run(sandbox, [path, ...args], { ...DEADLINE, ...spec });
}

/** A shell script as one user; stdout and stderr together, which is what an attacker sees. */
export async function tryInside(sandbox: Sandbox, script: string, user: string): Promise<string> {
  const result = await run(sandbox, ["/bin/bash", "-c", `exec 2>&1; ${script}`], { ...DEADLINE, user });
  return result.stdout;
}

export async function readAll(sandbox: Sandbox, path: string, user?: string): Promise<string> {
  const { content } = await sandbox.files.read(path, user === undefined ? {} : { user });
  const chunks: Buffer[] = [];
  for await (const chunk of content) chunks.push(chunk as Buffer);
  return Buffer.concat(chunks).toString();
}

/** The sandbox still answers: no attack may take the guest with it. */
export async function expectAlive(sandbox: Sandbox): Promise<void> {
  const result = await run(sandbox, ["echo", "alive"], DEADLINE);
  expect(result.stdout).toBe("alive\n");
  expect(sandbox.state).toBe("running");
}

/** A directory of the host with one file in it that everybody on the host may read: what an escape would get first. */
export interface HostSecret {
  readonly directory: string;
  readonly path: string;
  readonly text: string;
  remove(): void;
}

export function placeHostSecret(): HostSecret {
  const directory = mkdtempSync(join(tmpdir(), "host-secret-"));
  chmodSync(directory, 0o755);
  const path = join(directory, "secret.txt");
  const text = `secret-of-the-host-${Math.random().toString(36).slice(2)}`;
  writeFileSync(path, text, { mode: 0o644 });
  return { directory, path, text, remove: () => rmSync(directory, { recursive: true, force: true }) };
}

export interface SharedSandbox {
  readonly sandbox: Sandbox;
  readonly stateDirectory: string;
  readonly secret: HostSecret;
}

/** One sandbox for all tests of a describe block: for attacks that leave it as it was, or should. */
export function useSharedSandbox(spec: Partial<SandboxSpec> = {}): SharedSandbox {
  const shared = {} as { -readonly [K in keyof SharedSandbox]: SharedSandbox[K] };
  let engine: BubblewrapEngine;
  let before: Inventory;
  beforeAll(async () => {
    before = takeInventory();
    shared.secret = placeHostSecret();
    shared.stateDirectory = mkdtempSync(OUR_DIRECTORIES);
    engine = await BubblewrapEngine.open({ stateDirectory: shared.stateDirectory });
    shared.sandbox = await engine.create({ limits: SMALL_LIMITS, ...spec });
  });
  afterAll(async () => {
    await expectAlive(shared.sandbox).finally(async () => {
      await engine.close({ sandboxes: "kill" });
      shared.secret.remove();
    });
    const sandboxes = join(shared.stateDirectory, "sandboxes");
    const left = existsSync(sandboxes) ? readdirSync(sandboxes) : [];
    rmSync(shared.stateDirectory, { recursive: true, force: true });
    expect(left).toEqual([]);
    await assertNoLeaks(before);
  });
  return shared;
}
