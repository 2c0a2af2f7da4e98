/**
 * What must outlive us about a sandbox, as files below the state directory:
 *
 *   sandboxes/<id>/record.json                 the sandbox, once it runs
 *   sandboxes/<id>/warm.json                   the same of one that is kept ready; the other is the truth once it is there
 *   sandboxes/<id>/owner.<pid>.<ticks>.<boot>  an empty file whose name says which process answers for it
 *   sandboxes/<id>/guest.sock                  the guest
 *   sandboxes/<id>/launch.log                  what the launcher and bubblewrap had to say
 *   sandboxes/<id>/layers                      the layers it is made of, said before it looks whether they are there
 *   sandboxes/<id>/mounts                      the directories it is about to have mounted, said likewise
 *   sandboxes/<id>/inside/                     what programs inside read below /dev/holdfast: pressure, sandbox-id
 *   sandboxes/<id>/standstill                  there while it is frozen by ourselves, for a snapshot
 *
 * Adopting is renaming the owner file: of several processes that try, the kernel lets one succeed.
 *
 * A stopped sandbox is a record that says so. It is written before anything is killed, so that whoever dies on the way
 * leaves a stopped sandbox, at worst one with remains; and its owner becomes nobody only when nothing remains.
 */
import { existsSync, mkdirSync, readdirSync, readFileSync, renameSync, rmSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { HoldfastError, parseSandboxId, type SandboxId, type SandboxLimits } from "@holdfast/protocol";
import type { CgroupPaths } from "../cgroups/index.js";
import type { SandboxSpec } from "../engine.js";
import { bootId, bootTag, isAlive, type ProcessIdentity } from "../host/processes.js";
import type { LayerId } from "../layers.js";
import type { Disk } from "../storage/pool.js";

const RECORD_VERSION = 1;
export const RECORD_FILE = "record.json";
const WARM_FILE = "warm.json";
/** Of a spec that was written before there were such fields. */
const NEWER_FIELDS = { workdir: undefined, disk: undefined, network: { kind: "none" } } as const;
/** sockaddr_un holds 108 bytes with its terminator. */
const MAX_SOCKET_PATH_BYTES = 107;

export interface SandboxRecord {
  readonly version: typeof RECORD_VERSION;
  readonly id: SandboxId;
  readonly bootId: string;
  readonly createdAt: string;
  /** When its present processes were started; absent in a sandbox that has not been stopped since it was created. */
  readonly bootedAt?: string | undefined;
  readonly spec: SandboxSpec;
  /** As resized since. */
  readonly limits: SandboxLimits;
  /** Where a memory limit that grows began, if that is not what the spec says. */
  readonly startMemoryBytes?: number | undefined;
  readonly uidSlot: number;
  readonly cgroupPaths: CgroupPaths;
  readonly disk: Disk;
  /** Its present guest has had no command with an id below this one. */
  readonly commandIdsFrom?: number | undefined;
  /** Command ids below this one may have been used; it grows in steps. */
  readonly commandIdsBelow?: number | undefined;
  /** The generated layers it stands on, which are not to be removed meanwhile. */
  readonly skeleton?: string | undefined;
  /** Files without processes. What it says above of uids and cgroups is then what it had. */
  readonly stopped?: { readonly by: string; readonly at: string } | undefined;
  /** Its removal has begun: part of its files may be gone already. */
  readonly discarded?: boolean | undefined;
  /** It is kept ready for whoever asks next, and is nobody's yet: no later process has any use for it. */
  readonly warm?: true | undefined;
  /** The layer that its files are about to become. If its disk is gone, they have. */
  readonly becomes?: LayerId | undefined;
}

/** An owner is known by its boot too: a pid and a start time may come again after a restart of the host. */
interface Owner extends ProcessIdentity {
  readonly boot: string | undefined;
}

/** A sandbox that was stopped begins a new life when it is booted. */
export function bootedAtMs({ bootedAt, createdAt }: Pick<SandboxRecord, "bootedAt" | "createdAt">): number {
  return Date.parse(bootedAt ?? createdAt);
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

  /** Makes the sandbox's directory, whole: nobody sees it without its owner and these files. */
  claim(id: SandboxId, owner: ProcessIdentity, files: Readonly<Record<string, string>> = {}): void {
    const fresh = join(this.directory, `.${id}.${owner.pid}.${owner.startTicks}`);
    mkdirSync(fresh, { mode: 0o700 });
    for (const [name, text] of Object.entries(files)) writeFileSync(join(fresh, name), text, { mode: 0o600 });
    writeFileSync(join(fresh, ownerFileName(ownerOf(owner))), "");
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

  /**
   * A ready one has a file of its own: to be handed out it gets its first record, because to put a file in the place of
   * another costs ten times as much on ext4, which then writes it to the disk.
   */
  write(record: SandboxRecord): void {
    const path = this.pathOf(record.id, record.warm === true ? WARM_FILE : RECORD_FILE);
    writeFileSync(`${path}.new`, JSON.stringify(record));
    renameSync(`${path}.new`, path);
  }

  /** Undefined if there is none, or none that can be read: then it can only be swept. */
  read(id: SandboxId): SandboxRecord | undefined {
    try {
      const record = JSON.parse(this.#readText(id)) as SandboxRecord;
      if (record.version !== RECORD_VERSION || record.id !== id) return undefined;
      return { ...record, spec: { ...NEWER_FIELDS, ...record.spec } };
    } catch {
      return undefined;
    }
  }

  #readText(id: SandboxId): string {
    try {
      return readFileSync(this.pathOf(id, RECORD_FILE), "utf8");
    } catch (error) {
      if ((error as NodeJS.ErrnoException).code !== "ENOENT") throw error;
      return readFileSync(this.pathOf(id, WARM_FILE), "utf8");
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

  #owners(id: SandboxId): Owner[] {
    let names: string[];
    try {
      names = readdirSync(this.pathOf(id));
    } catch {
      return [];
    }
    return names.flatMap((name) => {
      const match = /^owner\.(\d+)\.(\d+)(?:\.([0-9a-f]+))?$/.exec(name);
      return match?.[1] !== undefined && match[2] !== undefined
        ? [{ pid: Number(match[1]), startTicks: match[2], boot: match[3] }]
        : [];
    });
  }

  /** True if a living process answers for it. */
  hasLivingOwner(id: SandboxId): boolean {
    return this.#owners(id).some((owner) => this.#isLiving(id, owner));
  }

  /** After a reboot nobody does, whatever the ticks say. */
  #isLiving(id: SandboxId, owner: Owner): boolean {
    if (owner.boot !== undefined) return owner.boot === bootTag() && isAlive(owner);
    const record = this.read(id);
    return (record === undefined || record.bootId === bootId()) && isAlive(owner);
  }

  /**
   * Takes a sandbox over from nobody, or from dead owners (`remains`: they may not have finished what they did). Undefined
   * if somebody else was quicker, it has an owner, or there is none to take over from.
   */
  takeOver(id: SandboxId, newOwner: ProcessIdentity): { readonly remains: boolean } | undefined {
    const owners = this.#owners(id);
    const [old, ...others] = owners;
    if (old === undefined || owners.some((owner) => this.#isLiving(id, owner))) return undefined;
    try {
      renameSync(this.pathOf(id, ownerFileName(old)), this.pathOf(id, ownerFileName(ownerOf(newOwner))));
    } catch {
      return undefined;
    }
    for (const other of others) rmSync(this.pathOf(id, ownerFileName(other)), { recursive: true, force: true });
    return { remains: old.pid !== NOBODY.pid || old.startTicks !== NOBODY.startTicks || others.length > 0 };
  }

  /**
   * Lets go of it, so that another process may take it over although this one lives. With `remains` whoever does so knows
   * that something is left to be finished.
   */
  disown(id: SandboxId, owner: ProcessIdentity, options: { readonly remains?: boolean } = {}): void {
    const next = options.remains === true ? NOBODY_YET : NOBODY;
    try {
      renameSync(this.pathOf(id, ownerFileName(ownerOf(owner))), this.pathOf(id, ownerFileName(next)));
    } catch {
      // It has been removed, or was never ours.
    }
  }

  /** Whether nobody answers for it and nothing of it is left unfinished. */
  isAtRest(id: SandboxId): boolean {
    const owners = this.#owners(id);
    return owners.length === 1 && owners[0]?.pid === NOBODY.pid && owners[0].startTicks === NOBODY.startTicks;
  }

  hasOwner(id: SandboxId): boolean {
    return this.#owners(id).length > 0;
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
const NOBODY: Owner = { pid: 0, startTicks: "0", boot: undefined };
const NOBODY_YET: Owner = { pid: 0, startTicks: "1", boot: undefined };

const ownerOf = (identity: ProcessIdentity): Owner => ({ ...identity, boot: bootTag() });
const ownerFileName = ({ pid, startTicks, boot }: Owner): string =>
  `owner.${pid}.${startTicks}${boot === undefined ? "" : `.${boot}`}`;
