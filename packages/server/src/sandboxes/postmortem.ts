/** What is kept of a sandbox's end, for whoever asks later. */
import type { Sandbox } from "@holdfast/engine";
import type { CommandInfo, Postmortem, SandboxEnding } from "@holdfast/protocol";
import type { CommandRow } from "../store/store.js";
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
