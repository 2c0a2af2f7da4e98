/** Processes outside any sandbox: started, waited for, looked at. */
import { type ChildProcess, spawn } from "node:child_process";
import { accessSync, constants, readdirSync, readFileSync } from "node:fs";
import { delimiter, join } from "node:path";

export function findProgram(name: string): string | undefined {
  for (const directory of [...(process.env.PATH ?? "").split(delimiter), "/usr/sbin", "/sbin"]) {
    try {
      accessSync(join(directory, name), constants.X_OK);
      return join(directory, name);
    } catch {
      // Not here.
    }
  }
  return undefined;
}

/** As a program would run another: piped stdio, until everything it said is read and it has ended. */
export function spawnAndWait(argv: readonly string[]): Promise<void> {
  return new Promise((resolve, reject) => {
    const child = spawn(argv[0] ?? "", argv.slice(1), { stdio: ["ignore", "pipe", "pipe"] });
    let said = "";
    child.stdout.resume();
    child.stderr.on("data", (bytes: Buffer) => {
      said = (said + bytes.toString()).slice(-1000);
    });
    child.on("error", reject);
    child.on("close", (code, signal) => {
      if (code === 0) resolve();
      else reject(new Error(`${argv[0]} ended with ${signal ?? code}: ${said.trim() || "no reason given"}`));
    });
  });
}

export interface Captured {
  /** 127 if it could not be run. */
  readonly code: number;
  readonly stdout: string;
  readonly stderr: string;
}

export function capture(argv: readonly string[], options: { readonly cwd?: string } = {}): Promise<Captured> {
  return new Promise((resolve) => {
    const child = spawn(argv[0] ?? "", argv.slice(1), { stdio: ["ignore", "pipe", "pipe"], ...options });
    const said = { stdout: "", stderr: "" };
    for (const name of ["stdout", "stderr"] as const) {
      child[name].setEncoding("utf8").on("data", (text: string) => {
        said[name] += text;
      });
    }
    child.on("error", (error) => resolve({ code: 127, stdout: "", stderr: error.message }));
    child.on("close", (code) => resolve({ code: code ?? 128, ...said }));
  });
}

export function exitOf(child: ChildProcess): Promise<void> {
  if (child.exitCode !== null || child.signalCode !== null) return Promise.resolve();
  return new Promise((resolve) => child.once("exit", () => resolve()));
}

function readProc(pid: number, file: string): string {
  try {
    return readFileSync(`/proc/${pid}/${file}`, "utf8");
  } catch {
    return ""; // It ended meanwhile.
  }
}

function childrenOf(pid: number): number[] {
  return readProc(pid, `task/${pid}/children`).split(" ").filter(Boolean).map(Number);
}

/** The process and all it has started. */
export function processTree(pid: number): number[] {
  return [pid, ...childrenOf(pid).flatMap(processTree)];
}

/** Memory of processes, with pages that several share counted in parts: what would be free without them. */
export function proportionalBytes(pids: readonly number[]): number {
  return pids.reduce((sum, pid) => {
    const kib = /^Pss:\s+(\d+) kB$/m.exec(readProc(pid, "smaps_rollup"))?.[1];
    return sum + Number(kib ?? 0) * 1024;
  }, 0);
}

/** The processes that carry a sandbox (bubblewrap and the guest), by sandbox id; found by their cgroup's path. */
export function carriersOf(ids: ReadonlySet<string>): Map<string, number[]> {
  const found = new Map<string, number[]>();
  for (const name of readdirSync("/proc")) {
    if (!/^\d+$/.test(name)) continue;
    const id = /\/([^/\n]+)\/guest$/m.exec(readProc(Number(name), "cgroup"))?.[1];
    if (id === undefined || !ids.has(id)) continue;
    found.set(id, [...(found.get(id) ?? []), Number(name)]);
  }
  return found;
}

/** PID 1 of a sandbox, as the host counts: the one of the two that the other has started. */
export function guestPidOf(id: string): number {
  const pids = carriersOf(new Set([id])).get(id) ?? [];
  const guest = pids.find((pid) => pids.some((other) => childrenOf(other).includes(pid)));
  if (guest === undefined) throw new Error(`the guest of sandbox ${id} is not to be found among ${pids.join(", ")}`);
  return guest;
}
