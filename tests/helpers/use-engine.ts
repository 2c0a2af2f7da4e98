/** An engine on a state directory of its own for each test, and nothing left of either after it. */
import { existsSync, mkdtempSync, readdirSync, rmSync } from "node:fs";
import { join } from "node:path";
import { BubblewrapEngine, type Command, type CommandSpec, type Sandbox, type SandboxSpec } from "@holdfast/engine";
import type { CommandEnding, SandboxLimits } from "@holdfast/protocol";
import { afterEach, beforeEach, expect } from "vitest";
import { assertNoLeaks, type Inventory, OUR_DIRECTORIES, takeInventory } from "./leaks.js";
import { forgiveZombies } from "./processes.js";

export const MIB = 1024 * 1024;

/** Small enough that hostile programs hit them quickly. */
export const SMALL_LIMITS: SandboxLimits = {
  memoryBytes: 64 * MIB,
  pids: 64,
  cpuMillis: 2000,
  diskBytes: 64 * MIB,
  outputBytes: MIB,
  wallMs: undefined,
};

export interface RunResult extends CommandEnding {
  readonly stdout: string;
  readonly stderr: string;
  readonly stdoutBytes: Buffer;
  readonly gaps: number;
}

export async function collect(command: Command): Promise<RunResult> {
  const chunks = { stdout: [] as Buffer[], stderr: [] as Buffer[] };
  let gaps = 0;
  for await (const event of command.output()) {
    if (event.kind === "data") chunks[event.stream].push(event.bytes);
    else gaps += event.length;
  }
  const ending = await command.ended;
  const stdoutBytes = Buffer.concat(chunks.stdout);
  return {
    ...ending,
    stdoutBytes,
    stdout: stdoutBytes.toString(),
    stderr: Buffer.concat(chunks.stderr).toString(),
    gaps,
  };
}

export async function run(
  sandbox: Sandbox,
  argv: readonly string[],
  spec: Partial<CommandSpec> = {},
): Promise<RunResult> {
  return collect(await sandbox.start({ argv, ...spec }));
}

/** A shell script, as root unless told otherwise. */
export function shell(sandbox: Sandbox, script: string, spec: Partial<CommandSpec> = {}): Promise<RunResult> {
  return run(sandbox, ["/bin/sh", "-c", script], spec);
}

export interface EngineInUse {
  readonly engine: BubblewrapEngine;
  readonly stateDirectory: string;
  create(spec?: Partial<SandboxSpec>): Promise<Sandbox>;
}

/** Call it at the top of a describe block; the returned object is filled before each test. */
export function useEngine({
  forgivesZombies = false,
  ...options
}: {
  readonly pool?: "btrfs" | "dir";
  /** For tests that orphan processes. */
  readonly forgivesZombies?: boolean;
} = {}): EngineInUse {
  const inUse = {} as { -readonly [K in keyof EngineInUse]: EngineInUse[K] };
  let before: Inventory;
  beforeEach(async () => {
    before = takeInventory();
    inUse.stateDirectory = mkdtempSync(OUR_DIRECTORIES);
    inUse.engine = await BubblewrapEngine.open({ stateDirectory: inUse.stateDirectory, ...options });
    inUse.create = (spec = {}) => inUse.engine.create({ limits: SMALL_LIMITS, ...spec });
  });
  afterEach(async () => {
    const layers = inUse.engine.layers.list();
    await inUse.engine.close({ sandboxes: "kill" });
    const left = existsSync(join(inUse.stateDirectory, "sandboxes"))
      ? readdirSync(join(inUse.stateDirectory, "sandboxes"))
      : [];
    rmSync(inUse.stateDirectory, { recursive: true, force: true });
    expect(left).toEqual([]);
    expect(layers).toEqual([]);
    await assertNoLeaks(forgivesZombies ? forgiveZombies(before) : before);
  });
  return inUse;
}
