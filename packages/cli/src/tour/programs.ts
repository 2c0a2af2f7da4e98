/** Five small programs that are no good. They need nothing but a shell, coreutils and util-linux. */
import type { CommandCause, SandboxLimits } from "@holdfast/protocol";

const MIB = 1024 * 1024;

export interface HostileProgram {
  readonly name: string;
  /** For people: what it does, in the words of whoever would run it. */
  readonly tries: string;
  readonly argv: readonly string[];
  readonly limits: Partial<SandboxLimits>;
  readonly timeoutMs: number;
  readonly graceMs: number;
  readonly expected: CommandCause["kind"];
  /** Nobody takes its output while it runs. */
  readonly unread: boolean;
}

const DEFAULTS = {
  limits: { memoryBytes: 64 * MIB, pids: 32, diskBytes: 64 * MIB },
  timeoutMs: 30_000,
  graceMs: 1000,
  unread: false,
} as const;

export const FLOOD_BYTES = 200 * MIB;

export const HOSTILE_PROGRAMS: readonly HostileProgram[] = [
  {
    ...DEFAULTS,
    name: "glutton",
    tries: "eats memory without end",
    // tail keeps the last line, and /dev/zero is one line that never ends.
    argv: ["tail", "/dev/zero"],
    expected: "out_of_memory",
  },
  {
    ...DEFAULTS,
    name: "breeder",
    tries: "forks without end",
    argv: ["sh", "-c", "while :; do sleep 60 & done"],
    expected: "out_of_pids",
  },
  {
    ...DEFAULTS,
    name: "hoarder",
    tries: "fills the disk",
    argv: ["dd", "if=/dev/zero", "of=/tmp/hoard", "bs=1M"],
    expected: "out_of_disk",
  },
  {
    ...DEFAULTS,
    name: "mule",
    tries: "ignores SIGTERM, in three sessions",
    argv: [
      "bash",
      "-c",
      `trap '' TERM INT HUP
stay() { while :; do sleep 1; done; }
export -f stay
(setsid bash -c "trap '' TERM; stay" & setsid bash -c "trap '' TERM; (stay &)" &)
stay`,
    ],
    timeoutMs: 1500,
    expected: "timed_out",
  },
  {
    ...DEFAULTS,
    name: "chatterbox",
    tries: `writes ${FLOOD_BYTES / MIB} MiB that nobody reads`,
    argv: ["sh", "-c", `yes 'and another thing' | head -c ${FLOOD_BYTES}`],
    unread: true,
    expected: "exited",
  },
];
