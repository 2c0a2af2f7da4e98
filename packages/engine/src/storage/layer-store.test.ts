import { mkdirSync, mkdtempSync, readdirSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { HoldfastError } from "@holdfast/protocol";
import { expect, onTestFinished, test } from "vitest";
import { ourIdentity } from "../host/processes.js";
import { createLayerId } from "../layers.js";
import { LayerStore } from "./layer-store.js";
import type { Pool } from "./pool.js";

test("a layer that could not be begun leaves nothing, though its process lives on", async () => {
  const directory = mkdtempSync(join(tmpdir(), "holdfast-layer-store-"));
  onTestFinished(() => rmSync(directory, { recursive: true, force: true }));
  const full = new HoldfastError("no_space", "no space left");
  const pool = {
    directory,
    async makeLayer(path: string) {
      mkdirSync(path);
      throw full;
    },
    async remove(path: string) {
      rmSync(path, { recursive: true });
    },
  } as Partial<Pool> as Pool;
  const store = new LayerStore({ pool, us: ourIdentity(), usersOf: () => [] });
  await expect(store.draft(createLayerId())).rejects.toBe(full);
  expect(readdirSync(store.directory)).toEqual([]);
});
