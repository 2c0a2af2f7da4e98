import { mkdirSync, mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterEach, beforeEach, describe, expect, it } from "vitest";
import { createBuildId } from "../store/ids.js";
import type { BuildInfo } from "../types.js";
import { BuildFiles } from "./build-files.js";
import type { BuildSettings } from "./build-settings.js";
import { Journal } from "./journal.js";

const info = (): BuildInfo => ({
  id: createBuildId(),
  owner: null,
  state: "building",
  digest: null,
  names: [],
  steps: [],
  createdAt: new Date().toISOString(),
  startedAt: null,
  endedAt: null,
  imageId: null,
  failure: null,
  cached: false,
});

describe("a journal", () => {
  let directory: string;
  beforeEach(() => {
    directory = mkdtempSync(join(tmpdir(), "holdfast-journal-"));
  });
  afterEach(() => rmSync(directory, { recursive: true, force: true }));

  it("lets go of everything at its end, also if nothing can be written", () => {
    const files = new BuildFiles(directory);
    const journal = Journal.create(files, info(), { settings: {} as BuildSettings, forceFrom: undefined }) as Journal;
    rmSync(files.pathOf(journal.id, "info.json"));
    for (const name of ["info.json", "log.ndjson"])
      mkdirSync(files.pathOf(journal.id, join(name, "in the way")), { recursive: true });
    journal.log("base", "info", "something");
    let isReleased = false;
    expect(() =>
      journal.end({ state: "ready" }, () => {
        isReleased = true;
      }),
    ).toThrow();
    expect(isReleased).toBe(true);
    expect(files.hasLease(journal.id)).toBe(false);
    expect(journal.stored.info.state).toBe("ready");
  });

  it("that cannot be begun leaves nothing", () => {
    const files = new BuildFiles(directory);
    rmSync(join(directory, "builds", "fresh"), { recursive: true });
    expect(() => Journal.create(files, info(), { settings: {} as BuildSettings, forceFrom: undefined })).toThrow();
    expect(files.ids()).toEqual([]);
  });
});
