/** Options that mean the same in every command that opens the engine. */
import { Option } from "commander";

/** Help shows the default; the value itself is that of whoever the option is for, so that there is one place for it. */
export function describe(flags: string, description: string, shownDefault: string): Option {
  return new Option(flags, `${description} (default: ${shownDefault})`);
}

export function stateDirOption(): Option {
  return describe("--state-dir <dir>", "where sandboxes, their disks and images are kept", "/var/lib/holdfast");
}

export function poolOption(): Option {
  return describe(
    "--pool <kind>",
    "how disks are bounded. btrfs: the kernel refuses what is over the limit. dir: works on any file system, but the limit is watched, not enforced",
    "btrfs",
  );
}

export function collect(value: string, previous: readonly string[] | undefined): string[] {
  return [...(previous ?? []), value];
}
