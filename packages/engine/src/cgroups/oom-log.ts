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
   * Victims in a cgroup (as SandboxCgroup.oomLogPath) or any below it. Ids are never used twice, so old records do no
   * harm there. `uids` finds those whose cgroup the kernel left out of its log, by the sandbox's 65,536 uids, which others
   * had before: only since a time on the kernel's clock. Undefined is "not known": the log cannot be read here.
   */
  victimsOf(cgroupPath: string, uids?: { readonly base: number; readonly sinceUsec: number }): OomVictim[] | undefined;
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
  readonly #path: string;
  #fd: number | "not opened" | "not readable" = "not opened";
  readonly #buffer = Buffer.allocUnsafe(16 * 1024);
  #victims: Entry[] = [];
  /** The cgroup comes in a line of its own, just before the one with the sizes. */
  readonly #cgroupByPid = new Map<number, string>();

  constructor(path: string) {
    this.#path = path;
  }

  victimsOf(cgroupPath: string, uids?: { readonly base: number; readonly sinceUsec: number }): OomVictim[] | undefined {
    try {
      // Opened when the first kill is to be explained: reading all old records takes longer than starting a sandbox.
      if (this.#fd === "not opened") this.#fd = openSync(this.#path, constants.O_RDONLY | constants.O_NONBLOCK);
      if (this.#fd === "not readable") return undefined;
      this.#readRecords(this.#fd, (record, timeUsec) => this.#take(record, timeUsec));
    } catch {
      // For want of privilege or of a kernel log.
      this.close();
      this.#fd = "not readable";
      return undefined;
    }
    return this.#victims
      .filter((entry) => isWithin(cgroupPath, entry.taskMemcg) || (uids !== undefined && hasSandboxUid(uids, entry)))
      .map(({ uid: _, ...victim }) => victim);
  }

  close(): void {
    if (typeof this.#fd === "number") closeSync(this.#fd);
    this.#fd = "not readable";
  }

  #readRecords(fd: number, take: (record: OomRecord, timeUsec: number) => void): void {
    for (;;) {
      const text = this.#readOne(fd);
      if (text === undefined) return;
      const record = parseKernelRecord(text);
      const oom = record === undefined ? undefined : parseOomMessage(record.message);
      if (record !== undefined && oom !== undefined) take(oom, record.timeUsec);
    }
  }

  /** Undefined at the end; empty for what could not be read but does not end the log. */
  #readOne(fd: number): string | undefined {
    try {
      return this.#buffer.toString("latin1", 0, readSync(fd, this.#buffer, 0, this.#buffer.length, null));
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

function hasSandboxUid(uids: { readonly base: number; readonly sinceUsec: number }, entry: Entry): boolean {
  const { uid, timeUsec, taskMemcg } = entry;
  return (
    taskMemcg === undefined &&
    timeUsec >= uids.sinceUsec &&
    uid !== undefined &&
    uid >= uids.base &&
    uid < uids.base + UIDS_PER_SANDBOX
  );
}
