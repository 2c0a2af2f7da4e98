/** Names of images: one file each, below `<owner>/<name>/<tag>`; what it holds says whose and what it really is. */
import { linkSync, readFileSync, renameSync, rmdirSync, rmSync } from "node:fs";
import { dirname, join } from "node:path";
import type { Log } from "@holdfast/engine";
import type { ImageId, ImageName, Owner } from "../types.js";
import { fileNameOf } from "./file-name.js";
import { RecordReader } from "./record-reader.js";
import { type NameRecord, parseNameRecord } from "./records.js";
import { namesIn, type WholeFiles } from "./whole-files.js";

/** No encoded owner begins like this. */
const OPERATOR = "@operator";

export class NameFiles {
  readonly directory: string;
  readonly #files: WholeFiles;
  readonly #reader: RecordReader<NameRecord>;

  constructor(options: { readonly directory: string; readonly files: WholeFiles; readonly log: Log }) {
    this.directory = options.directory;
    this.#files = options.files;
    this.#reader = new RecordReader({
      parse: (text, path) => parseNameRecord(text, path, (name) => this.pathOf(name)),
      what: "the name of an image",
      log: options.log,
    });
  }

  pathOf({ owner, name, tag }: ImageName): string {
    return join(this.#directoryOf(owner), fileNameOf(name), fileNameOf(tag));
  }

  get(name: ImageName): NameRecord | undefined {
    const path = this.pathOf(name);
    return this.#reader.read(dirname(path), path.slice(dirname(path).length + 1))?.value;
  }

  set(name: ImageName, imageId: ImageId): void {
    const record: NameRecord = {
      version: 1,
      owner: name.owner,
      name: name.name,
      tag: name.tag,
      imageId,
      since: new Date().toISOString(),
    };
    this.#files.write(this.pathOf(name), JSON.stringify(record), { durable: true });
  }

  remove(name: ImageName): boolean {
    const isRemoved = this.#files.discard(this.pathOf(name));
    this.#removeEmptyDirectories(name);
    return isRemoved;
  }

  /** Unless it has come to stand for another image meanwhile. */
  removeFrom(name: ImageName, imageId: ImageId): void {
    const path = this.pathOf(name);
    const aside = this.#files.temporaryPath();
    try {
      renameSync(path, aside);
      const moved = parseNameRecord(readFileSync(aside, "utf8"), path, (each) => this.pathOf(each));
      // If somebody has set it again since, theirs is the one that counts.
      if (moved.imageId !== imageId) linkSync(aside, path);
    } catch {
      // It is gone, or set again.
    }
    rmSync(aside, { force: true });
    this.#removeEmptyDirectories(name);
  }

  #removeEmptyDirectories(name: ImageName): void {
    const path = this.pathOf(name);
    for (const directory of [dirname(path), dirname(dirname(path))]) {
      try {
        rmdirSync(directory);
      } catch {
        // There are others in it, or it is gone already.
        break;
      }
    }
  }

  /** An owner sees their own and the operator's; undefined is everybody's. */
  list(owner?: Owner): NameRecord[] {
    const owners =
      owner === undefined
        ? namesIn(this.directory).map((name) => join(this.directory, name))
        : [...new Set([this.#directoryOf(owner), this.#directoryOf(null)])];
    return owners.flatMap((directory) =>
      namesIn(directory).flatMap((name) =>
        this.#reader.readAll(join(directory, name)).flatMap(({ value }) => value ?? []),
      ),
    );
  }

  /** Files that say nothing to us. */
  problems(): { readonly path: string; readonly problem: string }[] {
    return namesIn(this.directory).flatMap((owner) =>
      namesIn(join(this.directory, owner)).flatMap((name) =>
        this.#reader
          .readAll(join(this.directory, owner, name))
          .flatMap((record) => (record.value === undefined ? [{ path: record.path, problem: record.problem }] : [])),
      ),
    );
  }

  #directoryOf(owner: Owner): string {
    return join(this.directory, owner === null ? OPERATOR : fileNameOf(owner));
  }
}
