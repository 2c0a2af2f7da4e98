/** A real server, started as its users start it, and the commands that speak to it. */
import { execFileSync } from "node:child_process";
import { once } from "node:events";
import { existsSync, mkdtempSync, readdirSync, rmSync } from "node:fs";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { afterAll, afterEach, beforeAll, beforeEach, expect } from "vitest";
import { assertNoLeaks, type Inventory, OUR_DIRECTORIES, takeInventory } from "../helpers/leaks.js";
import { SERVER_DEFAULTS } from "../helpers/needs-host.js";
import { forgiveZombies } from "../helpers/processes.js";
import { CLI, CliProcess, type CliResult } from "./use-cli.js";

const root = fileURLToPath(new URL("../..", import.meta.url));

/** What `holdfast serve --json` prints. */
export interface Ready {
  readonly url: string;
  readonly socketPath: string;
  readonly domain: string | null;
  readonly caPath: string | null;
  readonly apiKey: string | null;
  readonly pid: number;
}

/** Call it once in a file. After each test its sandboxes are ended, and nothing of them may be left on the host. */
export class ServerInUse {
  readonly stateDirectory: string = mkdtempSync(OUR_DIRECTORIES);
  /** Of the server that runs now. */
  ready!: Ready;
  process!: CliProcess;
  /** A directory for the test that runs. */
  scratch = "";

  #before: Inventory | undefined;
  readonly #settings: Readonly<Record<string, string>>;

  /** `settings`: variables of the server's configuration. */
  constructor(settings: Readonly<Record<string, string>> = {}) {
    this.#settings = settings;
    beforeAll(async () => {
      // Up to date it costs a second, and nothing stale can be tested.
      execFileSync(process.execPath, [join(root, "node_modules/typescript/bin/tsc"), "-b", join(root, "packages/cli")]);
      await this.serve();
    });
    beforeEach(() => {
      this.scratch = mkdtempSync(join(this.stateDirectory, "scratch-"));
      this.#before = takeInventory();
    });
    afterEach(async () => {
      const left = (await this.ok("ps", "--quiet")).split("\n").filter((id) => id !== "");
      if (left.length > 0) await this.ok("kill", ...left);
      rmSync(this.scratch, { recursive: true, force: true });
      const sandboxes = join(this.stateDirectory, "sandboxes");
      expect(existsSync(sandboxes) ? readdirSync(sandboxes) : []).toEqual([]);
      if (this.#before !== undefined) await assertNoLeaks(forgiveZombies(this.#before));
    });
    afterAll(async () => {
      await this.stop();
      rmSync(this.stateDirectory, { recursive: true, force: true });
    });
  }

  async serve(): Promise<void> {
    this.process = new CliProcess(process.execPath, [CLI, "serve", "--json", "--port", "0"], {
      // None is made ready: after each test nothing may be left.
      env: {
        HOLDFAST_STATE_DIR: this.stateDirectory,
        HOLDFAST_SERVE_WARM_TOTAL: "0",
        ...SERVER_DEFAULTS,
        ...this.#settings,
      },
    });
    while (!this.process.stdout.includes("\n")) await once(this.process.child.stdout, "data");
    this.ready = JSON.parse(this.process.stdout) as Ready;
    // The pool of a server that starts anew is mounted anew.
    const { mounts, loopDevices } = takeInventory();
    if (this.#before !== undefined) this.#before = { ...this.#before, mounts, loopDevices };
  }

  /** Its log is in what it resolves to. */
  async stop(signal: NodeJS.Signals = "SIGTERM"): Promise<CliResult> {
    this.process.child.kill(signal);
    return this.process.ended;
  }

  start(...args: string[]): CliProcess {
    return new CliProcess(process.execPath, [CLI, ...args], { env: { HOLDFAST_STATE_DIR: this.stateDirectory } });
  }

  /** To its end; stdin is empty. */
  holdfast(...args: string[]): Promise<CliResult> {
    return this.feed("", ...args);
  }

  feed(input: string, ...args: string[]): Promise<CliResult> {
    const { child, ended } = this.start(...args);
    child.stdin.end(input);
    return ended;
  }

  /** What it prints; it must work. */
  async ok(...args: string[]): Promise<string> {
    const { code, stdout, stderr } = await this.holdfast(...args);
    expect({ code, stderr }).toMatchObject({ code: 0 });
    return stdout.toString().trimEnd();
  }

  async json<T>(...args: string[]): Promise<T> {
    return JSON.parse(await this.ok(...args)) as T;
  }

  /** A shell script in which `holdfast` is ours. */
  shell(script: string): CliProcess {
    return new CliProcess("bash", ["-c", `holdfast() { "${process.execPath}" "${CLI}" "$@"; }\n${script}`], {
      env: { HOLDFAST_STATE_DIR: this.stateDirectory },
    });
  }
}
