/** What is known of each volume, as a small file of its own. */
import { mkdirSync, readdirSync, readFileSync, renameSync, rmSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { HoldfastError } from "@holdfast/protocol";
import type { CountedLog } from "../metrics/count-left.js";
import type { Volume } from "./volumes.js";

export interface VolumeRecord extends Volume {
  /** Its removal has begun: nobody knows it any more, whatever of it is left. */
  readonly removed?: boolean;
}

const ENDING = ".json";

export class VolumeRecords {
  readonly #directory: string;
  readonly #log: CountedLog;

  constructor(options: { readonly directory: string; readonly log: CountedLog }) {
    this.#directory = options.directory;
    this.#log = options.log;
    mkdirSync(this.#directory, { recursive: true, mode: 0o700 });
  }

  /** Ids that something is written down about, whether or not it can be read. */
  ids(): string[] {
    return readdirSync(this.#directory).flatMap((name) =>
      name.endsWith(ENDING) ? [name.slice(0, -ENDING.length)] : [],
    );
  }

  readAll(): VolumeRecord[] {
    return this.ids().flatMap((id) => {
      try {
        return [parseRecord(id, readFileSync(this.#pathOf(id), "utf8"))];
      } catch (error) {
        this.#log.error({ volume: id, error: HoldfastError.from(error).message }, "a volume's record cannot be read");
        return [];
      }
    });
  }

  write(record: VolumeRecord): void {
    const path = this.#pathOf(record.id);
    writeFileSync(`${path}.new`, JSON.stringify(record), { mode: 0o600, flush: true });
    renameSync(`${path}.new`, path);
  }

  remove(id: string): void {
    rmSync(this.#pathOf(id), { force: true });
  }

  #pathOf(id: string): string {
    return join(this.#directory, `${id}${ENDING}`);
  }
}

function parseRecord(id: string, text: string): VolumeRecord {
  const record = JSON.parse(text) as Partial<Record<keyof VolumeRecord, unknown>>;
  const { name, keyId } = record;
  const createdAt = new Date(String(record.createdAt));
  if (record.id !== id || typeof name !== "string" || typeof keyId !== "string" || Number.isNaN(createdAt.getTime())) {
    throw new Error("a field is missing or wrong");
  }
  return { id, name, keyId, createdAt, ...(record.removed === true ? { removed: true } : {}) };
}
