// Child processes that never outlive this script.
import { spawn } from "node:child_process";

/** Characters of a command's output that are kept for the case that it fails. */
const OUTPUT_KEPT = 8192;

export function say(message) {
  process.stderr.write(`[vm] ${message}\n`);
}

const children = new Set();
let stopping = null;

/** Registers a child (leader of its own process group) to be ended with us. */
export function adopt(child) {
  children.add(child);
  child.once("exit", () => children.delete(child));
  return child;
}

function signalGroup(child, signal) {
  if (child.pid === undefined || child.exitCode !== null || child.signalCode !== null) return;
  try {
    process.kill(-child.pid, signal);
  } catch (error) {
    if (error.code !== "ESRCH") throw error;
  }
}

/** Ends every child, gently first. What awaits the children fails then. */
export function stopChildren(reason, graceMs = 5000) {
  stopping ??= reason;
  for (const child of children) {
    signalGroup(child, "SIGTERM");
    setTimeout(() => signalGroup(child, "SIGKILL"), graceMs).unref();
  }
}

export function stopReason() {
  return stopping;
}

/** Spawns a child in a process group of its own. */
export function start(command, args, options = {}) {
  if (stopping) throw new Error(stopping);
  return adopt(spawn(command, args, { ...options, detached: true, env: withSbin(options.env ?? process.env) }));
}

function withSbin(env) {
  return { ...env, PATH: `${env.PATH ?? "/usr/bin:/bin"}:/usr/sbin:/sbin` };
}

export function ended(child) {
  return new Promise((resolve, reject) => {
    child.once("error", reject);
    child.once("close", (code, signal) => resolve({ code, signal }));
  });
}

/** Runs a command, silently unless it fails: then the end of its output is shown. */
export async function run(command, args, options = {}) {
  const child = start(command, args, { ...options, stdio: ["ignore", "pipe", "pipe"] });
  let output = "";
  for (const stream of [child.stdout, child.stderr]) {
    stream.setEncoding("utf8").on("data", (chunk) => {
      output = (output + chunk).slice(-OUTPUT_KEPT);
    });
  }
  const { code, signal } = await ended(child);
  if (stopping) throw new Error(stopping);
  if (code !== 0) {
    process.stderr.write(`${output.trimEnd()}\n`);
    throw new Error(`${command} failed (${signal ?? `exit status ${code}`})`);
  }
}

/** Runs a command and gives its standard output. */
export async function capture(command, args) {
  const child = start(command, args, { stdio: ["ignore", "pipe", "ignore"] });
  let text = "";
  child.stdout.setEncoding("utf8").on("data", (chunk) => (text += chunk));
  const { code } = await ended(child);
  if (code !== 0) throw new Error(`${command} failed (exit status ${code})`);
  return text;
}
