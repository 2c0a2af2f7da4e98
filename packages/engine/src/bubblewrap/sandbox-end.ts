/**
 * How a running sandbox ends, once that is decided: it is killed, what it used is read, and it is removed, or taken down
 * if its files are to stay. Nothing that fails on the way keeps it from ending.
 */
import {
  describeSandboxCause,
  formatBytes,
  HoldfastError,
  type SandboxCause,
  type SandboxEnding,
} from "@holdfast/protocol";
import { GUEST_MEMORY_BYTES, type SandboxCgroup } from "../cgroups/index.js";
import { dismantle, killSandboxProcesses, type Monitor, takeDown } from "./dismantle.js";
import type { HostParts } from "./host-parts.js";
import { bootedAtMs, type SandboxRecord } from "./records.js";

type Counters = Partial<ReturnType<SandboxCgroup["readSandbox"]>>;

export interface EndParts {
  readonly record: SandboxRecord;
  readonly cgroup: SandboxCgroup;
  readonly monitor: Monitor | undefined;
}

export class SandboxEnd {
  readonly #host: HostParts;
  readonly #parts: EndParts;

  constructor(host: HostParts, parts: EndParts) {
    this.#host = host;
    this.#parts = parts;
  }

  /** Returns when nothing in it runs any more, or nothing more can be done about that. */
  async kill(): Promise<void> {
    try {
      await killSandboxProcesses(this.#parts.cgroup, this.#parts.monitor);
    } catch (error) {
      this.#warn("a sandbox could not be killed", error);
    }
  }

  /** With the cause as the counters explain it. */
  describe(decided: SandboxCause): SandboxEnding {
    const { record } = this.#parts;
    const counters = this.#lastCounters();
    const cause = explained(decided, counters);
    return {
      sandboxId: record.id,
      cause,
      usage: {
        memoryPeakBytes: counters.memoryPeakBytes ?? null,
        cpuMs: (counters.cpuUsec ?? 0) / 1000,
        wallMs: Date.now() - bootedAtMs(record),
        pidsPeak: null,
      },
      message: describeSandboxCause(cause),
    };
  }

  async leave(options: { readonly keepFiles: boolean }): Promise<void> {
    const { records, us } = this.#host;
    const { id, uidSlot, disk } = this.#parts.record;
    const parts = { cgroup: this.#parts.cgroup, uidSlot };
    try {
      if (options.keepFiles) {
        await takeDown(this.#host, id, parts);
        records.disown(id, us);
      } else {
        await dismantle(this.#host, id, { ...parts, diskPath: disk.path });
      }
    } catch (error) {
      // The record stays, so the next sweep finds what is left.
      if (options.keepFiles) records.disown(id, us, { remains: true });
      this.#warn("a sandbox could not be removed whole", error, { left: "sandbox" });
    }
  }

  #lastCounters(): Counters {
    try {
      return this.#parts.cgroup.readSandbox();
    } catch (error) {
      this.#warn("the last counters of a sandbox could not be read", error);
      return {};
    }
  }

  #warn(message: string, error: unknown, facts: { readonly left?: "sandbox" } = {}): void {
    this.#host.log.warn(
      { ...facts, sandbox: this.#parts.record.id, error: HoldfastError.from(error).message },
      message,
    );
  }
}

function explained(decided: SandboxCause, { guestOomKills = 0 }: Counters): SandboxCause {
  if (decided.kind !== "guest_exited" || guestOomKills === 0) return decided;
  // Not what the sandbox was given for its programs: more of that would not help.
  const status = `killed for memory, having used up its own ${formatBytes(GUEST_MEMORY_BYTES)}`;
  return { kind: "guest_exited", status };
}
