/** The real `holdfast`, as its users start it: the build, in a process of its own, on a state directory of its own. */
import { type ChildProcessByStdio, execFileSync, spawn } from "node:child_process";
import { once } from "node:events";
import { existsSync, mkdtempSync, readdirSync, rmSync } from "node:fs";
import { join } from "node:path";
import type { Readable, Writable } from "node:stream";
import { fileURLToPath } from "node:url";
import type { CommandCause, Incident, Usage } from "@holdfast/protocol";
import { afterAll, afterEach, beforeAll, beforeEach, expect } from "vitest";
import { assertNoLeaks, type Inventory, OUR_DIRECTORIES, takeInventory } from "../helpers/leaks.js";

const root = fileURLToPath(new URL("../..", import.meta.url));
export const CLI = join(root, "packages/cli/dist/main.js");

export interface CliResult {
  /** 128 + n if signal n ended holdfast itself, which must not happen. */
  readonly code: number;
  readonly stdout: Buffer;
  readonly stderr: string;
  readonly tookMs: number;
}

/** What `--json` prints, as its readers see it. */
export interface PrintedReport {
  readonly cause: CommandCause | null;
  readonly incidents: readonly Incident[];
  readonly exitCode: number;
  readonly usage: Usage | null;
  readonly message: string;
  readonly sandboxId: string | null;
  readonly error?: { readonly code: string; readonly message: string; readonly hint?: string };
}

export class CliProcess {
  readonly child: ChildProcessByStdio<Writable, Readable, Readable>;
  readonly ended: Promise<CliResult>;
  #stdout = Buffer.alloc(0);
  #stderr = "";

  constructor(
    command: string,
    args: readonly string[],
    options: { readonly env?: Record<string, string>; readonly cwd?: string },
  ) {
    const start = performance.now();
    this.child = spawn(command, args, {
      stdio: ["pipe", "pipe", "pipe"],
      cwd: options.cwd,
      env: { ...process.env, NO_COLOR: "1", ...options.env },
    });
    this.child.stdin.on("error", () => {});
    this.child.stdout.on("data", (chunk: Buffer) => {
      this.#stdout = Buffer.concat([this.#stdout, chunk]);
    });
    this.child.stderr.setEncoding("utf8").on("data", (text: string) => {
      this.#stderr += text;
    });
    this.ended = once(this.child, "close").then(([code, signal]: unknown[]) => ({
      code: typeof code === "number" ? code : Number.NaN,
      stdout: this.#stdout,
      stderr: signal === null ? this.#stderr : `${this.#stderr}\nended by ${String(signal)}`,
      tookMs: performance.now() - start,
    }));
  }

  get stdout(): string {
    return this.#stdout.toString();
  }

  get stderr(): string {
    return this.#stderr;
  }

  /** Programs say when they are ready, so that no test sleeps and hopes. */
  async says(text: string): Promise<void> {
    await expect.poll(() => this.stdout, { timeout: 20_000, interval: 5 }).toContain(text);
  }
}

export interface CliInUse {
  readonly stateDirectory: string;
  /** Starts `holdfast <args>`. */
  start(
    args: readonly string[],
    options?: { readonly env?: Record<string, string>; readonly cwd?: string },
  ): CliProcess;
  /** Runs it to its end; stdin is `input`, or empty. */
  holdfast(
    args: readonly string[],
    options?: { readonly input?: string; readonly env?: Record<string, string>; readonly cwd?: string },
  ): Promise<CliResult>;
  /** `holdfast run --json <args>`: the object on the last line of stdout. */
  report(args: readonly string[]): Promise<PrintedReport>;
  /** A shell script in which `holdfast` is ours. */
  shell(script: string): CliProcess;
}

export function parseReport(stdout: Buffer): PrintedReport {
  return JSON.parse(stdout.toString().trimEnd().split("\n").at(-1) ?? "") as PrintedReport;
}

/** Call it once in a file; after each test nothing of ours may be left on the host. */
export function useCli(): CliInUse {
  const inUse = {} as { -readonly [K in keyof CliInUse]: CliInUse[K] };
  let before: Inventory;
  beforeAll(() => {
    // Up to date it costs a second, and nothing stale can be tested.
    execFileSync(process.execPath, [join(root, "node_modules/typescript/bin/tsc"), "-b", join(root, "packages/cli")]);
    inUse.stateDirectory = mkdtempSync(OUR_DIRECTORIES);
    const ours = (env: Record<string, string> = {}) => ({ HOLDFAST_STATE_DIR: inUse.stateDirectory, ...env });
    inUse.start = (args, options = {}) =>
      new CliProcess(process.execPath, [CLI, ...args], { ...options, env: ours(options.env) });
    inUse.holdfast = (args, options = {}) => {
      const { child, ended } = inUse.start(args, options);
      child.stdin.end(options.input ?? "");
      return ended;
    };
    inUse.report = async (args) => parseReport((await inUse.holdfast(["run", "--json", ...args])).stdout);
    inUse.shell = (script) =>
      new CliProcess("bash", ["-c", `holdfast() { "${process.execPath}" "${CLI}" "$@"; }\n${script}`], { env: ours() });
  });
  beforeEach(() => {
    before = takeInventory();
  });
  afterEach(async () => {
    const sandboxes = join(inUse.stateDirectory, "sandboxes");
    expect(existsSync(sandboxes) ? readdirSync(sandboxes) : []).toEqual([]);
    await assertNoLeaks(before);
  });
  afterAll(() => {
    rmSync(inUse.stateDirectory, { recursive: true, force: true });
  });
  return inUse;
}
