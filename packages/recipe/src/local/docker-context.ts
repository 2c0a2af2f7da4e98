/** The files that a Dockerfile's COPY and ADD name, as docker finds them: below the context, and not ignored. */
import type { Stats } from "node:fs";
import { lstat, open, realpath, stat } from "node:fs/promises";
import { basename, join, relative, sep } from "node:path";
import { HoldfastError } from "@holdfast/protocol";
import type { BlobList } from "../blob-list.js";
import type { CopiedTree, CopyContext, CopyRequest } from "../dockerfile/copy.js";
import { globPattern, hasWildcard } from "../glob.js";
import type { IgnoreRules } from "../ignore-rules.js";
import { cleanPath } from "../paths.js";
import { localFault } from "./local-fault.js";
import { treeOf } from "./tree-of.js";
import { entryFrom, type FoundEntry, kindOf, readNames, requireUtf8, walk } from "./walk.js";

interface Source {
  /** Below the context, as written. */
  readonly path: string;
  /** Where it lies, links followed. */
  readonly real: string;
  readonly stats: Stats;
}

/** What ADD would unpack, by how it begins. */
const ARCHIVES: readonly { readonly at: number; readonly bytes: readonly number[] }[] = [
  { at: 0, bytes: [0x1f, 0x8b] },
  { at: 0, bytes: [0x42, 0x5a, 0x68] },
  { at: 0, bytes: [0xfd, 0x37, 0x7a, 0x58, 0x5a, 0x00] },
  { at: 0, bytes: [0x28, 0xb5, 0x2f, 0xfd] },
  { at: 257, bytes: [0x75, 0x73, 0x74, 0x61, 0x72] },
];

export class DockerContext implements CopyContext {
  readonly #directory: string;
  readonly #rules: IgnoreRules;
  readonly #blobs: BlobList;

  /** The directory by its real path. */
  constructor(directory: string, rules: IgnoreRules, blobs: BlobList) {
    this.#directory = directory;
    this.#rules = rules;
    this.#blobs = blobs;
  }

  async copy({ sources, intoDirectory, refuseArchives }: CopyRequest): Promise<CopiedTree> {
    const found: Source[] = [];
    for (const source of sources) found.push(...(await this.#find(source)));
    const [only] = found;
    if (refuseArchives) for (const source of found) await refuseArchive(source);
    const options = { blobs: this.#blobs, keepOwner: false };
    if (only !== undefined && found.length === 1 && only.stats.isFile() && !intoDirectory) {
      const tree = await treeOf([{ ...entryFrom("", only.real, only.stats), type: "file" }], options);
      return { tree, name: basename(only.path) };
    }
    if (found.length > 1 && !intoDirectory) {
      throw new HoldfastError("invalid_argument", `${sources.join(" ")} matches ${found.length} sources`, {
        hint: "Let the target end with a slash: they go into it.",
      });
    }
    const entries = new Map<string, FoundEntry>();
    for (const source of found) for (const entry of await this.#entries(source)) merge(entries, entry);
    return { tree: await treeOf([...entries.values()], options) };
  }

  async #find(written: string): Promise<Source[]> {
    const { names, up } = cleanPath(written);
    if (up > 0) throw new HoldfastError("invalid_argument", `${written} lies outside of the context`);
    const paths = hasWildcard(written) ? await this.#expand(names) : [names.join("/")];
    const found: Source[] = [];
    for (const path of paths) found.push(...(await this.#look(path)));
    if (found.length > 0) return found;
    throw new HoldfastError(
      "invalid_argument",
      `${written} is not in the context ${this.#directory}, or it is ignored`,
    );
  }

  /** Names that match, one part of the path after the other. Links are not followed to look for more. */
  async #expand(names: readonly string[]): Promise<string[]> {
    let paths = [""];
    const first = names.findIndex(hasWildcard);
    for (const [index, name] of names.entries()) {
      if (index > first) paths = await this.#withoutLinks(paths);
      const below: string[] = [];
      for (const path of paths) {
        const candidates = hasWildcard(name) ? await this.#names(path, matcherOf(name)) : [name];
        below.push(...candidates.map((candidate) => (path === "" ? candidate : `${path}/${candidate}`)));
      }
      paths = below;
    }
    return paths;
  }

  async #withoutLinks(paths: readonly string[]): Promise<string[]> {
    const kept: string[] = [];
    for (const path of paths) if (!(await isLink(join(this.#directory, path)))) kept.push(path);
    return kept;
  }

  async #names(path: string, isWanted: (name: string) => boolean): Promise<string[]> {
    const directory = await this.#resolve(path);
    if (directory?.stats.isDirectory() !== true) return [];
    const names = await readNames(directory.real);
    return names.filter(({ text }) => isWanted(text)).map((name) => requireUtf8(name, directory.real));
  }

  /** Nothing if it is not there or ignored, by its own path or by that of what it links to. */
  async #look(path: string): Promise<Source[]> {
    const source = await this.#resolve(path);
    if (source === undefined) return [];
    if (source.stats.isDirectory()) {
      const isIgnored = this.#isIgnored(source);
      if (!isIgnored) return [source];
      return this.#rules.canKeepBelow && (await this.#entries(source)).length > 0 ? [source] : [];
    }
    if (this.#isIgnored(source)) return [];
    if (source.stats.isFile()) return [source];
    throw new HoldfastError("invalid_argument", `${path} is ${kindOf(source.stats)}, which an image cannot be given`);
  }

  #isIgnored({ path, real }: Source): boolean {
    return [path, this.#below(real)].some((candidate) => candidate !== "" && this.#rules.ignoresPath(candidate));
  }

  #below(real: string): string {
    return relative(this.#directory, real).split(sep).join("/");
  }

  /** Links are followed as long as they stay in the context. */
  async #resolve(path: string): Promise<Source | undefined> {
    const place = join(this.#directory, path);
    try {
      const real = await realpath(place);
      if (real !== this.#directory && !real.startsWith(join(this.#directory, sep))) {
        throw new HoldfastError("invalid_argument", `${path} is a link that leads out of the context`);
      }
      return { path, real, stats: await stat(real) };
    } catch (error) {
      const code = error instanceof Error && "code" in error ? error.code : undefined;
      if ((code === "ENOENT" || code === "ENOTDIR") && !(await isLink(place))) return undefined;
      throw localFault(place, error);
    }
  }

  async #entries(source: Source): Promise<FoundEntry[]> {
    if (source.stats.isDirectory())
      return walk(source.real, { rules: this.#rules, rulePath: this.#below(source.real) });
    return [{ ...entryFrom(basename(source.path), source.real, source.stats), type: "file" }];
  }
}

async function isLink(path: string): Promise<boolean> {
  const stats = await lstat(path).catch(() => undefined);
  return stats?.isSymbolicLink() === true;
}

function matcherOf(glob: string): (name: string) => boolean {
  const pattern = globPattern(glob);
  return (name) => pattern.test(name);
}

/** A later source wins over an earlier one, but a file is never put in a directory's place. */
function merge(entries: Map<string, FoundEntry>, entry: FoundEntry): void {
  const present = entries.get(entry.path);
  if (present !== undefined && (present.type === "directory") !== (entry.type === "directory")) {
    throw new HoldfastError("invalid_argument", `${entry.path} is a directory in one source and not in another`);
  }
  entries.set(entry.path, entry);
}

async function refuseArchive({ path, real, stats }: Source): Promise<void> {
  if (!stats.isFile()) return;
  const handle = await open(real).catch((error: unknown) => {
    throw localFault(real, error);
  });
  try {
    const { buffer, bytesRead } = await handle.read(new Uint8Array(512), 0, 512, 0);
    const head = buffer.subarray(0, bytesRead);
    if (!ARCHIVES.some(({ at, bytes }) => bytes.every((byte, index) => head[at + index] === byte))) return;
  } finally {
    await handle.close();
  }
  throw new HoldfastError("invalid_argument", `${path} is an archive, and unpacking archives is not supported`, {
    hint: "COPY it, then RUN tar to unpack it.",
  });
}
