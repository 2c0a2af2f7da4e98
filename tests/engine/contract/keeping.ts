/** A sandbox that is stopped keeps its files and nothing else, and is booted again as often as one likes. */
import { mkdirSync, mkdtempSync, rmSync } from "node:fs";
import type { Sandbox } from "@holdfast/engine";
import { createSandboxId } from "@holdfast/protocol";
import { describe, expect, it } from "vitest";
import { fixture } from "../../helpers/fixtures.js";
import { assertNoLeaks, OUR_DIRECTORIES, takeInventory } from "../../helpers/leaks.js";
import { ready } from "../../helpers/output-reader.js";
import { patienceMs } from "../../helpers/scale.js";
import { type OpenEngine, useSharedEngine } from "../../helpers/shared-engine.js";
import { collect, MIB, run, SMALL_LIMITS, shell } from "../../helpers/use-engine.js";

const BOOTS = 10;

/** Everything about the files below a directory that must stay: type, owner, mode, size, links, content. */
const LISTING =
  "cd /home/user/kept && find . -printf '%p %y %U:%G %m %s %l %T@\\n' | sort && find . -type f -exec sha256sum {} + | sort";

const MAKE_FILES = `
  set -e
  mkdir -p /home/user/kept/deep/er && cd /home/user/kept
  head -c 300000 /dev/urandom >data; echo text >deep/er/text; ln -s deep/er/text link; ln data hard; mkfifo pipe
  chmod 0640 data; chmod 4755 deep/er/text; chmod 1777 deep; chown 1234:4321 data; chown -h nobody link; : >empty
  touch -d '2001-02-03 04:05:06.789' deep/er/text
  rm /etc/hosts; echo changed >/etc/motd; chmod 0700 /opt; mkdir /srv/new; rmdir /media`;

export function describeKeeping(open: OpenEngine): void {
  describe("a stopped sandbox", () => {
    const use = useSharedEngine(open);
    const bootIdOf = async (sandbox: Sandbox) =>
      (await run(sandbox, ["cat", "/proc/sys/kernel/random/boot_id"])).stdout.trim();

    it(`keeps its files with owners, modes and attributes, ${BOOTS} times over`, {
      timeout: patienceMs(60_000),
    }, async () => {
      let sandbox = await use.create();
      const { id } = sandbox;
      expect(await shell(sandbox, MAKE_FILES, { user: "root" })).toMatchObject({ stderr: "", exitCode: 0 });
      await sandbox.files.write("/home/user/kept/marked", "x", { user: "root", attributes: { "user.colour": "blue" } });
      const listing = await shell(sandbox, LISTING, { user: "root" });
      expect(listing.stdout).toContain("./data f 1234:4321 640 300000");
      const bootIds = new Set([await bootIdOf(sandbox)]);
      for (let i = 0; i < BOOTS; i++) {
        await shell(sandbox, `echo ${i} >>/var/log/boots; sync -d /var/log/boots`, { user: "root" });
        expect((await sandbox.stop("the test")).cause).toEqual({ kind: "stopped", by: "the test" });
        sandbox = await use.engine.boot(id);
        expect(sandbox.id).toBe(id);
        expect((await shell(sandbox, LISTING, { user: "root" })).stdout).toBe(listing.stdout);
        expect((await sandbox.files.stat("/home/user/kept/marked")).attributes).toEqual({
          "user.colour": Buffer.from("blue"),
        });
        bootIds.add(await bootIdOf(sandbox));
      }
      expect(bootIds.size).toBe(BOOTS + 1);
      const rest = await shell(
        sandbox,
        "cat /var/log/boots /etc/motd; stat -c %a /opt; ls -d /etc/hosts /media /srv/new",
        {
          user: "root",
        },
      );
      expect(rest.stdout).toBe(`${Array.from({ length: BOOTS }, (_, i) => `${i}\n`).join("")}changed\n700\n/srv/new\n`);
      await sandbox.kill("the test");
      expect(use.engine.stopped()).toEqual([]);
    });

    it("holds nothing of the host but its files", async () => {
      const before = takeInventory();
      const sandbox = await use.create();
      const command = await sandbox.start({ argv: fixture("stubborn.sh", "/home/user/log") });
      await ready(command);
      const ending = await sandbox.stop("the test");
      expect(ending).toMatchObject({
        cause: { kind: "stopped", by: "the test" },
        message: "Stopped by the test; its files are kept.",
      });
      expect((await command.ended).cause).toEqual({ kind: "canceled", by: "the test" });
      await assertNoLeaks(before);
      expect(sandbox.state).toBe("ended");
      expect(use.engine.get(sandbox.id)).toBeUndefined();
      expect(use.engine.stopped()).toEqual([sandbox.id]);
      await expect(sandbox.start({ argv: ["true"] })).rejects.toMatchObject({ code: "sandbox_ended" });
      await use.engine.discard(sandbox.id);
      expect(use.engine.stopped()).toEqual([]);
    });

    it("is stopped although it is frozen", async () => {
      const sandbox = await use.create();
      await shell(sandbox, "echo text >file");
      await sandbox.start({ argv: ["sleep", "1000"] });
      await sandbox.freeze();
      expect((await sandbox.stop("the test")).cause).toEqual({ kind: "stopped", by: "the test" });
      const again = await use.engine.boot(sandbox.id);
      expect(again.state).toBe("running");
      expect((await run(again, ["cat", "file"])).stdout).toBe("text\n");
    });

    it("counts its commands on, and knows nothing of the old ones", async () => {
      const sandbox = await use.create();
      await run(sandbox, ["true"]);
      const last = await sandbox.start({ argv: ["sleep", "1000"] });
      await sandbox.stop("the test");
      const again = await use.engine.boot(sandbox.id);
      expect(await again.commands()).toEqual([]);
      await expect(again.attach(last.id)).rejects.toMatchObject({ code: "command_not_found" });
      const next = await again.start({ argv: ["true"] });
      expect(next.id).toBeGreaterThan(last.id);
      expect((await next.ended).cause).toEqual({ kind: "exited", code: 0 });
    });

    it("comes back with its environment, its limits as they were last, and its labels", async () => {
      const sandbox = await use.create({ env: { KEPT: "yes" }, labels: { a: "b" } });
      await sandbox.resize({ memoryBytes: 128 * MIB, pids: 77 });
      await sandbox.stop("the test");
      const again = await use.engine.boot(sandbox.id);
      expect(again.limits).toEqual({ ...SMALL_LIMITS, memoryBytes: 128 * MIB, pids: 77 });
      expect(again.spec.labels).toEqual({ a: "b" });
      expect(again.createdAt).toEqual(sandbox.createdAt);
      expect((await shell(again, "echo $KEPT; ulimit -p")).stdout).toBe("yes\n77\n");
      expect((await run(again, ["tail", "/dev/zero"])).cause).toMatchObject({
        kind: "out_of_memory",
        limitBytes: 128 * MIB,
      });
    });

    it("begins a new life when it is booted", async () => {
      const wallMs = patienceMs(700);
      const sandbox = await use.create({ limits: { ...SMALL_LIMITS, wallMs } });
      await sandbox.stop("the test");
      await new Promise((resolve) => setTimeout(resolve, wallMs));
      const again = await use.engine.boot(sandbox.id);
      expect((await run(again, ["echo", "alive"])).stdout).toBe("alive\n");
      expect((await again.ended).cause).toEqual({ kind: "timed_out", limitMs: wallMs });
      expect(use.engine.stopped()).toEqual([]);
    });

    it("is swept by nobody, and its id stays taken", async () => {
      const sandbox = await use.create();
      await sandbox.stop("the test");
      expect(await use.engine.sweep({ which: "all" })).toEqual([]);
      expect(await use.engine.adopt()).toEqual([]);
      expect(use.engine.stopped()).toEqual([sandbox.id]);
      await expect(use.create({ id: sandbox.id })).rejects.toMatchObject({ code: "sandbox_exists" });
      await use.engine.discard(sandbox.id);
      await expect(use.engine.boot(sandbox.id)).rejects.toMatchObject({ code: "sandbox_not_found" });
      await expect(use.engine.discard(sandbox.id)).rejects.toMatchObject({ code: "sandbox_not_found" });
    });

    it("is booted once, however many ask", async () => {
      const sandbox = await use.create();
      await sandbox.stop("the test");
      const attempts = await Promise.allSettled([1, 2, 3].map(() => use.engine.boot(sandbox.id)));
      expect(attempts.filter(({ status }) => status === "fulfilled")).toHaveLength(1);
      for (const attempt of attempts) {
        if (attempt.status === "rejected") expect(attempt.reason).toMatchObject({ code: "sandbox_busy" });
      }
      await expect(use.engine.boot(sandbox.id)).rejects.toMatchObject({ code: "sandbox_exists" });
      await expect(use.engine.discard(sandbox.id)).rejects.toMatchObject({ code: "sandbox_exists" });
      expect((await run(use.engine.get(sandbox.id) as Sandbox, ["echo", "well"])).stdout).toBe("well\n");
    });

    it("cannot be booted, discarded or salvaged if it never was", async () => {
      const id = createSandboxId();
      await expect(use.engine.boot(id)).rejects.toMatchObject({ code: "sandbox_not_found" });
      await expect(use.engine.discard(id)).rejects.toMatchObject({ code: "sandbox_not_found" });
      expect(use.engine.salvage(id)).toBe(false);
      const sandbox = await use.create();
      expect(use.engine.salvage(sandbox.id)).toBe(false);
    });

    it("stays stopped with its files when a boot fails or is given up", async () => {
      const directory = mkdtempSync(OUR_DIRECTORIES);
      try {
        mkdirSync(`${directory}/shared`);
        const mounts = [{ source: `${directory}/shared`, target: "/mnt", readOnly: true }];
        const sandbox = await use.create({ mounts });
        await shell(sandbox, "echo text >file");
        await sandbox.stop("the test");
        const before = takeInventory();
        rmSync(`${directory}/shared`, { recursive: true });
        await expect(use.engine.boot(sandbox.id)).rejects.toMatchObject({ code: "invalid_argument" });
        mkdirSync(`${directory}/shared`);
        for (const delayMs of [0, 1, 5, 10, 15]) {
          const given = new AbortController();
          setTimeout(() => given.abort(), delayMs);
          await use.engine.boot(sandbox.id, { signal: given.signal }).then(
            (booted) => booted.stop("the test"),
            (error) => expect(error).toMatchObject({ code: "canceled" }),
          );
          expect(use.engine.stopped()).toEqual([sandbox.id]);
        }
        await assertNoLeaks(before);
        const again = await use.engine.boot(sandbox.id);
        expect((await run(again, ["cat", "file"])).stdout).toBe("text\n");
      } finally {
        rmSync(directory, { recursive: true, force: true });
      }
    });

    it("stops or ends once, whoever asks first", async () => {
      const stopped = await use.create();
      const endings = await Promise.all([stopped.stop("first"), stopped.kill("second"), stopped.expire(5)]);
      expect(endings.map(({ cause }) => cause)).toEqual(Array(3).fill({ kind: "stopped", by: "first" }));
      const killed = await use.create();
      const others = await Promise.all([killed.kill("first"), killed.stop("second")]);
      expect(others.map(({ cause }) => cause)).toEqual(Array(2).fill({ kind: "killed", by: "first" }));
      expect(use.engine.stopped()).toEqual([stopped.id]);
      await use.engine.discard(stopped.id);
    });

    it("ends as timed out when it is expired", async () => {
      const sandbox = await use.create();
      const command = await sandbox.start({ argv: ["sleep", "1000"] });
      expect(await sandbox.expire(1234)).toMatchObject({ cause: { kind: "timed_out", limitMs: 1234 } });
      expect((await collect(command)).cause).toEqual({ kind: "timed_out", limitMs: 1234 });
    });
  });
}
