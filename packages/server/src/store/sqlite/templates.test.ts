import { mkdtemp, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterEach, beforeEach, describe, expect, test } from "vitest";
import type { Store, TemplateBuildRow, TemplateRow } from "../store.js";
import { openSqliteStore } from "./open-sqlite-store.js";
import { STRANGE, sandboxRow, T0 } from "./testing/rows.js";

let directory: string;
let store: Store;

beforeEach(async () => {
  directory = await mkdtemp(join(tmpdir(), "holdfast-templates-"));
  store = await openSqliteStore(join(directory, "holdfast.db"));
});

afterEach(async () => {
  await store.close();
  await rm(directory, { recursive: true, force: true });
});

const at = (seconds: number): Date => new Date(T0 + seconds * 1000);

function templateRow(change: Partial<TemplateRow> = {}): TemplateRow {
  return { id: "t1", keyId: "k1", name: "app", createdAt: at(0), updatedAt: at(0), ...change };
}

function buildRow(id: string, change: Partial<TemplateBuildRow> = {}): Omit<TemplateBuildRow, "templateId"> {
  return {
    id,
    state: "waiting",
    tags: ["default"],
    cpuCount: null,
    memoryMb: 1024,
    diskMb: null,
    leadingSteps: 0,
    createdAt: at(0),
    startedAt: null,
    endedAt: null,
    imageId: null,
    failure: null,
    ...change,
  };
}

const READY = { endedAt: at(9), imageId: "img1", failure: null };

describe("a template", () => {
  test("keeps its id when it is asked for again, and gets one more build", async () => {
    expect(await store.templates.request(templateRow(), buildRow("b1"))).toEqual(templateRow());
    const again = templateRow({ id: "t2", createdAt: at(5), updatedAt: at(5) });
    const standing = await store.templates.request(again, buildRow("b2", { createdAt: at(5) }));
    expect(standing).toEqual(templateRow({ updatedAt: at(5) }));
    expect((await store.templates.builds("t1", { limit: 9 })).map(({ id }) => id)).toEqual(["b2", "b1"]);
    expect(await store.templates.countBuilds("t1")).toBe(2);
    expect(await store.templates.find("t2")).toBeUndefined();
  });

  test("of one key is not another's of the same name", async () => {
    await store.templates.request(templateRow(), buildRow("b1"));
    await store.templates.request(templateRow({ id: "t2", keyId: "k2" }), buildRow("b2"));
    expect((await store.templates.findByName("k1", "app"))?.id).toBe("t1");
    expect((await store.templates.findByName("k2", "app"))?.id).toBe("t2");
    expect((await store.templates.list("k2")).map(({ id }) => id)).toEqual(["t2"]);
    expect(await store.templates.findByName("k3", "app")).toBeUndefined();
  });

  test("takes its builds and tags along when it goes", async () => {
    await store.templates.request(templateRow(), buildRow("b1"));
    await store.templates.claimBuild("b1", { leadingSteps: 2, startedAt: at(1) });
    await store.templates.endBuild("b1", READY);
    expect(await store.templates.remove("t1")).toBe(true);
    expect(await store.templates.remove("t1")).toBe(false);
    expect(await store.templates.findBuild("b1")).toBeUndefined();
    expect(await store.templates.tags("t1")).toEqual([]);
  });
});

describe("a build of a template", () => {
  test("is kept as it was given", async () => {
    const failure = { step: "2", message: STRANGE.join("|") };
    const given = buildRow("b1", { state: "error", tags: ["a", "b.c"], endedAt: at(3), cpuCount: 2, failure });
    await store.templates.request(templateRow(), given);
    expect(await store.templates.findBuild("b1")).toEqual({ ...given, templateId: "t1" });
  });

  test("is started once, unless the start came to nothing", async () => {
    await store.templates.request(templateRow(), buildRow("b1"));
    const claim = () => store.templates.claimBuild("b1", { leadingSteps: 2, startedAt: at(1) });
    expect(await Promise.all([claim(), claim()])).toEqual([true, false]);
    expect((await store.templates.unendedBuilds()).map(({ id }) => id)).toEqual(["b1"]);
    await store.templates.releaseBuild("b1");
    expect(await store.templates.unendedBuilds()).toEqual([]);
    expect(await claim()).toBe(true);
    expect(await store.templates.findBuild("b1")).toMatchObject({ state: "building", leadingSteps: 2 });
  });

  test("ends once, and is what its tags stand for if it has an image", async () => {
    for (const id of ["b1", "b2"]) {
      await store.templates.request(templateRow(), buildRow(id, { tags: ["default", id] }));
      await store.templates.claimBuild(id, { leadingSteps: 0, startedAt: at(1) });
    }
    expect(await store.templates.endBuild("b1", READY)).toBe(true);
    expect(await store.templates.endBuild("b1", { ...READY, imageId: "img2" })).toBe(false);
    const failure = { step: "1", message: "no" };
    expect(await store.templates.endBuild("b2", { endedAt: at(9), imageId: null, failure })).toBe(true);
    expect(await store.templates.findBuild("b1")).toMatchObject({ state: "ready", imageId: "img1" });
    expect(await store.templates.findBuild("b2")).toMatchObject({ state: "error", failure });
    expect(await store.templates.tags("t1")).toEqual([
      { templateId: "t1", tag: "b1", buildId: "b1", createdAt: at(9) },
      { templateId: "t1", tag: "default", buildId: "b1", createdAt: at(9) },
    ]);
  });

  test("is listed a page at a time", async () => {
    for (let index = 0; index < 5; index++) {
      await store.templates.request(templateRow(), buildRow(`b${index}`, { createdAt: at(Math.floor(index / 2)) }));
    }
    const seen: string[] = [];
    let after: TemplateBuildRow | undefined;
    for (;;) {
      const page: TemplateBuildRow[] = await store.templates.builds("t1", { limit: 2, after });
      seen.push(...page.map(({ id }) => id));
      after = page.at(-1);
      if (after === undefined) break;
    }
    expect(seen).toEqual(["b4", "b3", "b2", "b1", "b0"]);
  });

  test("is forgotten when it is old, has no tag and is not under way", async () => {
    for (let index = 0; index < 6; index++) {
      await store.templates.request(
        templateRow(),
        buildRow(`b${index}`, {
          createdAt: at(index),
          tags: [`v${index}`],
          state: index === 1 ? "building" : "waiting",
        }),
      );
    }
    await store.templates.claimBuild("b0", { leadingSteps: 0, startedAt: at(1) });
    await store.templates.endBuild("b0", READY);
    await store.templates.forgetBuilds("t1", { keep: 2 });
    const left = await store.templates.builds("t1", { limit: 9 });
    expect(left.map(({ id }) => id)).toEqual(["b5", "b4", "b1", "b0"]);
  });
});

describe("tags of a template", () => {
  test("are moved and taken away", async () => {
    await store.templates.request(templateRow(), buildRow("b1"));
    await store.templates.request(templateRow(), buildRow("b2"));
    await store.templates.assignTags("t1", ["a", "b"], "b1", at(1));
    await store.templates.assignTags("t1", ["b", "c"], "b2", at(2));
    await store.templates.removeTags("t1", ["a", "nothing"]);
    await store.templates.removeTags("t1", []);
    const tags = await store.templates.tags("t1");
    expect(tags.map(({ tag, buildId }) => [tag, buildId])).toEqual([
      ["b", "b2"],
      ["c", "b2"],
    ]);
  });
});

test("a file is a key's own, and the last one sent counts", async () => {
  const file = { keyId: "k1", hash: "0".repeat(64), digest: "sha256:1", uploadedAt: at(1) };
  await store.templates.putFile(file);
  await store.templates.putFile({ ...file, digest: "sha256:2" });
  expect(await store.templates.findFile("k1", file.hash)).toEqual({ ...file, digest: "sha256:2" });
  expect(await store.templates.findFile("k2", file.hash)).toBeUndefined();
});

test("sandboxes are found by a template's name whatever its tag", async () => {
  const names = ["app", "app:default", "app:v1", "app-2:default", "app;x", "ap", "apple:default"];
  for (const [index, template] of names.entries()) {
    await store.sandboxes.insert(sandboxRow({ template, createdAt: at(index) }));
  }
  const found = await store.sandboxes.list({ templateName: "app", order: "asc", limit: 99 });
  expect(found.map(({ template }) => template)).toEqual(["app", "app:default", "app:v1"]);
});
