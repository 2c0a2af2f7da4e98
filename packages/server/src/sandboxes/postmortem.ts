/** A sandbox's end, as it is kept and told. */
import type { Sandbox } from "@holdfast/engine";
import {
  type CommandInfo,
  describeSandboxCause,
  HoldfastError,
  type Postmortem,
  type SandboxCause,
  type SandboxEnding,
} from "@holdfast/protocol";
import type { CommandRow, SandboxRow } from "../store/store.js";
import type { LastWords } from "./live-commands.js";

export function commandInfo(row: CommandRow): CommandInfo {
  return {
    id: row.id,
    pid: row.pid,
    argv: row.argv,
    cwd: row.cwd,
    user: row.user,
    tag: row.tag,
    pty: row.pty,
    startedAt: row.startedAt.toISOString(),
    endedAt: row.endedAt?.toISOString() ?? null,
    ending: row.ending,
  };
}

export function postmortemOf(
  ending: SandboxEnding,
  words: readonly LastWords[],
  sandbox: Sandbox | undefined,
): Omit<Postmortem, "sandbox" | "events"> {
  const look = sandbox?.finalLook;
  return {
    ending,
    processes: look?.processes ?? [],
    counters: look?.counters ?? {},
    commands: words.map(({ row, stdout, stderr }) => ({
      ...commandInfo(row),
      stdoutTail: stdout.toString("base64"),
      stderrTail: stderr.toString("base64"),
    })),
  };
}

/** For one that has no processes whose counters could be read. */
export function endingWithoutSandbox(row: SandboxRow, cause: SandboxCause): SandboxEnding {
  const wallMs = Date.now() - row.createdAt.getTime();
  const usage = { memoryPeakBytes: null, cpuMs: 0, wallMs, pidsPeak: null };
  return { sandboxId: row.id, cause, usage, message: describeSandboxCause(cause) };
}

export function endedError({ id, ending, endedAt }: Pick<SandboxRow, "id" | "ending" | "endedAt">): HoldfastError {
  return new HoldfastError("sandbox_ended", `sandbox ${id} has ended. ${ending?.message ?? ""}`.trim(), {
    details: { cause: ending?.cause, endedAt: endedAt?.toISOString() },
  });
}
