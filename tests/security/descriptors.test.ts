/** What a program holds when it starts, and what it could pick up from those that start it. */
import { writeFileSync } from "node:fs";
import { join } from "node:path";
import { describe, expect, it } from "vitest";
import { attack, compile, expectAlive, tryInside, useSharedSandbox, WHO } from "../helpers/attack.js";
import { run, shell, useEngine } from "../helpers/use-engine.js";

const LIST =
  "for fd in /proc/self/fd/*; do [ -e $fd ] && echo $(basename $fd) $(readlink $fd); done | grep -v '/proc/'";

for (const user of WHO) {
  describe(`descriptors, as ${user}`, () => {
    const shared = useSharedSandbox();

    it("cannot find any but 0, 1 and 2", async () => {
      const { stdout } = await run(shared.sandbox, ["/bin/ls", "/proc/self/fd"], { user });
      // The fourth is the directory that ls itself reads.
      expect(stdout).toBe("0\n1\n2\n3\n");
    });

    it("cannot find any but 0, 1 and 2 with stdin open", async () => {
      const command = await shared.sandbox.start({ argv: ["/bin/ls", "/proc/self/fd"], stdin: "open", user });
      command.stdin?.end();
      let seen = "";
      for await (const event of command.output()) if (event.kind === "data") seen += event.bytes.toString();
      expect(seen).toBe("0\n1\n2\n3\n");
    });

    it("cannot find any but its terminal on a pty", async () => {
      const command = await shared.sandbox.start({
        argv: ["/bin/bash", "-c", LIST],
        pty: { columns: 80, rows: 24 },
        user,
      });
      let seen = "";
      for await (const event of command.output()) if (event.kind === "data") seen += event.bytes.toString();
      const targets = seen
        .trim()
        .split(/\r?\n/)
        .filter((line) => /^\d/.test(line))
        .map((line) => line.split(" ")[1] ?? "");
      expect(targets.length).toBeGreaterThanOrEqual(3);
      for (const target of targets) expect(target).toMatch(/^(\/dev\/pts\/\d+|\/dev\/tty|pipe:\[\d+\])$/);
    });

    it("cannot find any but 0, 1 and 2 under sudo", async () => {
      const { stdout } = await shell(shared.sandbox, "exec 7</etc/passwd 9</; sudo /bin/ls /proc/self/fd", { user });
      expect(stdout).toBe("0\n1\n2\n3\n");
    });

    it("cannot start in a directory of the host through a descriptor (CVE-2024-21626)", async () => {
      for (let fd = 3; fd < 24; fd++) {
        const outcome = await run(shared.sandbox, ["/bin/cat", `../../../../../../../..${shared.secret.path}`], {
          user,
          cwd: `/proc/self/fd/${fd}`,
        }).catch((error: Error) => ({ stdout: "", stderr: error.message }));
        expect(outcome.stdout).not.toContain(shared.secret.text);
      }
    });

    it("cannot make the directory that its command starts in a link to a descriptor of the guest's", async () => {
      for (let fd = 3; fd < 20; fd++) {
        const cwd = `/tmp/cwd-${fd}-${user}`;
        for (const target of [`/proc/self/fd/${fd}`, `/proc/1/fd/${fd}`]) {
          await tryInside(shared.sandbox, `ln -sfn ${target} ${cwd}`, user);
          const outcome = await run(shared.sandbox, ["/bin/cat", `../../../../../../../..${shared.secret.path}`], {
            user,
            cwd,
          }).catch(() => ({ stdout: "" }));
          expect(outcome.stdout).not.toContain(shared.secret.text);
        }
      }
    });

    it("cannot make its home a descriptor of the guest's and log in there", async () => {
      const seen = await tryInside(
        shared.sandbox,
        `for fd in $(seq 3 20); do echo "evil${user}$fd:x:0:0::/proc/self/fd/$fd:/bin/sh"; done | sudo tee -a /etc/passwd > /dev/null
         for fd in $(seq 3 20); do sudo -i -u evil${user}$fd /bin/cat ../../../../../../../..${shared.secret.path}; done`,
        user,
      );
      expect(seen).not.toContain(shared.secret.text);
    });

    it("cannot run a program of the host that it names through a descriptor of the guest's", async () => {
      const program = join(shared.secret.directory, "program");
      writeFileSync(program, compile("probe"), { mode: 0o755 });
      const seen = await tryInside(
        shared.sandbox,
        `for fd in $(seq 3 20); do sudo /proc/self/fd/$fd/../../../../../../../..${program} reboot; done`,
        user,
      );
      expect(seen).not.toContain("reboot EPERM");
    });

    it("cannot open the guest's program, for reading or writing (CVE-2019-5736)", async () => {
      const seen = await tryInside(
        shared.sandbox,
        "readlink /proc/1/exe; cat /proc/1/exe | head -c 4; echo x >> /proc/1/exe; ls /proc/1/fd /proc/1/map_files; exec 3<>/proc/1/exe && echo opened",
        user,
      );
      expect(seen).not.toMatch(/ELF|opened|holdfast-guest/);
      expect(seen).toMatch(/Permission denied/);
    });

    it("cannot change the guest's program through the sudo that is the same file", async () => {
      const seen = await tryInside(
        shared.sandbox,
        "echo x >> /usr/bin/sudo; chmod 777 /usr/bin/sudo; (sudo sleep 1 & sleep 0.3; for p in /proc/[0-9]*; do echo x >> $p/exe; done) 2>&1 | sort | uniq -c; sudo -V; sudo echo still here",
        user,
      );
      expect(seen).toContain("still here");
      expect(seen).toMatch(/Read-only file system|Text file busy|Permission denied/);
    });

    it("cannot find an environment variable of the host's", async () => {
      const { stdout } = await run(shared.sandbox, ["/usr/bin/env"], { user });
      const names = stdout
        .trim()
        .split("\n")
        .map((line) => line.split("=")[0])
        .sort();
      expect(names).toEqual(["HOME", "LOGNAME", "PATH", "SHELL", "USER"]);
    });
  });
}

describe("the child that the guest starts a command in, before it has become the command", () => {
  const use = useSharedSandbox();

  it("cannot be looked into for the guest's descriptors, and through them for the host's files", async () => {
    const { stdout } = await attack(use.sandbox, "sudo-peek", [use.secret.path], { user: "root" });
    expect(stdout).not.toContain(use.secret.text);
    expect(stdout).not.toContain("saw descriptor");
    expect(stdout).not.toContain("traced");
    expect(stdout).toContain("saw nothing");
  });

  it("cannot be looked into by an ordinary user", async () => {
    const { stdout } = await attack(use.sandbox, "sudo-peek", [use.secret.path], { user: "user" });
    expect(stdout).toContain("saw nothing");
  });
});

describe("file workers", () => {
  const use = useEngine();

  it("cannot be looked into by root while they work", async () => {
    const sandbox = await use.create();
    const spy = await sandbox.start({
      argv: [
        "/bin/bash",
        "-c",
        "end=$((SECONDS+2)); while [ $SECONDS -lt $end ]; do for p in /proc/[0-9]*; do [ $p = /proc/1 ] || [ $p = /proc/$$ ] || [ $p = /proc/self ] || ls -l $p/fd/ 2>/dev/null | grep -E 'fd/|socket|cgroup|spill|pool' ; done; done",
      ],
      user: "root",
    });
    const reading = (async () => {
      for (let i = 0; i < 30; i++) for await (const _ of sandbox.files.list("/usr/bin")) void _;
    })();
    let seen = "";
    for await (const event of spy.output()) if (event.kind === "data") seen += event.bytes.toString();
    await reading;
    expect(seen).not.toMatch(/cgroup|spill|pool|socket:/);
    await expectAlive(sandbox);
  });
});
