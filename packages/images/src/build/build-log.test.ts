import { mkdtempSync, readdirSync, rmSync, statSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterEach, beforeEach, describe, expect, it } from "vitest";
import type { BuildLogEntry } from "../types.js";
import { BuildLog, type LogLimits } from "./build-log.js";
import { readLog } from "./read-log.js";
import { Wakes } from "./wakes.js";

describe("a build's log", () => {
  let directory: string;
  let ended: boolean;
  const wakes = new Wakes();
  const small: LogLimits = { segmentBytes: 2000, headSegments: 2, tailSegments: 2 };

  beforeEach(() => {
    directory = mkdtempSync(join(tmpdir(), "holdfast-build-log-"));
    ended = false;
  });
  afterEach(() => rmSync(directory, { recursive: true, force: true }));

  const openLog = (limits?: LogLimits) =>
    new BuildLog(directory, { onFlush: () => wakes.wake("log"), ...(limits === undefined ? {} : { limits }) });

  async function read(from = 0): Promise<BuildLogEntry[]> {
    const entries: BuildLogEntry[] = [];
    const options = {
      from,
      isComplete: () => ended,
      prepareWait: () => {
        const since = wakes.version("log");
        return () => wakes.changed("log", since, { atMostMs: 60_000 });
      },
    };
    for await (const entry of readLog(directory, options)) entries.push(entry);
    return entries;
  }

  it("gives a late reader everything, and one that waits what comes", async () => {
    const log = openLog();
    const early = read();
    log.append("1", "stdout", "one");
    log.flush();
    const late = read();
    const later = read(1);
    log.append("1", "stderr", "two \u{1F600}\n");
    log.append("2", "info", "three");
    log.close();
    ended = true;
    wakes.wake("log");
    const texts = ["one", "two \u{1F600}\n", "three"];
    expect((await early).map(({ text }) => text)).toEqual(texts);
    expect((await late).map(({ seq }) => seq)).toEqual([0, 1, 2]);
    expect((await later).map(({ step }) => step)).toEqual(["1", "2"]);
    expect(await read(3)).toEqual([]);
    expect(await read(7)).toEqual([]);
  });

  it("drops the middle of a log that is too long, and says how much", async () => {
    const log = openLog(small);
    for (let index = 0; index < 500; index++) {
      log.append("1", "stdout", `line ${index}`);
      log.flush();
    }
    log.close();
    ended = true;
    const sizes = readdirSync(directory).map((name) => statSync(join(directory, name)).size);
    expect(sizes).toHaveLength(4);
    expect(Math.max(...sizes)).toBeLessThanOrEqual(2000);
    const entries = await read();
    const gap = entries.findIndex(({ stream }) => stream === "info");
    expect(entries[0]?.text).toBe("line 0");
    expect(entries.at(-1)?.text).toBe("line 499");
    const dropped = 500 - (entries.length - 1);
    expect(entries[gap]).toMatchObject({ seq: gap, text: `[${dropped} lines are not kept: the log is too long]` });
    expect(entries[gap + 1]?.seq).toBe(gap + dropped);
    expect((await read(490)).map(({ text }) => text)).toHaveLength(10);
  });

  it("knows the last words of each step", () => {
    const log = openLog();
    for (let index = 0; index < 100; index++) log.append(index < 95 ? "1" : "2", "stdout", `${index}`);
    log.close();
    expect(log.tailOf("2").map(({ text }) => text)).toEqual(["95", "96", "97", "98", "99"]);
    expect(log.tailOf("1")).toHaveLength(35);
  });
});
