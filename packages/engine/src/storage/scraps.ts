/**
 * What comes and goes in a directory of a pool (layers, volumes), under names that say whose work it is:
 *
 *   .new-<id>.<maker>       one that is being made
 *   .leaving-<id>.<remover> an empty mark: somebody is about to remove it, unless it turns out that a sandbox uses it
 *   .rest-<id>.<remover>    one that is being removed for good, part of it may be gone already
 *
 * Makers and removers are named by process; what a dead one left is swept. Everything appears and goes by being renamed.
 * Between a sandbox that is being made and a removal nobody takes a lock: whoever makes one first says what it uses, then
 * looks for marks; whoever removes something first marks it, then looks whether anybody has said so, and if so leaves it.
 * It is never away for a moment: a sandbox that has seen no mark may be mounting it.
 */
import { readdirSync, renameSync, rmSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { setTimeout as sleep } from "node:timers/promises";
import { HoldfastError } from "@holdfast/protocol";
import { bootTag, isAlive, type ProcessIdentity } from "../host/processes.js";

type Kind = "new" | "leaving" | "rest";

interface Scrap {
  readonly kind: Kind;
  readonly id: string;
  readonly path: string;
  readonly isLeft: boolean;
}

const NAME = /^\.(new|leaving|rest)-([a-z0-9]+)\.(\d+)\.(\d+)\.([0-9a-f]+)\.\d+$/;
const LOOK_MS = 5;
/** A remover that is alive decides within a moment; one that was stopped by somebody is not waited for without end. */
const UNDECIDED_FOR_MS = 10_000;

export class Scraps {
  readonly #directory: string;
  readonly #us: ProcessIdentity;
  #serial = 0;

  constructor(directory: string, us: ProcessIdentity) {
    this.#directory = directory;
    this.#us = us;
  }

  path(kind: Kind, id: string): string {
    const { pid, startTicks } = this.#us;
    const serial = `${process.hrtime.bigint()}${this.#serial++}`;
    return join(this.#directory, `.${kind}-${id}.${pid}.${startTicks}.${bootTag()}.${serial}`);
  }

  /** Everything in the directory, come or coming; empty while there is none. */
  names(): string[] {
    try {
      return readdirSync(this.#directory);
    } catch {
      return [];
    }
  }

  /**
   * Takes it away, unless `requireUnused` throws. Returns where it lies now, to be removed; undefined if somebody else was
   * quicker.
   */
  takeAway(id: string, requireUnused: () => void): string | undefined {
    const mark = this.path("leaving", id);
    writeFileSync(mark, "");
    try {
      requireUnused();
      return this.#putAside(id, join(this.#directory, id));
    } finally {
      rmSync(mark, { force: true });
    }
  }

  /** For whoever has said before that it uses them: resolves when nobody is about to take one of them away any more. */
  async decided(ids: readonly string[]): Promise<void> {
    const deadline = Date.now() + UNDECIDED_FOR_MS;
    const isAboutToGo = ({ kind, id, isLeft }: Scrap) => kind === "leaving" && !isLeft && ids.includes(id);
    while (this.#scraps().some(isAboutToGo) && Date.now() < deadline) await sleep(LOOK_MS);
  }

  /** What dead processes left. */
  async sweep(options: {
    readonly remove: (path: string) => Promise<void>;
    readonly onFailure: (path: string, error: unknown) => void;
  }): Promise<void> {
    for (const { kind, id, path, isLeft } of this.#scraps()) {
      if (!isLeft) continue;
      try {
        const rest = kind === "leaving" ? rmSync(path, { force: true }) : this.#putAside(id, path);
        if (rest !== undefined) await options.remove(rest);
      } catch (error) {
        options.onFailure(path, error);
      }
    }
  }

  /** From here on it does not come back. Undefined if somebody else was quicker. */
  #putAside(id: string, path: string): string | undefined {
    const rest = this.path("rest", id);
    try {
      renameSync(path, rest);
      return rest;
    } catch (error) {
      if ((error as NodeJS.ErrnoException).code === "ENOENT") return undefined;
      throw HoldfastError.from(error);
    }
  }

  #scraps(): Scrap[] {
    return this.names().flatMap((name) => {
      const [, kind, id, pid, startTicks, boot] = NAME.exec(name) ?? [];
      if (kind === undefined || id === undefined || startTicks === undefined) return [];
      const isLeft = boot !== bootTag() || !isAlive({ pid: Number(pid), startTicks });
      return [{ kind: kind as Kind, id, path: join(this.#directory, name), isLeft }];
    });
  }
}
