/** The real server, as its users start it: the build, in a process of its own, on a state directory of its own. */
import { type ChildProcessByStdio, execFileSync, spawn } from "node:child_process";
import { once } from "node:events";
import { existsSync, mkdtempSync, readdirSync, readFileSync, rmSync } from "node:fs";
import { join } from "node:path";
import { createInterface } from "node:readline";
import type { Readable } from "node:stream";
import { setTimeout as sleep } from "node:timers/promises";
import tls from "node:tls";
import { fileURLToPath } from "node:url";
import { Pool } from "undici";
import { afterAll, afterEach, beforeAll, expect } from "vitest";
import { assertNoLeaks, type Inventory, OUR_DIRECTORIES, takeInventory } from "./leaks.js";
import { SERVER_DEFAULTS } from "./needs-host.js";
import { forgiveZombies } from "./processes.js";
import { patienceMs } from "./scale.js";
import "./resolve-names.mjs";

const root = fileURLToPath(new URL("../..", import.meta.url));
const CLI = join(root, "packages/cli/dist/main.js");
/** Every name below it is this machine, see resolve-names.mjs. */
export const TEST_DOMAIN = "holdfast.test";
const LOG_CHARACTERS = 20_000;

export interface ServerOptions {
  /** TLS for TEST_DOMAIN and the names below it, certified by the server's own CA, which this process then trusts. */
  readonly tls?: boolean;
  /** More arguments of `holdfast serve`. */
  readonly args?: readonly string[];
  readonly env?: Readonly<Record<string, string>>;
  /** With the limits that a host gives to sandboxes that ask for none, however few of those it then carries. */
  readonly keepsDefaults?: boolean;
  /** For tests that orphan processes beside the server. */
  readonly forgivesZombies?: boolean;
}

/** What `holdfast serve --json` prints when it listens. */
interface Announcement {
  readonly url: string;
  readonly socketPath: string;
  readonly domain: string | null;
  readonly caPath: string | null;
  readonly apiKey: string | null;
  readonly pid: number;
}

export interface ServerInUse {
  readonly url: string;
  readonly port: number;
  /** With its port, as `E2B_DOMAIN` wants it; null without TLS. */
  readonly domain: string | null;
  readonly caPath: string | null;
  readonly socketPath: string;
  readonly apiKey: string;
  readonly pid: number;
  readonly stateDirectory: string;
  /** The last of what it wrote to stderr, over all restarts. */
  readonly log: string;
  /** Resolves when the process is gone. */
  kill(signal: "SIGKILL" | "SIGTERM"): Promise<void>;
  /** The same state directory and port. */
  restart(): Promise<void>;
  /** In order: SIGTERM, and it must leave with 0. Sandboxes run on. */
  stop(): Promise<void>;
  /** A request to the API: JSON in, JSON out, with the key. */
  call<T>(
    method: string,
    path: string,
    body?: unknown,
    headers?: Readonly<Record<string, string>>,
  ): Promise<{ readonly status: number; readonly headers: Headers; readonly body: T }>;
  /** Sandboxes that the engine keeps something of, but those that are ready and nobody's. */
  sandboxDirectories(): string[];
  /** Those. */
  readyDirectories(): string[];
}

function buildCli(): void {
  try {
    execFileSync(process.execPath, [join(root, "node_modules/typescript/bin/tsc"), "-b", "packages/cli"], {
      cwd: root,
      encoding: "utf8",
    });
  } catch (error) {
    // Type errors are the type check's business; what matters here is that there is something to run.
    if (!existsSync(CLI)) throw error;
  }
}

/** As NODE_EXTRA_CA_CERTS does, which Node reads at its start only. */
function trustInThisProcess(caPath: string): void {
  const certificate = readFileSync(caPath, "utf8");
  const createSecureContext = tls.createSecureContext;
  tls.createSecureContext = (options) => {
    const context = createSecureContext(options);
    (context.context as { addCACert(pem: string): void }).addCACert(certificate);
    return context;
  };
}

class Server implements ServerInUse {
  readonly #options: ServerOptions;
  #child: ChildProcessByStdio<null, Readable, Readable> | undefined;
  #announcement: Announcement | undefined;
  #log = "";
  /** Of Node itself: of leaks, and of what will be no more. */
  readonly #warnings: string[] = [];
  #wasKilled = false;
  #apiKey = "";
  stateDirectory = "";

  constructor(options: ServerOptions) {
    this.#options = options;
  }

  get #announced(): Announcement {
    if (this.#announcement === undefined) throw new Error("the server has not been started");
    return this.#announcement;
  }
  get url(): string {
    return this.#announced.url;
  }
  get port(): number {
    return Number(new URL(this.url).port);
  }
  get domain(): string | null {
    return this.#options.tls === true ? `${TEST_DOMAIN}:${this.port}` : null;
  }
  get caPath(): string | null {
    return this.#announced.caPath;
  }
  get socketPath(): string {
    return this.#announced.socketPath;
  }
  get apiKey(): string {
    return this.#apiKey;
  }
  get pid(): number {
    return this.#announced.pid;
  }
  get log(): string {
    return this.#log;
  }
  get isRunning(): boolean {
    return this.#child !== undefined;
  }
  get wasKilled(): boolean {
    return this.#wasKilled;
  }

  async start(): Promise<void> {
    const { args = [], env = {}, keepsDefaults = false } = this.#options;
    const fitted = keepsDefaults ? {} : SERVER_DEFAULTS;
    const port = this.#announcement === undefined ? 0 : this.port;
    const names = this.#options.tls === true ? ["--domain", TEST_DOMAIN, "--tls", "self"] : [];
    const child = spawn(
      process.execPath,
      [CLI, "serve", "--json", "--port", String(port), "--state-dir", this.stateDirectory, ...names, ...args],
      { stdio: ["ignore", "pipe", "pipe"], env: { ...process.env, NO_COLOR: "1", ...fitted, ...env } },
    );
    this.#child = child;
    child.stderr.setEncoding("utf8").on("data", (text: string) => {
      this.#log = (this.#log + text).slice(-LOG_CHARACTERS);
      this.#warnings.push(...(text.match(/^\(node:\d+\).*Warning.*$/gm) ?? []));
    });
    const lines = createInterface({ input: child.stdout });
    const ended = once(child, "close");
    const first = await Promise.race([
      once(lines, "line"),
      ended.then(([code, signal]) => {
        if (this.#child === child) this.#child = undefined;
        throw new Error(`the server ended (${String(code ?? signal)}) before it listened:\n${this.#log}`);
      }),
    ]);
    this.#announcement = JSON.parse(String(first[0])) as Announcement;
    // Shown once, when it is made.
    this.#apiKey ||= this.#announcement.apiKey ?? "";
  }

  async kill(signal: "SIGKILL" | "SIGTERM"): Promise<void> {
    const child = this.#child;
    if (child === undefined) return;
    if (signal === "SIGKILL") this.#wasKilled = true;
    const ended = once(child, "close");
    child.kill(signal);
    await ended;
    this.#child = undefined;
  }

  async restart(): Promise<void> {
    if (this.isRunning) await this.stop();
    await this.start();
  }

  async stop(): Promise<void> {
    const child = this.#child;
    if (child === undefined) return;
    const ended = once(child, "close");
    child.kill("SIGTERM");
    const tooLong = new AbortController();
    const result = await Promise.race([
      ended,
      sleep(patienceMs(10_000), "too long" as const, { signal: tooLong.signal }),
    ]);
    tooLong.abort();
    if (result === "too long") {
      child.kill("SIGKILL");
      await ended;
    }
    this.#child = undefined;
    expect(result, `the end of the server after SIGTERM; its log: ${this.#log}`).toEqual([0, null]);
    expect(this.#warnings).toEqual([]);
  }

  async call<T>(method: string, path: string, body?: unknown, headers: Readonly<Record<string, string>> = {}) {
    const response = await fetch(`${this.url}${path}`, {
      method,
      headers: {
        "X-API-Key": this.#apiKey,
        ...(body === undefined ? {} : { "Content-Type": "application/json" }),
        ...headers,
      },
      ...(body === undefined ? {} : { body: JSON.stringify(body) }),
    });
    const text = await response.text();
    return {
      status: response.status,
      headers: response.headers,
      body: (text === "" ? null : JSON.parse(text)) as T,
    };
  }

  /** Of whomever. */
  allDirectories(): string[] {
    const directory = join(this.stateDirectory, "sandboxes");
    return existsSync(directory) ? readdirSync(directory) : [];
  }

  sandboxDirectories(): string[] {
    const ready = new Set(this.readyDirectories());
    return this.allDirectories().filter((name) => !ready.has(name));
  }

  readyDirectories(): string[] {
    const isReady = (name: string) => existsSync(join(this.stateDirectory, "sandboxes", name, "warm"));
    return this.allDirectories().filter(isReady);
  }

  /** As the operator, who sees the sandboxes of every key. */
  async killAllSandboxes(): Promise<void> {
    const operator = new Pool("http://localhost", { connections: 16, connect: { socketPath: this.socketPath } });
    try {
      for (;;) {
        const page = await operator.request({ method: "GET", path: "/v2/sandboxes?state=running,paused&limit=100" });
        expect(page.statusCode, `the list of all sandboxes; the log: ${this.#log}`).toBe(200);
        const sandboxes = (await page.body.json()) as { sandboxID: string }[];
        if (sandboxes.length === 0) return;
        await Promise.all(
          sandboxes.map(async ({ sandboxID }) => {
            const { body } = await operator.request({ method: "DELETE", path: `/sandboxes/${sandboxID}` });
            await body.dump();
          }),
        );
      }
    } finally {
      await operator.close();
    }
  }
}

/** What is still mounted or in use there stays, and is found by the look for leaks. */
function removeWhatGoes(directory: string): void {
  try {
    rmSync(directory, { recursive: true, force: true });
  } catch (error) {
    console.error(`${directory} could not be removed: ${String(error)}`);
  }
}

/** Call it once at the top of a file or describe block; the returned object is filled before its tests. */
export function useServer(options: ServerOptions = {}): ServerInUse {
  const server = new Server(options);
  let before: Inventory;
  beforeAll(async () => {
    buildCli();
    before = takeInventory();
    // A short path: the server's sockets are below it.
    server.stateDirectory = mkdtempSync(OUR_DIRECTORIES);
    await server.start();
    if (server.caPath !== null) trustInThisProcess(server.caPath);
  }, patienceMs(60_000));
  afterEach(({ task }) => {
    if (task.result?.state === "fail") console.error(`the server's log:\n${server.log.slice(-4000)}`);
  });
  afterAll(async () => {
    try {
      if (!server.isRunning) await server.start();
      await server.killAllSandboxes();
      await server.stop();
      expect(server.allDirectories()).toEqual([]);
      expect(existsSync(server.socketPath), "the control socket after the end").toBe(false);
    } finally {
      await server.kill("SIGKILL");
      removeWhatGoes(server.stateDirectory);
    }
    // What a killed server leaves is not its child any more, and PID 1 may be a program that reaps nobody.
    const hasOrphans = server.wasKilled || options.forgivesZombies === true;
    await assertNoLeaks(hasOrphans ? forgiveZombies(before) : before);
  }, patienceMs(60_000));
  return server;
}
