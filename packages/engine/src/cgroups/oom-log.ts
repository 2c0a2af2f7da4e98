/**
 * Whom the kernel killed for memory, from its log. The counters say that a kill happened; only the log says who it was.
 * It is evidence, not proof: lines are rate-limited and old ones are overwritten.
 */
import { closeSync, constants, openSync, readSync } from "node:fs";
import { errnoOf } from "./kernel-files.js";
import { type OomRecord, parseKernelRecord, parseOomMessage } from "./oom-message.js";

export interface OomVictim {
  /** As the host's first pid namespace counts. */
  readonly hostPid: number;
  /** What the process called itself, made harmless to print. */
  readonly name: string;
  /** Resident when it was killed. */
  readonly rssBytes: number;
  /** Undefined when the kernel left the line out that tells it. */
  readonly taskMemcg: string | undefined;
  /** "host": the whole machine was out of memory, no limit of the sandbox's. */
  readonly scope: "memcg" | "host";
  /** The kernel's clock, since boot. */
  readonly timeUsec: number;
}

export interface OomLog {
  /**
   * Victims since the log was opened, in a cgroup (as SandboxCgroup.oomLogPath) or any below it, or with a uid of the
   * sandbox's 65,536. Undefined is "not known": the kernel's log cannot be read here.
   */
  victimsOf(cgroupPath: string, options?: { readonly uidBase?: number }): OomVictim[] | undefined;
  close(): void;
}

const UIDS_PER_SANDBOX = 65_536;
const VICTIMS_KEPT = 1024;

interface Entry extends OomVictim {
  readonly uid: number | undefined;
}

export function createOomLog(path = "/dev/kmsg"): OomLog {
  return new KernelOomLog(path);
}

class KernelOomLog implements OomLog {
  #fd: number | undefined;
  readonly #buffer = Buffer.allocUnsafe(16 * 1024);
  #victims: Entry[] = [];
  /** The cgroup comes in a line of its own, just before the one with the sizes. */
  readonly #cgroupByPid = new Map<number, string>();

  constructor(path: string) {
    try {
      this.#fd = openSync(path, constants.O_RDONLY | constants.O_NONBLOCK);
      // A new descriptor begins at the oldest record, and Node cannot seek: read on to the end (about 6 us each).
      this.#readRecords(() => {});
    } catch {
      // Not readable, for want of privilege or of a kernel log: victimsOf says "not known".
      this.close();
    }
  }

  victimsOf(cgroupPath: string, options: { readonly uidBase?: number } = {}): OomVictim[] | undefined {
    if (this.#fd === undefined) return undefined;
    try {
      this.#readRecords((record, timeUsec) => this.#take(record, timeUsec));
    } catch {
      this.close();
      return undefined;
    }
    const { uidBase } = options;
    return this.#victims
      .filter(({ taskMemcg, uid }) => isWithin(cgroupPath, taskMemcg) || hasSandboxUid(uidBase, uid))
      .map(({ uid: _, ...victim }) => victim);
  }

  close(): void {
    if (this.#fd !== undefined) closeSync(this.#fd);
    this.#fd = undefined;
  }

  #readRecords(take: (record: OomRecord, timeUsec: number) => void): void {
    for (;;) {
      const text = this.#readOne();
      if (text === undefined) return;
      const record = parseKernelRecord(text);
      const oom = record === undefined ? undefined : parseOomMessage(record.message);
      if (record !== undefined && oom !== undefined) take(oom, record.timeUsec);
    }
  }

  /** Undefined at the end; empty for what could not be read but does not end the log. */
  #readOne(): string | undefined {
    if (this.#fd === undefined) return undefined;
    try {
      return this.#buffer.toString("latin1", 0, readSync(this.#fd, this.#buffer, 0, this.#buffer.length, null));
    } catch (reason) {
      switch (errnoOf(reason)) {
        case "EAGAIN":
          return undefined;
        case "EPIPE": // Overwritten before we came; the next read goes on with the oldest there is.
        case "EINVAL": // Longer than any record is.
          return "";
        default:
          throw reason;
      }
    }
  }

  #take(record: OomRecord, timeUsec: number): void {
    if (record.kind === "cgroup") {
      this.#cgroupByPid.set(record.pid, record.taskMemcg);
      return;
    }
    const taskMemcg = this.#cgroupByPid.get(record.pid);
    this.#cgroupByPid.clear();
    const { pid, name, rssBytes, scope, uid } = record;
    this.#victims.push({ hostPid: pid, name, rssBytes, taskMemcg, scope, timeUsec, uid });
    if (this.#victims.length > VICTIMS_KEPT) this.#victims = this.#victims.slice(-VICTIMS_KEPT / 2);
  }
}

function isWithin(cgroupPath: string, taskMemcg: string | undefined): boolean {
  return taskMemcg === cgroupPath || taskMemcg?.startsWith(`${cgroupPath}/`) === true;
}

function hasSandboxUid(uidBase: number | undefined, uid: number | undefined): boolean {
  return uidBase !== undefined && uid !== undefined && uid >= uidBase && uid < uidBase + UIDS_PER_SANDBOX;
}
