/** `holdfast-tar` on the host: a child whose end says how it went, in one line of JSON. */
import { spawn } from "node:child_process";
import { HoldfastError } from "@holdfast/protocol";
import type { ImagesContext } from "../context.js";

const MAX_SAID_BYTES = 64 * 1024;

export interface TarChild {
  /** Its line of JSON if it went well; rejects with why it did not. Resolves after its pipes are closed. */
  readonly report: Promise<Readonly<Record<string, unknown>>>;
  kill(): void;
}

/** `stdin`, `stdout`: a descriptor that the archive goes through. Its line comes on stdout if the archive does not. */
export function startTar(
  context: Pick<ImagesContext, "tarProgram">,
  options: {
    readonly args: readonly string[];
    readonly stdin?: number | undefined;
    readonly stdout?: number | undefined;
    /** For one that does not notice that we are gone by its pipe. */
    readonly diesWithUs?: boolean | undefined;
    readonly what: string;
    readonly signal?: AbortSignal | undefined;
  },
): TarChild {
  const { args, what, signal } = options;
  signal?.throwIfAborted();
  const [program, ...rest] =
    options.diesWithUs === true
      ? (["setpriv", "--pdeathsig", "KILL", context.tarProgram, ...args] as const)
      : ([context.tarProgram, ...args] as const);
  const child = spawn(program, rest, {
    stdio: [options.stdin ?? "ignore", options.stdout ?? "pipe", "pipe"],
    env: { PATH: "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", LC_ALL: "C" },
  });
  const reportsOn = options.stdout === undefined ? "stdout" : "stderr";
  const said = { stdout: "", stderr: "" };
  for (const name of ["stdout", "stderr"] as const) {
    child[name]?.setEncoding("utf8").on("data", (text: string) => {
      if (said[name].length < MAX_SAID_BYTES) said[name] += text;
    });
  }
  let isKilled = false;
  const kill = (): void => {
    isKilled = true;
    child.kill("SIGKILL");
  };
  signal?.addEventListener("abort", kill, { once: true });
  const report = new Promise<Readonly<Record<string, unknown>>>((resolve, reject) => {
    child.on("error", (error: NodeJS.ErrnoException) => {
      reject(
        new HoldfastError("host_unsupported", `cannot run ${program}: ${error.message}`, {
          cause: error,
          hint: "Build it: npm run setup.",
        }),
      );
    });
    child.on("close", (code, by) => {
      signal?.removeEventListener("abort", kill);
      if (signal?.aborted === true) return reject(HoldfastError.from(signal.reason, "canceled"));
      if (code === 0) return resolve(lastLine(said[reportsOn]) ?? {});
      if (isKilled) return reject(new HoldfastError("canceled", `${what}: stopped`));
      return reject(errorFromTar(said.stderr, by ?? `exit status ${code}`, what));
    });
  });
  // Whoever feeds it may fail first, and looks at this only then.
  report.catch(() => undefined);
  return { report, kill };
}

function lastLine(text: string): Record<string, unknown> | undefined {
  const line = text.trimEnd().split("\n").at(-1) ?? "";
  if (!line.startsWith("{")) return undefined;
  try {
    return JSON.parse(line) as Record<string, unknown>;
  } catch {
    // Not what it says when it knows what it says.
    return undefined;
  }
}

/** Its last words are `{"error":…,"entry":…,"code":…}`; a code is an errno's name or what is wrong with the archive. */
function errorFromTar(stderr: string, status: string, what: string): HoldfastError {
  const line = lastLine(stderr);
  const code = typeof line?.code === "string" ? line.code : undefined;
  const entry = typeof line?.entry === "string" ? `${JSON.stringify(line.entry)}: ` : "";
  const message = typeof line?.error === "string" ? `${entry}${line.error}` : stderr.trim().slice(-1000) || status;
  const isOverLimit = code === "too_large" && message.endsWith("holds more bytes than allowed");
  if (code === "ENOSPC" || code === "EDQUOT" || isOverLimit) {
    return new HoldfastError("no_space", `${what}: no space left (${message})`, {
      hint: "Free some space; `holdfast image prune` removes what no image and no sandbox needs.",
    });
  }
  const isTheirs = code !== undefined && /^[a-z]/.test(code) && code !== "usage" && code !== "changed";
  return new HoldfastError(isTheirs ? "image_invalid" : "engine_fault", `${what}: ${message}`, {
    details: code === undefined ? {} : { code, entry: line?.entry },
  });
}
