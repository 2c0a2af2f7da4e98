// How the scripts of this repository run other programs, and how they fail: with a sentence, never with a stack trace.
import { spawn } from "node:child_process";
import { accessSync, constants } from "node:fs";
import { constants as osConstants } from "node:os";
import { delimiter, join } from "node:path";
import { fileURLToPath } from "node:url";

export const root = fileURLToPath(new URL("..", import.meta.url)).replace(/\/$/, "");

/** What a user's PATH often lacks on Debian, and where `nft`, `losetup` and `mkfs.btrfs` live. */
const SYSTEM_DIRECTORIES = ["/usr/local/sbin", "/usr/sbin", "/sbin"];
const HEAD_LINES = 8;
const TAIL_LINES = 20;

export const isRoot = process.getuid?.() === 0;

/** A failure that is explained: `message` is for the user, `output` an excerpt of what the failing program said. */
export class SetupError extends Error {
  constructor(message, output = "") {
    super(message);
    this.output = output;
  }
}

export function environment(extra = {}) {
  const directories = (process.env.PATH ?? "/usr/local/bin:/usr/bin:/bin").split(delimiter);
  for (const directory of SYSTEM_DIRECTORIES) if (!directories.includes(directory)) directories.push(directory);
  return { ...process.env, PATH: directories.join(delimiter), ...extra };
}

/** The full path of a program, or undefined if there is none. */
export function findProgram(name) {
  for (const directory of environment().PATH.split(delimiter)) {
    const path = join(directory, name);
    try {
      accessSync(path, constants.X_OK);
      return path;
    } catch {
      // Not in this directory; the next one may have it.
    }
  }
  return undefined;
}

/** The beginning, where a compiler names the first error, and the end, where the others sum up. */
export function excerpt(text) {
  const lines = text.trimEnd().split("\n");
  if (lines.length <= HEAD_LINES + TAIL_LINES) return lines.join("\n");
  return [...lines.slice(0, HEAD_LINES), "[...]", ...lines.slice(-TAIL_LINES)].join("\n");
}

/** Runs a program quietly. Resolves to its exit code and its output, stdout and stderr in the order they came. */
export function capture(command, args, env = {}) {
  return new Promise((resolve) => {
    const child = spawn(command, args, { cwd: root, env: environment(env), stdio: ["ignore", "pipe", "pipe"] });
    const chunks = [];
    child.stdout.on("data", (chunk) => chunks.push(chunk));
    child.stderr.on("data", (chunk) => chunks.push(chunk));
    child.on("error", (error) => resolve({ code: 127, output: error.message }));
    child.on("close", (code) => resolve({ code: code ?? 1, output: Buffer.concat(chunks).toString() }));
  });
}

/** Runs a program quietly; if it fails, `failure` says what that means and what to do. */
export async function run(command, args, failure, env = {}) {
  const { code, output } = await capture(command, args, env);
  if (code !== 0) throw new SetupError(failure, excerpt(output));
}

/** Gives the terminal to a program and resolves to its exit code (128 + n if signal n ended it). */
export function handOver(command, args, env = {}) {
  return finish(command, spawn(command, args, { cwd: root, env: environment(env), stdio: "inherit" }));
}

/** The same for one of several programs that run at once: it passes whole lines on, so that no two of them mix. */
export function stream(command, args, env = {}) {
  const child = spawn(command, args, { cwd: root, env: environment(env), stdio: ["ignore", "pipe", "pipe"] });
  passLines(child.stdout, process.stdout);
  passLines(child.stderr, process.stderr);
  return finish(command, child);
}

function passLines(from, to) {
  let rest = "";
  from.setEncoding("utf8");
  from.on("data", (text) => {
    const end = text.lastIndexOf("\n") + 1;
    if (end > 0) to.write(rest + text.slice(0, end));
    rest = end > 0 ? text.slice(end) : rest + text;
  });
  from.on("end", () => to.write(rest));
}

function finish(command, child) {
  return new Promise((resolve, reject) => {
    // Ctrl-C reaches the child by itself, through the terminal; we only must not die before it.
    const ignore = () => {};
    const forward = (signal) => child.kill(signal);
    process.on("SIGINT", ignore);
    process.on("SIGTERM", forward);
    process.on("SIGHUP", forward);
    child.on("error", (error) => reject(new SetupError(`Could not run ${command}: ${error.message}`)));
    child.on("close", (code, signal) => {
      process.off("SIGINT", ignore);
      process.off("SIGTERM", forward);
      process.off("SIGHUP", forward);
      resolve(code ?? 128 + (osConstants.signals[signal] ?? 0));
    });
  });
}

/** Cgroups, mounts and namespaces with many users belong to root: what touches them runs by sudo if need be. */
export function asRoot(command, args) {
  const sudo = isRoot ? undefined : findProgram("sudo");
  return sudo === undefined ? [command, args] : [sudo, ["--preserve-env", "--", command, ...args]];
}

/** The frame of every script: its exit code is what `body` resolves to. */
export async function main(body) {
  try {
    process.exitCode = (await body()) ?? 0;
  } catch (error) {
    if (error.output) console.error(`\n${error.output}`);
    console.error(`\n${error.message}`);
    process.exitCode = 1;
  }
}
