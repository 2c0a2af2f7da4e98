/** One request's view of a volume, from inside the sandbox that shows it and nothing else of value. */
import type { FileEntry, Sandbox, SandboxFiles } from "@holdfast/engine";
import { HoldfastError } from "@holdfast/protocol";

/** Where the volume is, inside. */
export const INSIDE_PLACE = "/volume";
const COMMAND_MS = 60_000;
const MOST_SAID_CHARACTERS = 1000;

export class InsideVolume {
  readonly #sandbox: Sandbox;

  constructor(sandbox: Sandbox) {
    this.#sandbox = sandbox;
  }

  get files(): SandboxFiles {
    return this.#sandbox.files;
  }

  /**
   * A path of the volume as one for `files`. Links of the volume that lead out of it lead to nothing that is anybody's, and
   * are refused, so that nobody takes that for a place in the volume. `last`: whether the last name's link is followed, too.
   */
  async at(given: string, { last }: { readonly last: "followed" | "itself" }): Promise<string> {
    const names = namesOf(given);
    const links = last === "followed" ? names.length : names.length - 1;
    for (let count = 1; count <= links; count++) {
      const path = [INSIDE_PLACE, ...names.slice(0, count)].join("/");
      const entry = await this.#look(path);
      if (entry === undefined) break;
      if (entry.type === "symlink") requireInside(entry);
    }
    return [INSIDE_PLACE, ...names].join("/");
  }

  /** As whoever asks knows it. */
  shown(path: string): string {
    return path.slice(INSIDE_PLACE.length) || "/";
  }

  async setOwner(at: string, { uid, gid }: { readonly uid?: number | undefined; readonly gid?: number | undefined }) {
    if (uid === undefined && gid === undefined) return;
    const owner = `${uid ?? ""}${gid === undefined ? "" : `:${gid}`}`;
    await this.#run(["/usr/bin/chown", "--no-dereference", "--", owner, at]);
  }

  async setMode(at: string, mode: number): Promise<void> {
    await this.#run(["/usr/bin/chmod", "--", mode.toString(8).padStart(4, "0"), at]);
  }

  /** Undefined if it is not there, or not reached by that way. */
  async #look(path: string): Promise<FileEntry | undefined> {
    try {
      return await this.files.stat(path);
    } catch (error) {
      const { code } = HoldfastError.from(error);
      if (code === "file_not_found" || code === "file_wrong_type") return undefined;
      throw error;
    }
  }

  async #run(argv: readonly string[]): Promise<void> {
    const command = await this.#sandbox.start({ argv, user: "root", stdin: "closed", limits: { wallMs: COMMAND_MS } });
    let said = "";
    for await (const event of command.output()) {
      if (event.kind === "data" && said.length < MOST_SAID_CHARACTERS) said += event.bytes.toString();
    }
    const { cause } = await command.ended;
    if (cause.kind === "exited" && cause.code === 0) return;
    const why = said.trim().slice(0, MOST_SAID_CHARACTERS);
    if (/No such file or directory$/.test(why)) throw new HoldfastError("file_not_found", why);
    throw new HoldfastError("file_access_denied", why || `it could not be changed (${cause.kind})`);
  }
}

function namesOf(given: string): string[] {
  const names = given.split("/").filter((name) => name !== "" && name !== ".");
  if (given === "" || given.includes("\0") || names.includes("..")) {
    throw new HoldfastError("invalid_argument", "path: expected a path in the volume, without .. and NUL", {
      details: { field: "path" },
    });
  }
  return names;
}

function requireInside({ path, link }: FileEntry): void {
  const resolved = link?.resolved;
  if (resolved === undefined)
    throw new HoldfastError("file_not_found", `path '${path}' is a link that leads to nothing`);
  if (resolved === INSIDE_PLACE || resolved.startsWith(`${INSIDE_PLACE}/`)) return;
  throw new HoldfastError("file_access_denied", `path '${path}' is a link that leads out of the volume`);
}
