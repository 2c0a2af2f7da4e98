/**
 * What must outlive us about a sandbox, as files below the state directory:
 *
 *   sandboxes/<id>/record.json            the sandbox, once it runs
 *   sandboxes/<id>/owner.<pid>.<ticks>    an empty file whose name says which process answers for it
 *   sandboxes/<id>/guest.sock             the guest
 *   sandboxes/<id>/launch.log             what the launcher and bubblewrap had to say
 *
 * Adopting is renaming the owner file: of several processes that try, the kernel lets one succeed.
 */
import { existsSync, mkdirSync, readdirSync, readFileSync, renameSync, rmSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { HoldfastError, parseSandboxId, type SandboxId, type SandboxLimits } from "@holdfast/protocol";
import type { CgroupPaths } from "../cgroups/index.js";
import type { SandboxSpec } from "../engine.js";
import { bootId, isAlive, type ProcessIdentity } from "../host/processes.js";
import type { Disk } from "../storage/pool.js";

const RECORD_VERSION = 1;
/** sockaddr_un holds 108 bytes with its terminator. */
const MAX_SOCKET_PATH_BYTES = 107;

export interface SandboxRecord {
  readonly version: typeof RECORD_VERSION;
  readonly id: SandboxId;
  readonly bootId: string;
  readonly createdAt: string;
  readonly spec: SandboxSpec;
  /** As resized since. */
  readonly limits: SandboxLimits;
  readonly uidSlot: number;
  readonly cgroupPaths: CgroupPaths;
  readonly disk: Disk;
}

export class SandboxRecords {
  readonly directory: string;

  constructor(stateDirectory: string) {
    this.directory = join(stateDirectory, "sandboxes");
    mkdirSync(this.directory, { recursive: true, mode: 0o700 });
  }

  pathOf(id: SandboxId, name = ""): string {
    return join(this.directory, id, name);
  }

  /** Checked before anything is made: a path that is too long would fail late, and in words nobody understands. */
  socketPath(id: SandboxId): string {
    const path = this.pathOf(id, "guest.sock");
    if (Buffer.byteLength(path) > MAX_SOCKET_PATH_BYTES) {
      throw new HoldfastError(
        "invalid_argument",
        `the state directory's path is too long for a unix socket below it (${path})`,
        {
          hint: `Choose a state directory whose path is at least ${Buffer.byteLength(path) - MAX_SOCKET_PATH_BYTES} bytes shorter.`,
          details: { field: "stateDirectory" },
        },
      );
    }
    return path;
  }

  /** Makes the sandbox's directory, whole: nobody sees it without its owner. */
  claim(id: SandboxId, owner: ProcessIdentity): void {
    const fresh = join(this.directory, `.${id}.${owner.pid}.${owner.startTicks}`);
    mkdirSync(fresh, { mode: 0o700 });
    writeFileSync(join(fresh, ownerFileName(owner)), "");
    try {
      renameSync(fresh, this.pathOf(id));
    } catch (error) {
      rmSync(fresh, { recursive: true, force: true });
      const { code } = error as NodeJS.ErrnoException;
      if (code === "ENOTEMPTY" || code === "EEXIST") {
        throw new HoldfastError("sandbox_exists", `there is a sandbox with id ${id} already`);
      }
      throw HoldfastError.from(error);
    }
  }

  write(record: SandboxRecord): void {
    const path = this.pathOf(record.id, "record.json");
    writeFileSync(`${path}.new`, JSON.stringify(record));
    renameSync(`${path}.new`, path);
  }

  /** Undefined if there is none, or none that can be read: then it can only be swept. */
  read(id: SandboxId): SandboxRecord | undefined {
    try {
      const record = JSON.parse(readFileSync(this.pathOf(id, "record.json"), "utf8")) as SandboxRecord;
      return record.version === RECORD_VERSION && record.id === id ? record : undefined;
    } catch {
      return undefined;
    }
  }

  list(): SandboxId[] {
    return readdirSync(this.directory).flatMap((name) => {
      try {
        return [parseSandboxId(name)];
      } catch {
        // Not one of ours.
        return [];
      }
    });
  }

  owners(id: SandboxId): ProcessIdentity[] {
    let names: string[];
    try {
      names = readdirSync(this.pathOf(id));
    } catch {
      return [];
    }
    return names.flatMap((name) => {
      const match = /^owner\.(\d+)\.(\d+)$/.exec(name);
      return match?.[1] !== undefined && match[2] !== undefined
        ? [{ pid: Number(match[1]), startTicks: match[2] }]
        : [];
    });
  }

  /** True if a living process answers for it. After a reboot nobody does, whatever the ticks say. */
  hasLivingOwner(id: SandboxId): boolean {
    const record = this.read(id);
    if (record !== undefined && record.bootId !== bootId()) return false;
    return this.owners(id).some(isAlive);
  }

  /** Takes a sandbox over from dead owners. False if somebody else was quicker or it has an owner. */
  takeOver(id: SandboxId, newOwner: ProcessIdentity): boolean {
    if (this.hasLivingOwner(id)) return false;
    const [old, ...others] = this.owners(id);
    if (old === undefined) return false;
    try {
      renameSync(this.pathOf(id, ownerFileName(old)), this.pathOf(id, ownerFileName(newOwner)));
    } catch {
      return false;
    }
    for (const other of others) rmSync(this.pathOf(id, ownerFileName(other)), { force: true });
    return true;
  }

  /** Lets go of it, so that another process may take it over although this one lives. */
  disown(id: SandboxId, owner: ProcessIdentity): void {
    try {
      renameSync(this.pathOf(id, ownerFileName(owner)), this.pathOf(id, ownerFileName(NOBODY)));
    } catch {
      // It has been removed, or was never ours.
    }
  }

  /** Gone under its name at once: nobody sees it without its owner here either. */
  remove(id: SandboxId): void {
    const going = join(this.directory, `.${id}.gone`);
    try {
      renameSync(this.pathOf(id), going);
    } catch (error) {
      if ((error as NodeJS.ErrnoException).code !== "ENOENT") throw HoldfastError.from(error);
    }
    rmSync(going, { recursive: true, force: true });
  }

  /** What a process left that was killed in the middle of claim or remove. */
  removeScraps(): void {
    for (const name of readdirSync(this.directory)) {
      const maker = /^\.[a-z0-9]+\.(\d+)\.(\d+)$/.exec(name);
      const isLeft =
        name.endsWith(".gone") ||
        (maker?.[1] !== undefined &&
          maker[2] !== undefined &&
          !isAlive({ pid: Number(maker[1]), startTicks: maker[2] }));
      if (name.startsWith(".") && isLeft) rmSync(join(this.directory, name), { recursive: true, force: true });
    }
  }

  exists(id: SandboxId): boolean {
    return existsSync(this.pathOf(id));
  }
}

/** No process has this number. */
const NOBODY: ProcessIdentity = { pid: 0, startTicks: "0" };

const ownerFileName = (owner: ProcessIdentity): string => `owner.${owner.pid}.${owner.startTicks}`;
