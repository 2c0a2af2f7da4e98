/**
 * A lock between processes on this host that cannot go stale: flock(1) holds it for as long as our end of its stdin is
 * open, so it goes with us, however we end.
 */
import { spawn } from "node:child_process";
import { once } from "node:events";
import { HoldfastError } from "@holdfast/protocol";

export async function withHostLock<T>(path: string, work: () => Promise<T>): Promise<T> {
  const holder = spawn("flock", [path, "/bin/sh", "-c", "echo held; exec cat >/dev/null"], {
    stdio: ["pipe", "pipe", "ignore"],
    env: { PATH: "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin" },
  });
  const exited = once(holder, "exit");
  const failed = new Promise<never>((_resolve, reject) => {
    holder.once("error", reject);
    holder.once("exit", () => reject(new Error("flock ended early")));
  });
  try {
    await Promise.race([once(holder.stdout, "data"), failed]);
  } catch (error) {
    throw new HoldfastError("host_unsupported", `cannot lock ${path}: ${(error as Error).message}`, {
      cause: error,
      hint: "flock(1) of util-linux must be installed, and the directory writable.",
    });
  }
  failed.catch(() => {});
  try {
    return await work();
  } finally {
    holder.stdin.end();
    await exited;
  }
}
