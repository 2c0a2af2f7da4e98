/** What is in the way of a lower memory limit is taken back by another process, while this one goes on. */
import { type ChildProcess, execFileSync, spawn } from "node:child_process";
import { once } from "node:events";
import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { createSandboxId } from "@holdfast/protocol";
import { afterEach, beforeEach, expect, test } from "vitest";
import { detectCgroups } from "../../packages/engine/src/cgroups/index.js";
import { Launcher } from "../../packages/engine/src/host/launcher.js";
import { OUR_DIRECTORIES } from "../helpers/leaks.js";

const MIB = 1024 * 1024;
const LIMIT_MS = 60_000;
const launcher = new Launcher();
let directory: string;
let child: ChildProcess | undefined;

beforeEach(() => {
  directory = mkdtempSync(OUR_DIRECTORIES);
});
afterEach(() => {
  child?.kill("SIGKILL");
  rmSync(directory, { recursive: true, force: true });
});

test("page cache makes room for a lower limit while this process goes on", async () => {
  const path = join(directory, "file");
  writeFileSync(path, Buffer.alloc(100 * MIB));
  execFileSync("sync", [path]);
  // What is read next is counted as its reader's.
  execFileSync("dd", [`if=${path}`, "iflag=nocache", "count=0"], { stdio: "ignore" });
  const host = detectCgroups({ parent: `test-${createSandboxId()}` });
  const limits = { memoryBytes: 256 * MIB, pids: 64, cpuMillis: undefined };
  const cgroup = host.create(createSandboxId(), { limits, uid: 1_879_048_192, gid: 1_879_048_192 });
  try {
    const join = cgroup.commandDirs.map((each) => `mkdir ${each.path}/1; echo $$ > ${each.path}/1/cgroup.procs`);
    child = spawn("sh", ["-c", `${join.join("; ")}; cat ${path} > /dev/null; echo read; exec sleep 1000`]);
    await once(child.stdout as NodeJS.ReadableStream, "data");
    expect(cgroup.readSandbox().memoryBytes).toBeGreaterThan(100 * MIB);
    let turns = 0;
    let written: string | undefined;
    const ticking = setInterval(() => turns++);
    await cgroup.makeRoom(64 * MIB, async (file, value) => {
      written = file;
      await launcher.reclaim(file, value, LIMIT_MS);
      return true;
    });
    clearInterval(ticking);
    expect(written).toMatch(/\/memory\.(limit_in_bytes|reclaim)$/);
    expect(turns).toBeGreaterThan(0);
    expect(cgroup.readSandbox().memoryBytes).toBeLessThanOrEqual(64 * MIB);
    cgroup.setLimits({ memoryBytes: 64 * MIB });
    expect(cgroup.readSandbox()).toMatchObject({ memoryLimitBytes: 64 * MIB, oomKills: 0 });
  } finally {
    await cgroup.kill();
    cgroup.remove();
    host.removeIfEmptyParents();
  }
});

test("the process that takes memory back ends when it is called off, and when its parent has ended", async () => {
  // Nobody reads from it: whoever wants to write waits.
  const fifo = join(directory, "fifo");
  execFileSync("mkfifo", [fifo]);
  const controller = new AbortController();
  const writing = launcher.reclaim(fifo, "1", LIMIT_MS, { signal: controller.signal });
  controller.abort();
  await expect(writing).rejects.toThrow("exit 128");
  child = spawn(launcher.path, ["reclaim", fifo, "1", String(LIMIT_MS), String(process.pid + 1)]);
  expect((await once(child, "exit"))[0]).toBe(125);
});
