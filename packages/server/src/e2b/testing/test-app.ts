/** The control plane over all of its parts, and an engine that runs nothing. */
import { mkdtemp, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { openImages } from "@holdfast/images";
import type { FastifyInstance } from "fastify";
import { pino } from "pino";
import { defaultConfig, type ServerConfig } from "../../config/schema.js";
import { createControlApp } from "../../http/control-app.js";
import { createKeyRing } from "../../keys/key-ring.js";
import { Metrics } from "../../metrics/metrics.js";
import type { ServerParts } from "../../parts.js";
import { SandboxService } from "../../sandboxes/service.js";
import { openSqliteStore } from "../../store/sqlite/open-sqlite-store.js";
import { openVolumes } from "../../volumes/open-volumes.js";
import { createFakeEngine } from "./fake-engine.js";

export interface TestApp extends ServerParts {
  readonly app: FastifyInstance;
  readonly directory: string;
  close(): Promise<void>;
}

export async function openTestApp(settings: Partial<ServerConfig> = {}): Promise<TestApp> {
  const undo: (() => Promise<unknown>)[] = [];
  const directory = await mkdtemp(join(tmpdir(), "holdfast-control-"));
  undo.push(() => rm(directory, { recursive: true }));
  const log = pino({ level: "silent" });
  const store = await openSqliteStore(join(directory, "test.db"));
  undo.push(() => store.close());
  const config = { ...defaultConfig(), ...settings };
  const engine = createFakeEngine();
  const metrics = new Metrics();
  // Nothing that a test names is looked for anywhere else.
  const images = await openImages({ engine, stateDirectory: directory, bases: { pull: false }, log });
  undo.push(() => images.close());
  const volumes = await openVolumes({ engine, store, log, directory: join(directory, "volumes"), limitBytes: 1024 });
  undo.push(() => volumes.close());
  const { service } = await SandboxService.open(
    { config, engine, images, volumes, store, log, version: "0", metrics },
    { directory },
  );
  undo.push(() => service.close());
  const parts: ServerParts = {
    config,
    keys: createKeyRing(store),
    sandboxes: service,
    images,
    volumes,
    store,
    log,
    metrics,
  };
  const app = await createControlApp(parts, { publicDomain: () => "box.test:3000" });
  undo.push(() => app.close());
  return {
    ...parts,
    app,
    directory,
    close: async () => {
      for (const step of undo.reverse()) await step();
    },
  };
}
