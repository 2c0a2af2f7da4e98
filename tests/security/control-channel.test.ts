/** The guest must outlive whatever is said to it from inside, and the host whatever the guest is made to say. */
import { statSync } from "node:fs";
import { setTimeout as sleep } from "node:timers/promises";
import { describe, expect, it } from "vitest";
import { attack, expectAlive, readAll, tryInside, WHO } from "../helpers/attack.js";
import { run, shell, useEngine } from "../helpers/use-engine.js";

for (const user of WHO) {
  describe(`the sudo socket, abused by ${user}`, () => {
    const use = useEngine();
    const sudoStillWorks = async (sandbox: Awaited<ReturnType<typeof use.create>>) => {
      await expectAlive(sandbox);
      // A guest that was flooded may refuse for the seconds that it gives a silent client.
      for (let tries = 0; tries < 40; tries++) {
        const { stdout } = await shell(sandbox, "sudo id -u", { user: "user" });
        if (stdout === "0\n") return;
        await sleep(200);
      }
      expect.fail("sudo does not work any more");
    };

    for (const [how, what] of Object.entries({
      garbage: "by garbage",
      sizes: "by lengths that lie",
      flood: "by ten thousand connections",
      descriptors: "by descriptors that nobody expects",
      silent: "by clients that never read their answer",
    })) {
      it(`cannot break or block the guest ${what}`, async () => {
        const sandbox = await use.create();
        const attacking = attack(sandbox, "sudo-abuse", [how], { user });
        await sleep(300);
        await expectAlive(sandbox);
        const { cause, stdout } = await attacking;
        expect(["exited", "out_of_pids"]).toContain(cause.kind);
        expect(stdout).toMatch(/sent|status|connected|silent/);
        await sudoStillWorks(sandbox);
      });
    }

    it("cannot become a user that does not exist, or whom the kernel takes for nobody (CVE-2019-14287)", async () => {
      const sandbox = await use.create();
      const { stdout } = await attack(sandbox, "sudo-abuse", ["users"], { user });
      for (const line of stdout.trim().split("\n")) if (!line.startsWith("#0")) expect(line).not.toMatch(/^\d+$/);
      expect(
        await tryInside(sandbox, "sudo -u '#-1' id -u; sudo -u '#4294967295' id -u; sudo -u '#65536' id -u", user),
      ).not.toMatch(/^\d+$/m);
    });

    it("cannot have a program run in no command's budget by dying before it asks", async () => {
      const sandbox = await use.create();
      const { stdout } = await attack(sandbox, "sudo-abuse", ["orphan"], { user });
      await sleep(400);
      expect(stdout).not.toMatch(/memory:\/\.\.\/\.\.\/guest/);
      expect(stdout).not.toMatch(/^0::\/$/m);
      await expectAlive(sandbox);
    });

    it("cannot outlive its command by starting its programs through sudo", async () => {
      const sandbox = await use.create();
      const command = await sandbox.start({
        argv: ["/bin/sh", "-c", "sudo setsid sleep 1000 & sudo sh -c 'trap \"\" TERM HUP; sleep 1000' & sleep 1000"],
        user,
        limits: { wallMs: 700 },
        graceMs: 200,
      });
      expect((await command.ended).cause.kind).toBe("timed_out");
      await sleep(300);
      expect((await shell(sandbox, "cat /proc/[0-9]*/comm | grep -c '^sleep$'", { user: "root" })).stdout).toBe("0\n");
    });
  });
}

describe("the guest's own socket", () => {
  const use = useEngine();

  it("cannot be found from inside", async () => {
    const sandbox = await use.create();
    const seen = await tryInside(
      sandbox,
      "cat /proc/net/unix; find / -xdev -type s; ls -la /proc/1/fd /proc/1/net",
      "root",
    );
    expect(seen).not.toContain("guest.sock");
  });

  it("cannot be opened by an ordinary user of the host", async () => {
    const sandbox = await use.create();
    const directory = `${use.stateDirectory}/sandboxes/${sandbox.id}`;
    expect(statSync(directory).mode & 0o077).toBe(0);
    expect(statSync(`${directory}/guest.sock`).mode & 0o077).toBe(0);
  });
});

describe("the guest", () => {
  const use = useEngine();

  it("cannot be kept from starting commands by stopping every process that it starts", async () => {
    const sandbox = await use.create();
    const stopper = await sandbox.start({
      argv: [
        "/bin/bash",
        "-c",
        "while :; do for p in $(ls /proc | grep ^[0-9]); do [ $p = 1 ] || [ $p = $$ ] || kill -STOP $p; done; done 2>/dev/null",
      ],
      user: "root",
    });
    // Commands with a deadline must come to an end: stopped, they are killed.
    const ends = Promise.all(
      Array.from({ length: 30 }, () =>
        run(sandbox, ["true"], { limits: { wallMs: 1000 }, graceMs: 100 }).then(
          () => "ended",
          () => "ended",
        ),
      ),
    );
    const outcome = await Promise.race([ends, sleep(9000).then(() => "hung")]);
    await stopper.cancel("the test", { graceMs: 0 });
    expect(outcome).not.toBe("hung");
    await expectAlive(sandbox);
  });

  it("cannot be starved by a fork bomb, a flood of output and a full disk at once", async () => {
    const sandbox = await use.create();
    const bombs = await Promise.all(
      [
        "bomb() { bomb | bomb & }; bomb; sleep 4",
        "timeout 4 yes",
        "timeout 4 dd if=/dev/zero of=/home/user/x bs=1M; sleep 2",
        "timeout 4 sh -c 'while :; do :; done'",
      ].map((script) => sandbox.start({ argv: ["/bin/bash", "-c", script], limits: { wallMs: 5000 }, graceMs: 100 })),
    );
    await sleep(500);
    const started = Date.now();
    await sandbox.files.write("/dev/shm/note", "x");
    expect(await readAll(sandbox, "/dev/shm/note")).toBe("x");
    expect(Date.now() - started).toBeLessThan(5000);
    await Promise.all(bombs.map((bomb) => bomb.cancel("the test", { graceMs: 0 })));
    await expectAlive(sandbox);
  });

  it("cannot be ended by memory that no process holds", async () => {
    const sandbox = await use.create();
    // A tiny process that holds nothing itself and has asked to be the last to be killed.
    await shell(
      sandbox,
      "echo 0 > /proc/self/oom_score_adj; echo 1000 > /proc/1/oom_score_adj; dd if=/dev/zero of=/dev/shm/a bs=1M; dd if=/dev/zero of=/dev/b bs=1M; dd if=/dev/zero of=/dev/c bs=1M; true",
      {
        user: "root",
        limits: { wallMs: 20_000 },
      },
    );
    expect(sandbox.state).toBe("running");
    await shell(sandbox, "rm -f /dev/shm/a /dev/b /dev/c", { user: "root" }).catch(() => {});
    await sandbox.files.remove("/dev/b");
    await sandbox.files.remove("/dev/c");
    await sandbox.files.remove("/dev/shm/a");
    await expectAlive(sandbox);
  });
});
