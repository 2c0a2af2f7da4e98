/** For tests that need the engine in a process of its own: plain node runs what `tsc -b` has built from the sources. */
import { type ChildProcess, execFileSync, spawn } from "node:child_process";
import { existsSync } from "node:fs";
import { createInterface } from "node:readline";
import { fileURLToPath } from "node:url";
import { fixturePath } from "./fixtures.js";

const root = fileURLToPath(new URL("../..", import.meta.url));

/** Up to date in any case: without changes it takes a moment. */
export function buildEngine(): void {
  try {
    execFileSync(process.execPath, [`${root}node_modules/typescript/bin/tsc`, "-b", "packages/engine"], {
      cwd: root,
      encoding: "utf8",
    });
  } catch (error) {
    // Type errors are the type check's business; what matters here is that there is something to run.
    if (!existsSync(`${root}packages/engine/dist/index.js`)) throw error;
  }
}

export interface ScriptProcess {
  readonly child: ChildProcess;
  /** The next line that it prints, parsed; rejects with its stderr when it ends instead. */
  next<T>(): Promise<T>;
  readonly exited: Promise<{ readonly code: number | null; readonly signal: NodeJS.Signals | null }>;
}

/** A script of tests/fixtures, with a line of JSON for whatever it has to say. */
export function runScript(name: string, args: readonly string[], prefix: readonly string[] = []): ScriptProcess {
  const [file = process.execPath, ...rest] = [...prefix, process.execPath, "--expose-gc", fixturePath(name), ...args];
  const child = spawn(file, rest, { stdio: ["pipe", "pipe", "pipe"] });
  let stderr = "";
  child.stderr.setEncoding("utf8").on("data", (text: string) => {
    stderr = (stderr + text).slice(-10_000);
  });
  const lines = createInterface({ input: child.stdout })[Symbol.asyncIterator]();
  const exited = new Promise<{ code: number | null; signal: NodeJS.Signals | null }>((resolve) => {
    child.once("exit", (code, signal) => resolve({ code, signal }));
  });
  return {
    child,
    exited,
    async next<T>() {
      const { done, value } = await lines.next();
      if (done === true) throw new Error(`${name} ended (${JSON.stringify(await exited)}): ${stderr}`);
      return JSON.parse(value) as T;
    },
  };
}
