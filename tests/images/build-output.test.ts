/** What the commands of a build write is read to its end, whoever is slow and whatever goes wrong with it. */
import { execFileSync } from "node:child_process";
import { readdirSync } from "node:fs";
import { join } from "node:path";
import { planSandbox } from "@holdfast/images";
import { HoldfastError } from "@holdfast/protocol";
import { describe, expect, it } from "vitest";
import { type RunOptions, runCommand } from "../../packages/images/src/build/run-command.js";
import { patienceMs } from "../helpers/scale.js";
import { outputOf, recipe, run, SMALL_BUILDER, useBuilds } from "./build-helper.js";

describe("the output of a build's command", () => {
  const use = useBuilds();

  const runInside = async (script: string, options: Partial<RunOptions>) => {
    const sandbox = await use.engine.create(planSandbox(use.tiny).spec);
    try {
      return await runCommand(
        sandbox,
        { argv: ["/bin/sh", "-c", script] },
        {
          onLine: () => {},
          signal: new AbortController().signal,
          endsAtMs: Date.now() + patienceMs(60_000),
          ...options,
        },
      );
    } finally {
      await sandbox.kill("the test");
    }
  };

  it("is read to its last line, however long that takes after its end", { timeout: patienceMs(60_000) }, async () => {
    let last = "";
    const slowly = (_stream: string, text: string): void => {
      last = text;
      const until = performance.now() + 0.05;
      while (performance.now() < until);
    };
    await runInside("seq 1 60000", { onLine: slowly });
    expect(last).toBe("60000");
  });

  it("is whole where it is content, however slowly it is taken", { timeout: patienceMs(60_000) }, async () => {
    let bytes = 0;
    const onStdout = async (chunk: Uint8Array): Promise<void> => {
      bytes += chunk.length;
      await new Promise((resolve) => setTimeout(resolve, 50));
    };
    await runInside("head -c 3000000 /dev/zero", { onStdout });
    expect(bytes).toBe(3_000_000);
  });

  it("ends the command if it cannot be kept, and says why", { timeout: patienceMs(30_000) }, async () => {
    const began = Date.now();
    const full = new HoldfastError("no_space", "no room for it");
    const running = runInside("while :; do echo x; done", {
      onLine: () => {
        throw full;
      },
    });
    await expect(running).rejects.toBe(full);
    expect(Date.now() - began).toBeLessThan(patienceMs(10_000));
  });

  it("copies every file of another stage, however slow the copying is", { timeout: patienceMs(120_000) }, async () => {
    const files = 4000;
    const made = recipe([run(`mkdir /many; for i in $(seq 1 ${files}); do echo $i >/many/$i; done`)]);
    await use.build([], { recipe: made });
    const image = await use.build([], {
      recipe: recipe([{ kind: "copy-from", source: { kind: "stage", index: 0 }, paths: ["/many"], to: "/copy/" }], {
        stages: [{ base: made.base, steps: made.steps }],
      }),
      builder: { ...SMALL_BUILDER, cpus: 0.05 },
    });
    expect((await use.inside(image, "ls /copy | wc -l")).stdout.trim()).toBe(String(files));
  });

  it("that finds the disk full fails the build, and keeps nobody from building it", {
    timeout: patienceMs(60_000),
  }, async () => {
    const builds = join(use.store.directory, "builds");
    const steps = [run("seq 1 100000")];
    execFileSync("mount", ["-t", "tmpfs", "-o", "size=400k", "tmpfs", builds]);
    try {
      const build = await use.open().start({ recipe: recipe(steps), owner: null, builder: SMALL_BUILDER });
      await expect(build.image).rejects.toMatchObject({
        code: "build_failed",
        message: expect.stringMatching(/^step 1 .* failed: writing a build's log: /),
      });
      expect(readdirSync(join(builds, "by-hash"))).toEqual([]);
      expect(readdirSync(join(builds, build.id))).not.toContain("lease.json");
    } finally {
      execFileSync("umount", ["--lazy", builds]);
    }
    const again = await use.start(steps);
    await again.image;
    expect((await outputOf(again)).at(-1)).toBe("100000");
  });
});
