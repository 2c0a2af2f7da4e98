/**
 * Volumes: directories that outlive sandboxes and can be shown in several at once. They lie in the pool beside the
 * sandboxes' disks, each with a limit of its own, and are shown by `SandboxSpec.mounts`.
 *
 * Like any directory that can be written inside, a volume gets no set-id programs from a sandbox: its files have plain ids in
 * the pool. Nobody could run them as such anyway, neither inside, where mounts are nosuid, nor outside, where only root can
 * enter the pool.
 */
import type { SandboxId } from "@holdfast/protocol";

export interface Volumes {
  /** Whether the kernel refuses what is written above a volume's limit. If not, nobody does. */
  readonly enforcesLimits: boolean;
  /** The id names a directory: `v` and 20 lower-case letters and digits. */
  create(id: string, options: { readonly limitBytes: number }): Promise<void>;
  has(id: string): boolean;
  list(): string[];
  /** Where its files are: the source of a mount. */
  path(id: string): string;
  /** Null where the pool cannot tell without looking at every file. */
  usedBytes(id: string): Promise<number | null>;
  /** Sandboxes of whatever process that have it: those being made and stopped ones too. */
  users(id: string): SandboxId[];
  /** Refuses with `volume_in_use` while a sandbox has it. Gone already is fine. */
  remove(id: string): Promise<void>;
}
