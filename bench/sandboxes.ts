/** What the figures do with sandboxes, in one line each. */
import { availableParallelism } from "node:os";
import type { CommandSpec, Sandbox } from "@holdfast/engine";
import { type CommandEnding, DEFAULT_SANDBOX_LIMITS, type SandboxLimits } from "@holdfast/protocol";

export function limitsWith(changes: Partial<SandboxLimits>): SandboxLimits {
  return { ...DEFAULT_SANDBOX_LIMITS, ...changes };
}

/** All the CPU there is: for comparisons with something that has no quota. */
export const ALL_CPUS = availableParallelism() * 1000;

/** As `spawnAndWait`, in a sandbox: until all output is read and the cause of the end is known. */
export async function runInside(
  sandbox: Sandbox,
  argv: readonly string[],
  spec: Partial<CommandSpec> = {},
): Promise<CommandEnding> {
  const command = await sandbox.start({ argv, ...spec });
  for await (const event of command.output()) void event;
  return command.ended;
}

export async function expectSuccess(ending: Promise<CommandEnding>): Promise<void> {
  const { cause, message } = await ending;
  if (cause.kind !== "exited" || cause.code !== 0) throw new Error(`the measured command failed: ${message}`);
}

export async function runTrue(sandbox: Sandbox): Promise<void> {
  await expectSuccess(runInside(sandbox, ["/bin/true"]));
}
