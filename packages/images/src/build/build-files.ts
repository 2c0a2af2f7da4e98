/**
 * Builds as files, which is all that processes know of each other's:
 *
 *   builds/<id>/info.json        what is known of it, whole at any moment
 *   builds/<id>/lease.json       the process that runs it; touched every few seconds
 *   builds/<id>/askers/<name>    one for everybody who waits for its result, named after the process
 *   builds/<id>/sandboxes/<id>   sandboxes that it has under way
 *   builds/<id>/cancel           somebody else wants it to end; says who
 *   builds/<id>/buried           its process is gone, and somebody has seen to what it left
 *   builds/<id>/log*.ndjson      see build-log.ts
 *   builds/by-hash/<hex>         the id of the one build of that content which is under way
 */
import {
  closeSync,
  linkSync,
  mkdirSync,
  openSync,
  readdirSync,
  readFileSync,
  rmSync,
  statSync,
  utimesSync,
  writeFileSync,
} from "node:fs";
import { join } from "node:path";
import { createLayerId } from "@holdfast/engine";
import { parseSandboxId, type SandboxId } from "@holdfast/protocol";
import type { Digest } from "@holdfast/recipe";
import { claimLayer, releaseClaims } from "../store/claims.js";
import { errorFromFile, isMissing } from "../store/file-error.js";
import { isBuildId } from "../store/ids.js";
import { isTagOfLiving, processTag, tagOfUniqueName, uniqueName } from "../store/process-tag.js";
import { namesIn, WholeFiles } from "../store/whole-files.js";
import type { BuildId, BuildInfo } from "../types.js";
import type { BuildSettings } from "./build-settings.js";
import { Wakes } from "./wakes.js";

export const HEARTBEAT_MS = 2000;
/** A process that has not been heard of for so long does not work, whether or not it lives. */
export const LEASE_MS = 30_000;

export interface StoredBuild {
  readonly version: 1;
  readonly info: BuildInfo;
  readonly settings: BuildSettings;
  /** From which step on results that are known do not count. */
  readonly forceFrom: number | null;
  /** The builds whose work it has waited for, one after the other; its log goes on with theirs. */
  readonly follows: readonly BuildId[];
}

export function hasEnded({ state }: Pick<BuildInfo, "state">): boolean {
  return state === "ready" || state === "failed" || state === "canceled";
}

export class BuildFiles {
  readonly directory: string;
  /** Of builds of this process; others are looked at every now and then. */
  readonly wakes = new Wakes();
  readonly #storeDirectory: string;
  readonly #byHash: string;
  readonly #whole: WholeFiles;

  /** Of the image store. */
  constructor(storeDirectory: string) {
    this.#storeDirectory = storeDirectory;
    this.directory = join(storeDirectory, "builds");
    this.#byHash = join(this.directory, "by-hash");
    mkdirSync(this.#byHash, { recursive: true, mode: 0o700 });
    this.#whole = new WholeFiles(join(this.directory, "fresh"));
  }

  pathOf(id: BuildId, name = ""): string {
    return join(this.directory, id, name);
  }

  ids(): BuildId[] {
    return namesIn(this.directory).filter(isBuildId);
  }

  /** False if there is one of that id. The caller holds its lease. */
  create(id: BuildId, stored: StoredBuild): boolean {
    try {
      mkdirSync(this.pathOf(id), { mode: 0o700 });
    } catch (error) {
      if ((error as NodeJS.ErrnoException).code === "EEXIST") return false;
      throw errorFromFile(error, `making ${this.pathOf(id)}`);
    }
    try {
      // Whole: one that is half written is a dead process's.
      this.#whole.write(this.pathOf(id, "lease.json"), JSON.stringify({ process: processTag() }), { durable: false });
      mkdirSync(this.pathOf(id, "askers"), { mode: 0o700 });
      mkdirSync(this.pathOf(id, "sandboxes"), { mode: 0o700 });
      // Of a layer that never will be: whoever removes what is left of builds goes by such claims.
      claimLayer(this.#storeDirectory, id, createLayerId());
      this.write(id, stored);
      return true;
    } catch (error) {
      this.forget(id);
      throw errorFromFile(error, `making ${this.pathOf(id)}`);
    }
  }

  /** Nothing that it has made is in need of a claim any more. */
  releaseClaims(id: BuildId): void {
    releaseClaims(this.#storeDirectory, id);
  }

  /** Of one that nobody has heard of yet. */
  forget(id: BuildId): void {
    rmSync(this.pathOf(id), { recursive: true, force: true });
  }

  read(id: BuildId): StoredBuild | undefined {
    try {
      const stored = JSON.parse(readFileSync(this.pathOf(id, "info.json"), "utf8")) as StoredBuild;
      return stored.version === 1 && stored.info.id === id ? stored : undefined;
    } catch (error) {
      if (isMissing(error) || error instanceof SyntaxError || error instanceof TypeError) return undefined;
      throw errorFromFile(error, `reading ${this.pathOf(id, "info.json")}`);
    }
  }

  write(id: BuildId, stored: StoredBuild): void {
    this.#whole.write(this.pathOf(id, "info.json"), JSON.stringify(stored), { durable: hasEnded(stored.info) });
    this.wakes.wake(id);
  }

  beat(id: BuildId): void {
    const now = new Date();
    utimesSync(this.pathOf(id, "lease.json"), now, now);
  }

  releaseLease(id: BuildId): void {
    rmSync(this.pathOf(id, "lease.json"), { force: true });
  }

  /** Whether a process that lives and works answers for it. */
  hasLease(id: BuildId): boolean {
    const path = this.pathOf(id, "lease.json");
    try {
      const lease = JSON.parse(readFileSync(path, "utf8")) as { readonly process?: unknown };
      const beatAgoMs = Date.now() - statSync(path).mtimeMs;
      return typeof lease.process === "string" && isTagOfLiving(lease.process) && beatAgoMs < LEASE_MS;
    } catch {
      // None, or one that was cut off while it was written: its process is gone.
      return false;
    }
  }

  /** Whether its process has gone without a word. */
  wasLeft(id: BuildId): boolean {
    return statSync(this.pathOf(id, "lease.json"), { throwIfNoEntry: false }) !== undefined && !this.hasLease(id);
  }

  /** True for one caller only, of whatever process; that one then tidies up. */
  bury(id: BuildId): boolean {
    try {
      closeSync(openSync(this.pathOf(id, "buried"), "wx", 0o600));
      return true;
    } catch (error) {
      if ((error as NodeJS.ErrnoException).code === "EEXIST" || isMissing(error)) return false;
      throw errorFromFile(error, `writing ${this.pathOf(id, "buried")}`);
    }
  }

  /** When it was buried; undefined if it was not. */
  buriedAtMs(id: BuildId): number | undefined {
    return statSync(this.pathOf(id, "buried"), { throwIfNoEntry: false })?.mtimeMs;
  }

  /** False if another build of the same content is under way. */
  claimHash(digest: Digest, id: BuildId): boolean {
    const fresh = this.#whole.temporaryPath();
    writeFileSync(fresh, id, { mode: 0o600 });
    try {
      linkSync(fresh, this.#hashPath(digest));
      return true;
    } catch (error) {
      if ((error as NodeJS.ErrnoException).code === "EEXIST") return false;
      throw errorFromFile(error, `writing ${this.#hashPath(digest)}`);
    } finally {
      rmSync(fresh, { force: true });
    }
  }

  buildOfHash(digest: Digest): BuildId | undefined {
    try {
      const id = readFileSync(this.#hashPath(digest), "utf8");
      return isBuildId(id) ? id : undefined;
    } catch (error) {
      if (isMissing(error)) return undefined;
      throw errorFromFile(error, `reading ${this.#hashPath(digest)}`);
    }
  }

  /** Only for whoever runs that build or has buried it: then nobody else removes the entry, or puts another in its place. */
  releaseHash(digest: Digest, id: BuildId | undefined): void {
    if (this.buildOfHash(digest) === id) rmSync(this.#hashPath(digest), { force: true });
  }

  /** Returns how to leave; undefined if the build is gone. */
  ask(id: BuildId): (() => void) | undefined {
    const path = this.pathOf(id, join("askers", uniqueName()));
    try {
      writeFileSync(path, "", { mode: 0o600 });
    } catch (error) {
      if (isMissing(error)) return undefined;
      throw errorFromFile(error, `writing ${path}`);
    }
    return () => {
      rmSync(path, { force: true });
      this.wakes.wake(id);
    };
  }

  hasAskers(id: BuildId): boolean {
    return namesIn(this.pathOf(id, "askers")).some((name) => isTagOfLiving(tagOfUniqueName(name) ?? ""));
  }

  requestCancel(id: BuildId, by: string): void {
    this.#whole.write(this.pathOf(id, "cancel"), by, { durable: false });
    this.wakes.wake(id);
  }

  cancelRequest(id: BuildId): string | undefined {
    try {
      return readFileSync(this.pathOf(id, "cancel"), "utf8");
    } catch {
      // Nobody has asked.
      return undefined;
    }
  }

  exists(id: BuildId): boolean {
    return statSync(this.pathOf(id), { throwIfNoEntry: false }) !== undefined;
  }

  /** Written down before it is made, so that whatever becomes of us, it can be found. */
  noteSandbox(id: BuildId, sandbox: SandboxId): () => void {
    const path = this.pathOf(id, join("sandboxes", sandbox));
    writeFileSync(path, "", { mode: 0o600 });
    return () => rmSync(path, { force: true });
  }

  sandboxesOf(id: BuildId): SandboxId[] {
    return namesIn(this.pathOf(id, "sandboxes")).map((name) => parseSandboxId(name));
  }

  forgetSandbox(id: BuildId, sandbox: SandboxId): void {
    rmSync(this.pathOf(id, join("sandboxes", sandbox)), { force: true });
  }

  hashes(): { readonly digest: Digest; readonly id: BuildId | undefined }[] {
    return readdirSync(this.#byHash)
      .filter((name) => /^[0-9a-f]{64}$/.test(name))
      .map((name) => ({ digest: `sha256:${name}` as const, id: this.buildOfHash(`sha256:${name}`) }));
  }

  /** Scraps of killed processes. */
  sweep(): void {
    this.#whole.sweep();
  }

  #hashPath(digest: Digest): string {
    return join(this.#byHash, digest.slice("sha256:".length));
  }
}
