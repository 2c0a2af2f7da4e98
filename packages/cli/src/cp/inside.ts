/** What a copy asks of the sandbox beside the content itself. */
import { type CommandEnding, type FileInfo, HoldfastError, printable } from "@holdfast/protocol";
import type { Sandbox, StreamedCommand } from "@holdfast/sdk";
import { note } from "../text/notes.js";

export interface Inside {
  readonly sandbox: Sandbox;
  readonly user: string | undefined;
}

const MAX_NOTES = 10;

function isMissing(reason: unknown): boolean {
  return reason instanceof HoldfastError && (reason.code === "file_not_found" || reason.code === "file_wrong_type");
}

/** Undefined if it is not there. */
export async function infoOf({ sandbox, user }: Inside, path: string): Promise<FileInfo | undefined> {
  try {
    return await sandbox.files.info(path, { user });
  } catch (reason) {
    if (isMissing(reason)) return undefined;
    throw reason;
  }
}

/** A link to a directory counts as one. */
export async function isDirectoryInside(inside: Inside, path: string): Promise<boolean> {
  const info = await infoOf(inside, path.endsWith("/") ? `${path}.` : `${path}/.`);
  return info?.type === "directory";
}

export async function startTar(
  { sandbox, user }: Inside,
  args: readonly string[],
  options: { readonly stdin: "open" | "closed"; readonly signal: AbortSignal },
): Promise<StreamedCommand> {
  try {
    return await sandbox.stream(["tar", ...args], { ...options, user });
  } catch (reason) {
    if (!(reason instanceof HoldfastError) || reason.code !== "command_failed_to_start") throw reason;
    throw new HoldfastError(
      "command_failed_to_start",
      "there is no tar in the sandbox, which directories are copied with",
      {
        hint: "Copy files one at a time, or use a template that has tar.",
        cause: reason,
      },
    );
  }
}

/** What tar says in there is shown, a little of it, without what could move a terminal's cursor. */
export class TarNotes {
  #rest = "";
  #shown = 0;

  add(bytes: Uint8Array): void {
    const lines = (this.#rest + Buffer.from(bytes).toString("utf8")).split("\n");
    this.#rest = (lines.pop() ?? "").slice(0, 1000);
    for (const line of lines) this.#show(line);
  }

  finish(): void {
    if (this.#rest !== "") this.#show(this.#rest);
    this.#rest = "";
    if (this.#shown > MAX_NOTES) note(`and ${this.#shown - MAX_NOTES} more such lines`);
  }

  #show(line: string): void {
    this.#shown += 1;
    if (this.#shown <= MAX_NOTES) note(`in the sandbox: ${printable(line)}`);
  }
}

/** tar(1) exits with 1 or 2 when it could not read or write some of it; anything else is an end it did not choose. */
export function tarExitCode(ending: CommandEnding): number {
  if (ending.cause.kind === "exited") return ending.cause.code === 0 ? 0 : 1;
  throw new HoldfastError("command_failed_to_start", `the copy broke off: ${ending.message}`, {
    details: { cause: ending.cause },
  });
}
