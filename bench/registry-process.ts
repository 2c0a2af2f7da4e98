/** Debian's docker-registry on a port of this machine. */
import { spawn } from "node:child_process";
import { mkdirSync, openSync, rmSync, writeFileSync } from "node:fs";
import { type AddressInfo, createServer } from "node:net";
import { join } from "node:path";
import { setTimeout as sleep } from "node:timers/promises";
import type { Bench } from "./harness.js";
import { exitOf, findProgram } from "./processes.js";

const START_MS = 10_000;

export interface RegistryProcess {
  /** `localhost:5000`. */
  readonly host: string;
  /** Where it keeps a blob. */
  blobPath(digest: string): string;
  /** Everything it has. It keeps nothing in memory. */
  empty(): void;
}

/** A string says why there is none. */
export async function startRegistry(bench: Bench): Promise<RegistryProcess | string> {
  const program = findProgram("docker-registry");
  if (program === undefined) return "docker-registry is not installed";
  const directory = join(bench.scratchDirectory, "registry");
  const storage = join(directory, "storage");
  mkdirSync(storage, { recursive: true });
  const port = await freePort();
  const config = {
    version: "0.1",
    log: { level: "error", accesslog: { disabled: true } },
    storage: { filesystem: { rootdirectory: storage } },
    http: { addr: `127.0.0.1:${port}`, secret: "for the benchmark" },
  };
  const path = join(directory, "config.yml");
  // JSON is YAML.
  writeFileSync(path, JSON.stringify(config));
  const log = openSync(join(directory, "log"), "a");
  const child = spawn(program, ["serve", path], { stdio: ["ignore", log, log], detached: true });
  bench.onEnd(async () => {
    child.kill("SIGKILL");
    await exitOf(child);
  });
  const deadline = performance.now() + START_MS;
  while (!(await answers(port))) {
    if (performance.now() > deadline || child.exitCode !== null) return "docker-registry does not start";
    await sleep(50);
  }
  return {
    host: `localhost:${port}`,
    blobPath: (digest) => {
      const hex = digest.replace("sha256:", "");
      return join(storage, "docker/registry/v2/blobs/sha256", hex.slice(0, 2), hex, "data");
    },
    empty: () => rmSync(join(storage, "docker"), { recursive: true, force: true }),
  };
}

async function answers(port: number): Promise<boolean> {
  try {
    return (await fetch(`http://127.0.0.1:${port}/v2/`)).status === 200;
  } catch {
    return false;
  }
}

function freePort(): Promise<number> {
  return new Promise((resolve) => {
    const server = createServer();
    server.listen(0, "127.0.0.1", () => {
      const { port } = server.address() as AddressInfo;
      server.close(() => resolve(port));
    });
  });
}
