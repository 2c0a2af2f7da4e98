/** What a program inside is told about its machine is what it really has. */
import { existsSync, readFileSync } from "node:fs";
import { availableParallelism } from "node:os";
import type { Sandbox } from "@holdfast/engine";
import { describe, expect, it } from "vitest";
import { NODE_INSIDE } from "../../helpers/inside.js";
import { type OpenEngine, useSharedEngine } from "../../helpers/shared-engine.js";
import { MIB, run, SMALL_LIMITS, shell } from "../../helpers/use-engine.js";

const NODE_VIEW = "console.log(JSON.stringify([os.cpus().length, os.availableParallelism(), os.totalmem()]))";

const BOOT_ID = "/proc/sys/kernel/random/boot_id";

interface View {
  readonly cpus: number;
  readonly memoryBytes: number;
  readonly pids: number;
}

async function expectView(sandbox: Sandbox, { cpus, memoryBytes, pids }: View): Promise<void> {
  const text = async (script: string) => (await shell(sandbox, script)).stdout.trim();
  expect(await text("nproc")).toBe(String(cpus));
  expect(await text("getconf _NPROCESSORS_ONLN")).toBe(String(cpus));
  expect(await text("grep -c ^processor /proc/cpuinfo")).toBe(String(cpus));
  expect(await text("grep -c '^cpu[0-9]' /proc/stat")).toBe(String(cpus));
  expect(await text("awk '/^MemTotal:/ { print $2 * 1024 }' /proc/meminfo")).toBe(String(memoryBytes));
  if ((await shell(sandbox, "command -v free")).exitCode === 0) {
    expect(await text("free -b | awk '/^Mem:/ { print $2 }'")).toBe(String(memoryBytes));
  }
  expect(await text("ulimit -p")).toBe(String(pids));
  if (NODE_INSIDE) {
    const seen: unknown = JSON.parse((await run(sandbox, ["node", "-e", NODE_VIEW])).stdout);
    expect(seen).toEqual([cpus, cpus, memoryBytes]);
  }
}

export function describeView(open: OpenEngine): void {
  describe("the view from inside", () => {
    const use = useSharedEngine(open);
    const hostCpus = availableParallelism();

    it("agrees with the limits", async () => {
      const sandbox = await use.create({
        limits: { ...SMALL_LIMITS, memoryBytes: 200 * MIB, pids: 77, cpuMillis: 1000 },
      });
      await expectView(sandbox, { cpus: 1, memoryBytes: 200 * MIB, pids: 77 });
    });

    it.each([
      [100, 1],
      [1000, 1],
      [1001, Math.min(2, hostCpus)],
      [1_000_000, hostCpus],
    ])("of %i thousandths of a CPU is %i CPUs", async (cpuMillis, cpus) => {
      const sandbox = await use.create({ limits: { ...SMALL_LIMITS, cpuMillis } });
      expect((await run(sandbox, ["nproc"])).stdout).toBe(`${cpus}\n`);
    });

    it("follows the limits when they change", async () => {
      const sandbox = await use.create({ limits: { ...SMALL_LIMITS, memoryBytes: 200 * MIB, cpuMillis: 1000 } });
      await sandbox.resize({ memoryBytes: 300 * MIB, pids: 99, cpuMillis: hostCpus * 1000 });
      await expectView(sandbox, { cpus: hostCpus, memoryBytes: 300 * MIB, pids: 99 });
      await sandbox.resize({ memoryBytes: 150 * MIB, pids: 40, cpuMillis: 500 });
      await expectView(sandbox, { cpus: 1, memoryBytes: 150 * MIB, pids: 40 });
    });

    it("shows memory in use as in use", async () => {
      const sandbox = await use.create({ limits: { ...SMALL_LIMITS, memoryBytes: 256 * MIB } });
      const free = async () =>
        Number((await shell(sandbox, "awk '/^MemFree:/ { print $2 }' /proc/meminfo")).stdout) * 1024;
      const before = await free();
      await shell(sandbox, "head -c 64M /dev/urandom >/dev/shm/held");
      expect(before - (await free())).toBeGreaterThan(48 * MIB);
    });

    it("has a boot id of its own", async () => {
      const sandboxes = await Promise.all([use.create(), use.create()]);
      const ids: string[] = [];
      for (const sandbox of sandboxes) {
        const [first, second] = [await run(sandbox, ["cat", BOOT_ID]), await run(sandbox, ["cat", BOOT_ID])];
        expect(first.stdout).toBe(second.stdout);
        expect(first.stdout).toMatch(/^[0-9a-f]{8}-[0-9a-f]{4}-4[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}\n$/);
        ids.push(first.stdout);
      }
      expect(new Set([...ids, readFileSync(BOOT_ID, "utf8")]).size).toBe(3);
    });

    it.skipIf(!existsSync("/usr/bin/python3"))("has python, in a login shell too", async () => {
      const sandbox = await use.create();
      const script = ["-c", "import sys; print(sys.version_info[0])"];
      expect((await run(sandbox, ["python", ...script])).stdout).toBe("3\n");
      for (const user of ["user", "root"]) {
        const login = await run(sandbox, ["bash", "-lc", `python -c '${script[1]}'`], { user });
        expect(login).toMatchObject({ stdout: "3\n", exitCode: 0 });
      }
    });

    it("has a terminal that programs know", async () => {
      const sandbox = await use.create();
      const colours = await run(sandbox, ["tput", "colors"], { env: { TERM: "xterm-256color" } });
      expect(colours).toMatchObject({ stdout: "256\n", exitCode: 0 });
    });

    it("is not the sandbox's to change", async () => {
      const sandbox = await use.create();
      for (const path of ["/proc/meminfo", "/proc/cpuinfo", "/proc/stat", BOOT_ID]) {
        expect((await shell(sandbox, `echo lie >${path}`, { user: "root" })).exitCode).not.toBe(0);
        expect((await shell(sandbox, `umount ${path}`, { user: "root" })).exitCode).not.toBe(0);
      }
    });
  });
}
