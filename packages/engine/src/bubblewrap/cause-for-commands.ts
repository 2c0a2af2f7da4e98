/** What the end of a sandbox means to the commands that ran in it. */
import { type CommandCause, describeSandboxCause, type SandboxCause } from "@holdfast/protocol";

/** `cause` is undefined for a sandbox that was let go of, not ended. */
export function causeForCommands(cause: SandboxCause | undefined): CommandCause {
  switch (cause?.kind) {
    case "killed":
    case "stopped":
      return { kind: "canceled", by: cause.by };
    case "timed_out":
    case "out_of_memory":
    case "out_of_disk":
      return cause;
    case undefined:
      return { kind: "lost", why: "this process let go of the sandbox" };
    case "guest_exited":
    case "guest_broke_protocol":
    case "failed_to_start":
    case "swept":
    case "lost":
      return { kind: "lost", why: describeSandboxCause(cause) };
  }
}
