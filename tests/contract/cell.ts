/**
 * One cell of the matrix: a published SDK of E2B, and a way of addressing the server. The cases are the same in all of
 * them; where an SDK or a way cannot have one, the case says so.
 */
import { createHash } from "node:crypto";
import type { CommandHandle, E2BClientOpts, Sandbox, SandboxOpts } from "e2b";
import * as newest from "e2b";
import * as previous from "e2b-v1-paths";
import { afterAll, beforeAll, describe, expect, onTestFinished, test } from "vitest";
import { WebSocket } from "ws";
import type { ServerInUse } from "../helpers/use-server.js";

export type Sdk = typeof newest;

/** The classes of both look alike; their private fields alone make them different types. */
const SDKS = { "2.45": previous as unknown as Sdk, "2.51": newest } as const;
export type SdkVersion = keyof typeof SDKS;
export const SDK_VERSIONS = Object.keys(SDKS) as SdkVersion[];

/**
 * `header`: `E2B_API_URL` and `E2B_SANDBOX_URL`, plain HTTP on one address. `domain`: `E2B_DOMAIN`, TLS and a name for
 * every port of every sandbox.
 */
export type Way = "header" | "domain";

export interface Cell {
  readonly version: SdkVersion;
  readonly way: Way;
  readonly server: ServerInUse;
  /** Its error classes and enumerations. */
  readonly sdk: Sdk;
  /** Its classes, bound to the server. */
  readonly client: InstanceType<Sdk["E2B"]>;
  /** Alive through all cases, for those that leave it as it was. */
  readonly sandbox: Sandbox;
  /** One for this case alone. */
  create(options?: SandboxOpts): Promise<Sandbox>;
  /** A client that knows nothing of this one's sandboxes: the other SDK. */
  readonly otherClient: InstanceType<Sdk["E2B"]>;
  /** A request to a port inside, addressed the way of this cell. */
  reach(sandbox: Sandbox, port: number, path: string, init?: RequestInit): Promise<Response>;
  openWebSocket(sandbox: Sandbox, port: number, path: string, headers?: Record<string, string>): WebSocket;
}

function connectionOptions(server: ServerInUse, way: Way): E2BClientOpts {
  return way === "header"
    ? { apiKey: server.apiKey, apiUrl: server.url, sandboxUrl: server.url }
    : { apiKey: server.apiKey, domain: String(server.domain) };
}

function createCell(version: SdkVersion, way: Way, server: ServerInUse): Omit<Cell, "sandbox"> {
  const sdk = SDKS[version];
  const client = new sdk.E2B(connectionOptions(server, way));
  const other = SDKS[version === "2.45" ? "2.51" : "2.45"];
  const address = (sandbox: Sandbox, port: number, scheme: string) =>
    way === "header" ? server.url.replace(/^http/, scheme) : `${scheme}s://${sandbox.getHost(port)}`;
  const addressing = (sandbox: Sandbox, port: number): Record<string, string> =>
    way === "header" ? { "E2b-Sandbox-Id": sandbox.sandboxId, "E2b-Sandbox-Port": String(port) } : {};
  return {
    version,
    way,
    server,
    sdk,
    client,
    otherClient: new other.E2B(connectionOptions(server, way)),
    async create(options = {}) {
      const sandbox = await client.Sandbox.create({ timeoutMs: 120_000, ...options });
      onTestFinished(async () => {
        await sandbox.kill();
      });
      return sandbox;
    },
    reach(sandbox, port, path, init = {}) {
      const headers = { ...addressing(sandbox, port), ...(init.headers as Record<string, string> | undefined) };
      return fetch(`${address(sandbox, port, "http")}${path}`, { ...init, headers });
    },
    openWebSocket(sandbox, port, path, headers = {}) {
      return new WebSocket(`${address(sandbox, port, "ws")}${path}`, {
        headers: { ...addressing(sandbox, port), ...headers },
      });
    },
  };
}

type Run = (cell: Cell) => Promise<void>;
export interface Case {
  readonly run: Run;
  /** Only in these cells. */
  readonly in?: (cell: Pick<Cell, "version" | "way">) => boolean;
  readonly timeoutMs?: number;
}
/** A sentence, and what proves it. */
export type Cases = Readonly<Record<string, Run | Case>>;

/** Runs all the tables in one cell. */
export function describeCell(
  version: SdkVersion,
  way: Way,
  server: ServerInUse,
  tables: Readonly<Record<string, Cases>>,
): void {
  describe(`e2b ${version} by ${way}`, () => {
    const cell = {} as { -readonly [K in keyof Cell]: Cell[K] };
    beforeAll(async () => {
      Object.assign(cell, createCell(version, way, server));
      cell.sandbox = await cell.client.Sandbox.create({
        timeoutMs: 600_000,
        envs: { FROM_SANDBOX: "sandbox", BOTH: "sandbox" },
      });
    });
    afterAll(async () => {
      expect(await cell.sandbox.kill()).toBe(true);
    });
    for (const [title, cases] of Object.entries(tables)) {
      describe(title, () => {
        for (const [name, given] of Object.entries(cases)) {
          const wanted: Case = typeof given === "function" ? { run: given } : given;
          if (wanted.in?.({ version, way }) === false) continue;
          test(name, () => wanted.run(cell), wanted.timeoutMs);
        }
      });
    }
  });
}

export function sha256(data: string | Uint8Array): string {
  return createHash("sha256").update(data).digest("hex");
}

/** What a call that must fail throws. */
export async function failure(promise: Promise<unknown>): Promise<Error> {
  try {
    await promise;
  } catch (error) {
    return error as Error;
  }
  throw new Error("it was expected to fail");
}

/** Until the command has said so: programs tell when they are ready, so that no test sleeps and hopes. */
export async function says(command: CommandHandle, text: string): Promise<void> {
  await expect.poll(() => command.stdout, { timeout: 20_000, interval: 5 }).toContain(text);
}
