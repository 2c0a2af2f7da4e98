/**
 * A server over one real sandbox: the dispatcher, envd and the port proxy as they are, and in place of the sandboxes'
 * service only what they ask of it.
 */
import { mkdtempSync, rmSync } from "node:fs";
import { createServer, type Server } from "node:http";
import type { AddressInfo } from "node:net";
import { BubblewrapEngine, type Sandbox, type SandboxSpec } from "@holdfast/engine";
import Fastify from "fastify";
import { pino } from "pino";
import { createEnvdApp } from "../../packages/server/src/envd/envd-app.js";
import { createDispatcher, type Dispatcher } from "../../packages/server/src/http/dispatch.js";
import { Metrics } from "../../packages/server/src/metrics/metrics.js";
import type { ServerParts } from "../../packages/server/src/parts.js";
import { createPortProxy } from "../../packages/server/src/proxy/port-proxy.js";
import type { LiveSandbox, Opened, Sandboxes } from "../../packages/server/src/sandboxes/types.js";
import { OUR_DIRECTORIES } from "../helpers/leaks.js";

export const TOKEN = "envd-token";
export const TRAFFIC_TOKEN = "traffic-token";

export interface ServedSandbox {
  readonly url: string;
  readonly port: number;
  readonly server: Server;
  readonly sandbox: Sandbox;
  readonly live: LiveSandbox;
  readonly dispatcher: Dispatcher;
  readonly network: { allowPublicTraffic: boolean; settings: Record<string, unknown> | null };
  /** What `open` finds from now on; undefined: the sandbox. */
  found: Opened | undefined;
  /** As when it is paused or has ended. */
  leave(): void;
  close(): Promise<void>;
}

export async function serveOne(spec: Partial<SandboxSpec>): Promise<ServedSandbox> {
  const stateDirectory = mkdtempSync(OUR_DIRECTORIES);
  const engine = await BubblewrapEngine.open({ stateDirectory });
  const sandbox = await engine.create(spec);
  const gone = new AbortController();
  const network = {
    allowInternetAccess: null,
    allowPublicTraffic: true,
    settings: null as Record<string, unknown> | null,
  };
  const live = {
    id: sandbox.id,
    sandbox,
    gone: gone.signal,
    row: { id: sandbox.id, network },
  } as unknown as LiveSandbox;
  const served: { found: Opened | undefined } = { found: undefined };
  const sandboxes: Pick<Sandboxes, "open" | "envdToken" | "trafficToken" | "look" | "pressureOf"> = {
    pressureOf: () => null,
    open: async (id) =>
      served.found ??
      (id === sandbox.id ? { kind: "running", live } : { kind: "missing", ending: undefined, endedAt: undefined }),
    envdToken: () => TOKEN,
    trafficToken: () => TRAFFIC_TOKEN,
    look: async (_caller, id) => ({
      sandboxId: sandbox.id,
      at: new Date(),
      cpuCount: 1,
      cpuUsedPct: 0,
      memoryBytes: id === sandbox.id ? 1 : 0,
      memoryLimitBytes: 512 * 1024 * 1024,
      memoryCacheBytes: 0,
      diskBytes: 0,
      diskLimitBytes: 1,
      pids: 1,
      cpuMs: 1,
      memoryPeakBytes: null,
      memoryNowBytes: 0,
    }),
  };
  const parts = {
    config: { domain: "box.test" },
    sandboxes,
    metrics: new Metrics(),
    log: pino({ level: "error" }),
  } as unknown as ServerParts;
  const envd = await createEnvdApp(parts);
  const control = Fastify();
  control.all("/*", async (request) => ({ control: request.url }));
  await control.ready();
  const dispatcher = createDispatcher({ parts, control, envd, proxy: createPortProxy(parts) });
  const server = createServer();
  server.on("request", dispatcher.onRequest);
  server.on("checkContinue", dispatcher.onCheckContinue);
  server.on("upgrade", dispatcher.onUpgrade);
  server.listen(0, "127.0.0.1");
  await new Promise((resolve) => server.once("listening", resolve));
  const { port } = server.address() as AddressInfo;
  return Object.assign(served, {
    url: `http://127.0.0.1:${port}`,
    port,
    server,
    sandbox,
    live,
    dispatcher,
    network,
    leave: () => gone.abort(),
    async close() {
      server.closeAllConnections();
      await new Promise((resolve) => server.close(resolve));
      await engine.close({ sandboxes: "kill" });
      rmSync(stateDirectory, { recursive: true, force: true });
    },
  });
}
