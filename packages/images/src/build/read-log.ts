/** Reads a build's log while it is written, by whatever process. */
import { type FileHandle, open } from "node:fs/promises";
import { join } from "node:path";
import { isMissing } from "../store/file-error.js";
import type { BuildLogEntry } from "../types.js";
import { type LogSegment, logSegments } from "./build-log.js";

const CHUNK_BYTES = 64 * 1024;
const NEWLINE = 0x0a;

export interface ReadLogOptions {
  readonly from: number;
  /** Whether nothing will be added any more. Asked before each look at the files. */
  readonly isComplete: () => boolean;
  /** To be taken before a look; resolves once there may be more than that look has found. */
  readonly prepareWait: () => () => Promise<void>;
  readonly signal?: AbortSignal | undefined;
}

/** Returns how many entries there are. */
export async function* readLog(
  directory: string,
  options: ReadLogOptions,
): AsyncGenerator<BuildLogEntry, number, undefined> {
  let next = options.from;
  let count = 0;
  let at: { readonly segment: LogSegment; readonly offset: number } | undefined;
  const isAborted = (): boolean => options.signal?.aborted === true;
  while (!isAborted()) {
    const wait = options.prepareWait();
    const complete = options.isComplete();
    const segments = logSegments(directory);
    at = (at !== undefined && segments.some(({ name }) => name === at?.segment.name) ? at : undefined) ?? {
      segment: segmentFor(segments, next) ?? { name: "log.ndjson", firstSeq: 0 },
      offset: 0,
    };
    let offset = at.offset;
    for await (const { entry, end } of readSegment(join(directory, at.segment.name), at.offset)) {
      offset = end;
      count = entry.seq + 1;
      if (entry.seq < next) continue;
      if (entry.seq > next) yield missing(next, entry);
      next = entry.seq + 1;
      yield entry;
      if (isAborted()) return count;
    }
    const following = segments.find(({ firstSeq }) => firstSeq > (at?.segment.firstSeq ?? 0));
    if (following !== undefined) {
      // Only a segment that is finished has a successor; it was listed before this one was read to its end.
      at = { segment: following, offset: 0 };
      continue;
    }
    at = { segment: at.segment, offset };
    if (complete) return count;
    await wait();
  }
  return count;
}

/** The last one that begins at or before the entry. */
function segmentFor(segments: readonly LogSegment[], seq: number): LogSegment | undefined {
  return segments.findLast(({ firstSeq }) => firstSeq <= seq) ?? segments[0];
}

function missing(from: number, entry: BuildLogEntry): BuildLogEntry {
  const count = entry.seq - from;
  return {
    seq: from,
    at: entry.at,
    step: entry.step,
    stream: "info",
    text: `[${count} ${count === 1 ? "line is" : "lines are"} not kept: the log is too long]`,
  };
}

async function* readSegment(
  path: string,
  offset: number,
): AsyncGenerator<{ readonly entry: BuildLogEntry; readonly end: number }> {
  let file: FileHandle;
  try {
    file = await open(path, "r");
  } catch (error) {
    // Nothing has been written yet, or it has just been dropped.
    if (isMissing(error)) return;
    throw error;
  }
  try {
    let rest = Buffer.alloc(0);
    let position = offset;
    const chunk = Buffer.alloc(CHUNK_BYTES);
    for (;;) {
      const { bytesRead } = await file.read(chunk, 0, CHUNK_BYTES, position + rest.length);
      if (bytesRead === 0) return;
      const bytes = Buffer.concat([rest, chunk.subarray(0, bytesRead)]);
      let start = 0;
      for (let end = bytes.indexOf(NEWLINE); end !== -1; end = bytes.indexOf(NEWLINE, start)) {
        const entry = parseEntry(bytes.toString("utf8", start, end));
        start = end + 1;
        if (entry !== undefined) yield { entry, end: position + start };
      }
      position += start;
      rest = Buffer.from(bytes.subarray(start));
    }
  } finally {
    await file.close();
  }
}

/** A line that a full disk has cut short is passed over. */
function parseEntry(line: string): BuildLogEntry | undefined {
  try {
    const entry = JSON.parse(line) as BuildLogEntry;
    return Number.isSafeInteger(entry.seq) ? entry : undefined;
  } catch {
    return undefined;
  }
}
