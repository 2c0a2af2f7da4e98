import type { Build, BuildLogEntry } from "@holdfast/images";
import { describe, expect, it } from "vitest";
import { readLogRange, readStatusPage, shownEntry, shownMessage, shownStep } from "./build-logs.js";

const START = Date.UTC(2026, 0, 1);

function entry(seq: number, change: Partial<BuildLogEntry> = {}): BuildLogEntry {
  return { seq, at: new Date(START + seq).toISOString(), step: "3", stream: "stdout", text: `line ${seq}`, ...change };
}

/** A log that never says more, and goes on unless it has ended. */
function logOf(entries: readonly BuildLogEntry[], ended: boolean): Build {
  const log: Build["log"] = async function* ({ from = 0, signal } = {}) {
    yield* entries.slice(from);
    if (!ended) await new Promise((resolve) => signal?.addEventListener("abort", resolve, { once: true }));
  };
  return { log } as Build;
}

const shown = { leadingSteps: 2, failureMessage: undefined };
const entries = Array.from({ length: 25 }, (_, seq) => entry(seq));

describe("the steps of a build", () => {
  it("are counted as they were asked for", () => {
    expect(["base", "1", "2", "3", "12", "finalize"].map((step) => shownStep(step, 2))).toEqual([
      "base",
      "base",
      "base",
      "1",
      "10",
      "finalize",
    ]);
    expect(shownMessage("step 3 (RUN x) failed", "3", 2)).toBe("step 1 (RUN x) failed");
    expect(shownMessage("step 1 (USER user) failed", "1", 2)).toBe("step base (USER user) failed");
    expect(shownMessage("something else about step 3 ", "3", 2)).toBe("something else about step 3 ");
  });

  it("say how bad it is", () => {
    expect(shownEntry(entry(1), shown)).toMatchObject({ level: "info", step: "1", message: "line 1" });
    expect(shownEntry(entry(1, { stream: "stderr", text: "step 3 x" }), shown)).toMatchObject({
      level: "warn",
      message: "step 3 x",
    });
    const failed = { leadingSteps: 2, failureMessage: "step 3 (RUN x) failed" };
    expect(shownEntry(entry(1, { stream: "info", text: "step 3 (RUN x) failed" }), failed)).toMatchObject({
      level: "error",
      message: "step 1 (RUN x) failed",
    });
  });
});

describe("a page of a build's log", () => {
  const page = { offset: 0, limit: 10, minimumLevel: "debug" as const, ended: false };

  it.each([true, false])("ends where the log does, whether it has ended (%s) or not", async (ended) => {
    const build = logOf(entries, ended);
    const seen: string[] = [];
    for (;;) {
      const got = await readStatusPage(build, shown, { ...page, offset: seen.length, ended });
      seen.push(...got.map(({ message }) => message));
      if (got.length === 0) break;
    }
    expect(seen).toEqual(entries.map(({ text }) => text));
  });

  it("counts only what is important enough", async () => {
    const mixed = entries.map((one) => ({ ...one, stream: one.seq % 3 === 0 ? ("stderr" as const) : one.stream }));
    const got = await readStatusPage(logOf(mixed, true), shown, { ...page, offset: 2, limit: 3, minimumLevel: "warn" });
    expect(got.map(({ message }) => message)).toEqual(["line 6", "line 9", "line 12"]);
  });

  it("goes forward from a time, or backward from one", async () => {
    const range = { cursorMs: START + 10, limit: 3, minimumLevel: "debug" as const, ended: true };
    const texts = async (change: object) =>
      (await readLogRange(logOf(entries, true), shown, { ...range, direction: "forward", ...change })).map(
        ({ message }) => message,
      );
    expect(await texts({})).toEqual(["line 10", "line 11", "line 12"]);
    expect(await texts({ direction: "backward" })).toEqual(["line 10", "line 9", "line 8"]);
    expect(await texts({ direction: "backward", cursorMs: undefined })).toEqual(["line 24", "line 23", "line 22"]);
    expect(await texts({ cursorMs: undefined, limit: 1 })).toEqual(["line 0"]);
  });
});
