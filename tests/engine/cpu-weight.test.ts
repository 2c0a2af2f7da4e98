/** What a sandbox gets of the CPUs when all want more than there is. */
import { existsSync, readFileSync } from "node:fs";
import { createSandboxId } from "@holdfast/protocol";
import { afterEach, expect, test } from "vitest";
import { type CgroupHost, detectCgroups, type SandboxCgroup } from "../../packages/engine/src/cgroups/index.js";

const LIMITS = { memoryBytes: 64 * 1024 * 1024, pids: 64, cpuMillis: 1000 };
let host: CgroupHost;
let cgroup: SandboxCgroup;

afterEach(async () => {
  await cgroup.kill();
  cgroup.remove();
  host.removeIfEmptyParents();
});

function weight(): number {
  const files = Object.values(cgroup.paths).flatMap((path) => [`${path}/cpu.shares`, `${path}/cpu.weight`]);
  return Number(readFileSync(files.find((file) => existsSync(file)) as string, "utf8"));
}

test("is in proportion to what it may have", () => {
  host = detectCgroups();
  cgroup = host.create(createSandboxId(), { uid: 1_879_048_192, gid: 1_879_048_192, limits: LIMITS });
  const one = weight();
  cgroup.setLimits({ cpuMillis: 500 });
  expect(weight()).toBe(one / 2);
  cgroup.setLimits({ cpuMillis: 2000 });
  expect(weight()).toBe(one * 2);
});
