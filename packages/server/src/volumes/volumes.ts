/**
 * Directories that outlive sandboxes and can be shown in several at once.
 *
 * What a volume holds is the volume's, never the sandbox's: a sandbox that is paused to its files, or forked, comes back with
 * the same volumes and finds in them what is there by then. An image of a sandbox's files holds nothing of its volumes, and
 * does not name them: whoever makes a sandbox of it may be somebody else, and says which volumes of his own it shall have.
 */
import type { MountSpec } from "@holdfast/engine";
import type { Caller } from "../sandboxes/types.js";
import type { VolumeMount } from "../store/store.js";
import type { InsideVolume } from "./inside-volume.js";

export interface Volume {
  readonly id: string;
  readonly name: string;
  readonly keyId: string;
  readonly createdAt: Date;
}

/** Every method that takes a caller answers `volume_not_found` for what is not the caller's. */
export interface Volumes {
  /** `volume_exists` if the caller has one of that name. */
  create(caller: Caller, name: string): Promise<Volume>;
  list(caller: Caller): Promise<Volume[]>;
  /** By id or by name. */
  find(caller: Caller, idOrName: string): Promise<Volume>;
  /** `volume_in_use` while a sandbox, running or paused, has it. */
  remove(caller: Caller, id: string): Promise<void>;
  /** Opens its content by itself, without a key. Derived, so that it survives the server and is stored nowhere. */
  tokenOf(volume: Volume): string;
  /**
   * What the engine mounts for them. `volume_not_found` if one has gone since it was found: as long as nothing is waited for
   * between this and the engine's create, none goes.
   */
  mountsOf(mounts: readonly VolumeMount[]): MountSpec[];
}

/** For those who come without a sandbox. */
export interface VolumeContent {
  use<T>(volume: Pick<Volume, "id" | "keyId">, work: (inside: InsideVolume) => Promise<T>): Promise<T>;
}

/** What the server itself works with. */
export interface OpenedVolumes extends Volumes {
  /** The volume, if whoever asks has its token; undefined if not. `volume_not_found` if it has the token of one that is gone. */
  byToken(id: string, isRight: (token: string) => boolean): Volume | undefined;
  readonly content: VolumeContent;
  close(): Promise<void>;
}
