/** Puts the server together: engine, store, sandboxes, routes, sockets. And takes it apart again. */
import { mkdirSync, readFileSync } from "node:fs";
import type { Server } from "node:http";
import { join } from "node:path";
import { BubblewrapEngine } from "@holdfast/engine";
import { type Images, openImages } from "@holdfast/images";
import type { Logger } from "pino";
import { budgetSettings, warmSettings } from "./config/budget-settings.js";
import { fitToHost } from "./config/fit-to-host.js";
import { requireRoom } from "./config/leaves-room.js";
import type { ServerConfig } from "./config/schema.js";
import { createEnvdApp } from "./envd/envd-app.js";
import { settleHandovers } from "./envd/rpc/call.js";
import { Gate } from "./gate.js";
import { createControlApp } from "./http/control-app.js";
import { createDispatcher } from "./http/dispatch.js";
import { createKeyRing, type KeyRing } from "./keys/key-ring.js";
import { type Handlers, listenForOperator, listenOnNetwork } from "./listen.js";
import { countBuilds } from "./metrics/count-builds.js";
import { countLeft } from "./metrics/count-left.js";
import { countPressure } from "./metrics/count-pressure.js";
import { exposeMetrics } from "./metrics/expose-metrics.js";
import { Metrics } from "./metrics/metrics.js";
import { openMetricsKey } from "./metrics/metrics-key.js";
import { isScrape } from "./metrics/routes.js";
import type { ServerParts } from "./parts.js";
import { createPortProxy } from "./proxy/port-proxy.js";
import { reachOfKeys } from "./registries/registry-access.js";
import { SandboxService } from "./sandboxes/service.js";
import { openSqliteStore } from "./store/sqlite/open-sqlite-store.js";
import type { ApiKey, KeyLimits } from "./store/store.js";
import { serverCertificate } from "./tls/server-certificate.js";
import { openVolumes } from "./volumes/open-volumes.js";

const MIB = 1024 * 1024;

export interface RunningServer {
  readonly url: string;
  readonly socketPath: string;
  /** As clients must name it, with the port if it is not the usual one; null without a domain. */
  readonly domain: string | null;
  /** The certificate to trust, if it is our own. */
  readonly caPath: string | null;
  /** The secret of the first key: only the start that made it knows it. */
  readonly firstKey: string | null;
  readonly keys: readonly Pick<ApiKey, "id" | "name" | "hint" | "createdAt">[];
  /** Running sandboxes taken over from an earlier server. */
  readonly adopted: number;
  /** Running and paused ones, now. */
  sandboxCount(): Promise<number>;
  /** Stops listening, lets requests finish, lets go of the sandboxes: they run on. */
  close(options?: { readonly drainMs?: number }): Promise<void>;
}

function readVersion(): string {
  const manifest = JSON.parse(readFileSync(new URL("../package.json", import.meta.url), "utf8")) as { version: string };
  return manifest.version;
}

/** Where the server keeps its own state, below the state directory. */
export function serverDirectory(stateDirectory: string): string {
  return join(stateDirectory, "server");
}

export const databasePath = (stateDirectory: string): string => join(serverDirectory(stateDirectory), "holdfast.db");
export const operatorSocketPath = (stateDirectory: string): string =>
  join(serverDirectory(stateDirectory), "holdfast.sock");

export function defaultKeyLimits(config: ServerConfig): KeyLimits {
  return {
    sandboxes: config.keySandboxes,
    memoryBytes: config.keyMemoryMb === null ? null : config.keyMemoryMb * MIB,
    requestsPerSecond: config.keyRequestsPerSecond,
  };
}

/** Makes the first key if there is none that works. */
async function ensureKey(keys: KeyRing, config: ServerConfig): Promise<string | null> {
  const usable = (await keys.list()).filter((key) => key.revokedAt === null);
  return usable.length > 0 ? null : (await keys.create("default", defaultKeyLimits(config))).secret;
}

function publicName(config: ServerConfig, port: number): string | null {
  if (config.domain === null) return null;
  const usual = config.tls === "off" ? 80 : 443;
  return port === usual ? config.domain : `${config.domain}:${port}`;
}

function addressText(config: ServerConfig, port: number): string {
  const scheme = config.tls === "off" ? "http" : "https";
  const host = config.host.includes(":") ? `[${config.host}]` : config.host;
  return `${scheme}://${config.domain === null || config.tls === "off" ? host : `api.${config.domain}`}:${port}`;
}

function closeServer(server: Server): Promise<void> {
  return new Promise((resolve) => {
    server.close(() => resolve());
    server.closeAllConnections();
  });
}

export async function startServer(options: {
  readonly config: ServerConfig;
  readonly log: Logger;
}): Promise<RunningServer> {
  const { log } = options;
  let { config } = options;
  const directory = serverDirectory(config.stateDirectory);
  mkdirSync(directory, { recursive: true, mode: 0o700 });
  const socketPath = operatorSocketPath(config.stateDirectory);
  const undo: (() => Promise<void>)[] = [];
  // Nothing is made ready before there is somebody to say how things stand.
  let mayWarm = () => false;
  try {
    let operatorHandlers: Handlers | undefined;
    let networkHandlers: Handlers | undefined;
    const operatorGate = new Gate(
      () => operatorHandlers,
      (request) => isScrape(request, null),
    );
    const networkGate = new Gate(
      () => networkHandlers,
      (request) => isScrape(request, config.domain),
    );
    // First, because it is the lock on everything below.
    const operator = await listenForOperator(socketPath, operatorGate.handlers);
    undo.push(() => closeServer(operator));
    const certificate = await serverCertificate({ config, directory: join(directory, "tls"), log });
    const store = await openSqliteStore(databasePath(config.stateDirectory));
    undo.push(() => store.close());
    const metrics = new Metrics();
    const countedLog = countLeft(log, metrics);
    const engine = await BubblewrapEngine.open({
      stateDirectory: config.stateDirectory,
      pool: config.pool,
      log: countedLog,
      budget: budgetSettings(config),
      holdMs: config.holdSeconds * 1000,
      onWaited: (waited) => metrics.waited(waited),
      warm: warmSettings(config, () => mayWarm()),
    });
    undo.push(() => engine.close({ sandboxes: "keep" }));
    requireRoom(await engine.budget({ reservations: false }));
    config = fitToHost(config, await engine.capacity(), log);
    const opened = await openImages({
      engine,
      stateDirectory: config.stateDirectory,
      scratchDirectory: config.scratchDirectory ?? undefined,
      bases: {
        mirror: config.debianMirror,
        securityMirror: config.debianSecurityMirror,
        aliases: config.imageAliases,
        pull: config.imagePull,
        mayReach: reachOfKeys(config),
      },
      builds: { parallel: config.buildParallel, network: { deny: config.buildDeny, allow: config.buildAllow } },
      log: countedLog,
    });
    undo.push(() => opened.close());
    const images: Images = { ...opened, builder: countBuilds(opened.builder, metrics) };
    const volumes = await openVolumes({
      engine,
      store,
      log: countedLog,
      directory: join(directory, "volumes"),
      limitBytes: config.volumeMb * MIB,
    });
    undo.push(() => volumes.close());
    const keys = createKeyRing(store);
    const { service, recovery } = await SandboxService.open(
      {
        config,
        engine,
        images,
        volumes,
        store,
        log,
        version: readVersion(),
        metrics,
        onPressure: countPressure(metrics),
      },
      { directory },
    );
    undo.push(() => service.close());
    mayWarm = () => service.mayWarm();
    const exposition = exposeMetrics({ metrics, engine, sandboxes: service, version: readVersion(), log });
    undo.push(async () => exposition.close());
    let domain: string | null = null;
    const parts: ServerParts = { config, keys, sandboxes: service, images, volumes, store, log, metrics };
    const control = await createControlApp(parts, {
      publicDomain: () => domain,
      metrics: {
        exposition,
        access: config.metricsAccess,
        key: openMetricsKey(join(directory, "metrics.key")),
        domain: config.domain,
      },
    });
    undo.push(() => control.close());
    const envd = await createEnvdApp(parts);
    undo.push(() => envd.close());
    const dispatcher = createDispatcher({ parts, control, envd, proxy: createPortProxy(parts) });
    operatorHandlers = {
      onRequest: (request, response) => control.routing(request, response),
      onCheckContinue: (request, response) => {
        response.writeContinue();
        control.routing(request, response);
      },
      onUpgrade: (_request, socket) => socket.destroy(),
    };
    const { server, port } = await listenOnNetwork({ ...config, tls: certificate }, networkGate.handlers);
    undo.push(() => closeServer(server));
    domain = publicName(config, port);
    networkHandlers = dispatcher;
    // Last: nothing can fail any more, so the one time that its secret is told is not lost.
    const firstKey = await ensureKey(keys, config);
    log.info({ port, adopted: recovery.adopted, paused: recovery.paused, lost: recovery.lost }, "ready");
    return {
      url: addressText(config, port),
      socketPath,
      domain,
      caPath: certificate?.caPath ?? null,
      firstKey,
      keys: (await keys.list())
        .filter((key) => key.revokedAt === null)
        .map(({ id, name, hint, createdAt }) => ({ id, name, hint, createdAt })),
      adopted: recovery.adopted,
      sandboxCount: async () =>
        (await service.list({ kind: "operator" }, { statuses: ["running"], limit: 1000 })).length,
      close: async ({ drainMs = config.drainSeconds * 1000 } = {}) => {
        await Promise.all([networkGate.drain(drainMs), operatorGate.drain(drainMs)]);
        await settleHandovers();
        for (const step of undo.reverse()) await step();
      },
    };
  } catch (error) {
    for (const step of undo.reverse()) await step();
    throw error;
  }
}
