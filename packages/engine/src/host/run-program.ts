/** Runs one of the host's own small programs (mount, mkfs, our launcher's verbs) to its end, with bounded output. */
import { spawn } from "node:child_process";
import { type ErrorCode, HoldfastError } from "@holdfast/protocol";

const MAX_OUTPUT_BYTES = 64 * 1024;

export interface ProgramResult {
  readonly code: number;
  readonly stdout: string;
  readonly stderr: string;
}

export interface ProgramOptions {
  /** Kills it; the promise settles when it is gone. */
  readonly signal?: AbortSignal | undefined;
}

/** Never throws for an exit code; throws `host_unsupported` if the program is not there. */
export function tryProgram(
  file: string,
  args: readonly string[],
  { signal }: ProgramOptions = {},
): Promise<ProgramResult> {
  return new Promise((resolve, reject) => {
    // Our own environment stays here: host programs need a path and a fixed language, nothing else.
    const child = spawn(file, args, {
      stdio: ["ignore", "pipe", "pipe"],
      env: { PATH: "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", LC_ALL: "C" },
    });
    const output = { stdout: "", stderr: "" };
    for (const name of ["stdout", "stderr"] as const) {
      child[name].setEncoding("utf8");
      child[name].on("data", (text: string) => {
        if (output[name].length < MAX_OUTPUT_BYTES) output[name] += text;
      });
    }
    child.on("error", (error: NodeJS.ErrnoException) => {
      reject(
        new HoldfastError(
          "host_unsupported",
          `cannot run ${file}: ${error.code === "ENOENT" ? "it is not installed" : error.message}`,
          {
            cause: error,
            hint: "Run `holdfast doctor` to see what this host lacks.",
          },
        ),
      );
    });
    const kill = () => child.kill("SIGKILL");
    if (signal?.aborted) kill();
    signal?.addEventListener("abort", kill, { once: true });
    child.on("close", (code) => {
      signal?.removeEventListener("abort", kill);
      resolve({ code: code ?? 128, ...output });
    });
  });
}

export async function runProgram(
  file: string,
  args: readonly string[],
  code: ErrorCode = "engine_fault",
  options: ProgramOptions = {},
): Promise<string> {
  const result = await tryProgram(file, args, options);
  if (result.code !== 0) {
    const said = result.stderr.trim() || result.stdout.trim() || "it gave no reason";
    throw new HoldfastError(code, `${file} ${args[0] ?? ""} failed (exit ${result.code}): ${said}`);
  }
  return result.stdout;
}
