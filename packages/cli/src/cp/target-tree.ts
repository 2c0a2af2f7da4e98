/**
 * A directory of this machine that is filled with what a sandbox sent. Nothing outside it can be reached, whatever the
 * names are and whatever links are already there: each step down is taken from an open directory, and none through a
 * link. Names are latin1 strings, one character for each byte.
 */
import { constants, type Stats } from "node:fs";
import { type FileHandle, lstat, mkdir, open, symlink, unlink, writeFile } from "node:fs/promises";
import { HoldfastError } from "@holdfast/protocol";
import { partsOfName, showName } from "./safe-names.js";

const { O_RDONLY, O_WRONLY, O_CREAT, O_EXCL, O_DIRECTORY, O_NOFOLLOW, O_NONBLOCK } = constants;
/** No set-id bits: they would make a program of the sandbox's run as whoever copies it. */
const MODE_BITS = 0o777;

interface Step {
  readonly name: string;
  readonly handle: FileHandle;
}

/** A name in an open directory: the kernel resolves the first part to the directory itself. */
function within(directory: FileHandle, name: string): Buffer {
  return Buffer.from(`/proc/self/fd/${directory.fd}/${name}`, "latin1");
}

function isCode(error: unknown, code: string): boolean {
  return (error as NodeJS.ErrnoException).code === code;
}

export class TargetTree {
  readonly #root: FileHandle;
  readonly #shownPath: string;
  /** The directories that were open last, from the top. The next file is likely in the same. */
  #steps: Step[] = [];

  private constructor(root: FileHandle, shownPath: string) {
    this.#root = root;
    this.#shownPath = shownPath;
  }

  /** The directory itself is whoever copies' choice, so it may be a link; it is made if it is not there. */
  static async open(path: string): Promise<TargetTree> {
    await mkdir(path, { recursive: true });
    return new TargetTree(await open(path, O_RDONLY | O_DIRECTORY), path);
  }

  async makeDirectory(name: string, mode: number): Promise<void> {
    const parts = partsOfName(name);
    const directory = await this.#directory(parts);
    // We must be able to go on writing into it, and to remove it.
    if (parts.length > 0) await directory.chmod((mode & MODE_BITS) | 0o700);
  }

  async writeFile(
    name: string,
    facts: { readonly mode: number; readonly modifiedMs: number },
    content: AsyncIterable<Uint8Array>,
  ): Promise<void> {
    const { directory, base } = await this.#parent(name);
    await this.#clear(directory, base, name);
    const file = await open(within(directory, base), O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW, 0o600);
    try {
      await writeFile(file, content);
      await file.chmod(facts.mode & MODE_BITS);
      await file.utimes(facts.modifiedMs / 1000, facts.modifiedMs / 1000);
    } finally {
      await file.close();
    }
  }

  /** The caller has seen to it that the link stays inside. */
  async makeSymlink(name: string, target: string): Promise<void> {
    const { directory, base } = await this.#parent(name);
    await this.#clear(directory, base, name);
    await symlink(Buffer.from(target, "latin1"), within(directory, base));
  }

  /** For what was a second name of a file that came before. */
  async copyFile(name: string, from: string): Promise<void> {
    const { directory, base } = await this.#parent(from);
    const source = await open(within(directory, base), O_RDONLY | O_NOFOLLOW | O_NONBLOCK).catch((error: unknown) => {
      throw this.#refusal(from, error);
    });
    try {
      const facts = await source.stat();
      if (!facts.isFile()) throw this.#refusal(from, new Error("is no file"));
      const content = source.createReadStream({ autoClose: false, start: 0 });
      await this.writeFile(name, { mode: facts.mode, modifiedMs: facts.mtimeMs }, content);
    } finally {
      await source.close();
    }
  }

  async close(): Promise<void> {
    await this.#letGo(0);
    await this.#root.close();
  }

  async #parent(name: string): Promise<{ readonly directory: FileHandle; readonly base: string }> {
    const parts = partsOfName(name);
    const base = parts.pop();
    if (base === undefined) throw this.#refusal(name, new Error("has no name"));
    return { directory: await this.#directory(parts), base };
  }

  /** Opens each directory in turn, making those that are not there. */
  async #directory(parts: readonly string[]): Promise<FileHandle> {
    let shared = 0;
    while (shared < this.#steps.length && this.#steps[shared]?.name === parts[shared]) shared += 1;
    await this.#letGo(shared);
    let directory = this.#steps.at(-1)?.handle ?? this.#root;
    for (const name of parts.slice(shared)) {
      directory = await this.#stepInto(directory, name, parts);
      this.#steps.push({ name, handle: directory });
    }
    return directory;
  }

  async #stepInto(directory: FileHandle, name: string, parts: readonly string[]): Promise<FileHandle> {
    const path = within(directory, name);
    try {
      await mkdir(path, 0o755);
    } catch (error) {
      if (!isCode(error, "EEXIST")) throw this.#refusal(parts.join("/"), error);
    }
    try {
      return await open(path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW);
    } catch (error) {
      const reason = isCode(error, "ELOOP") || isCode(error, "ENOTDIR") ? new Error("is a link or a file here") : error;
      throw this.#refusal(parts.join("/"), reason);
    }
  }

  /** Replaces a file or a link, never a directory. */
  async #clear(directory: FileHandle, base: string, name: string): Promise<void> {
    let existing: Stats;
    try {
      existing = await lstat(within(directory, base));
    } catch (error) {
      if (isCode(error, "ENOENT")) return;
      throw this.#refusal(name, error);
    }
    if (existing.isDirectory()) throw this.#refusal(name, new Error("is a directory here"));
    await unlink(within(directory, base));
  }

  async #letGo(keep: number): Promise<void> {
    for (const { handle } of this.#steps.splice(keep).reverse()) await handle.close();
  }

  #refusal(name: string, reason: unknown): HoldfastError {
    const why = reason instanceof Error ? reason.message.replace(/, \w+ '.*$/s, "") : String(reason);
    return new HoldfastError("file_access_denied", `cannot write ${showName(name)} below ${this.#shownPath}: ${why}`, {
      cause: reason,
    });
  }
}
