/** Volumes: directories that outlive sandboxes, are shown in several at once, and go only when nobody has them. */
import { chmodSync, copyFileSync, existsSync, readdirSync, renameSync, statSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { BubblewrapEngine, createLayerId, type MountSpec, type Sandbox } from "@holdfast/engine";
import { createRandomId, type SandboxId } from "@holdfast/protocol";
import { describe, expect, it, onTestFinished } from "vitest";
import { openBubblewrap } from "../helpers/open-bubblewrap.js";
import { patienceMs, scaled } from "../helpers/scale.js";
import { sandboxesLeftIn, useSharedEngine } from "../helpers/shared-engine.js";
import { MIB, SMALL_LIMITS, shell } from "../helpers/use-engine.js";
import { removeAfterTest } from "./layer-images.js";

const LIMIT_BYTES = 32 * MIB;
/** Of a process that is dead for certain: no boot has this tag. */
const DEAD = "1.1.0.1";

describe.each(["btrfs", "dir"] as const)("volumes in a %s pool", (pool) => {
  const use = useSharedEngine(openBubblewrap(pool));

  async function createVolume(): Promise<string> {
    const id = createRandomId("v");
    await use.engine.volumes.create(id, { limitBytes: LIMIT_BYTES });
    onTestFinished(async () => {
      await Promise.all(use.engine.list().map((sandbox) => sandbox.kill("the end of the test")));
      await use.engine.volumes.remove(id);
      expect(namesLeft()).toEqual([]);
    });
    return id;
  }
  const mountOf = (id: string, target = "/data", readOnly = false): MountSpec => ({
    source: use.engine.volumes.path(id),
    target,
    readOnly,
  });
  const withVolume = (id: string, target?: string) => use.create({ mounts: [mountOf(id, target)] });
  const namesLeft = () => readdirSync(join(use.engine.volumes.path(createRandomId("v")), "../.."));
  const said = async (sandbox: Sandbox, script: string, user = "user") =>
    (await shell(sandbox, script, { user })).stdout;

  describe("in sandboxes", () => {
    it("are one file system: what one writes the other sees", async () => {
      const id = await createVolume();
      const [one, two] = await Promise.all([withVolume(id), withVolume(id, "/home/user/deep/shared")]);
      expect(
        await said(one, "stat -c '%a %u' /data; mkdir /data/d && echo one >/data/d/file; stat -c '%u %g' /data/d/file"),
      ).toBe("777 0\n1000 1000\n");
      expect(
        await said(two, "cd deep/shared/d && cat file && echo two >>file && ln file other && stat -c %h file"),
      ).toBe("one\n2\n");
      expect(await said(one, "cat /data/d/other; rm /data/d/file; stat -c %h /data/d/other")).toBe("one\ntwo\n1\n");
      // A lock of one is a lock for the other.
      const held = await one.start({ argv: ["flock", "/data/lock", "sh", "-c", "echo held; cat"], stdin: "open" });
      for await (const event of held.output()) if (event.kind === "data") break;
      expect((await shell(two, "flock -n deep/shared/lock true", { user: "user" })).cause).toMatchObject({ code: 1 });
      held.stdin?.end();
      await held.ended;
    });

    it("outlive them", async () => {
      const id = await createVolume();
      const one = await withVolume(id);
      await said(one, "echo kept >/data/file");
      await one.kill("the test");
      expect(await said(await withVolume(id), "cat /data/file")).toBe("kept\n");
    });

    it("are there again after a stop and a boot, and after a fork", async () => {
      const id = await createVolume();
      const sandbox = await withVolume(id);
      await said(sandbox, "echo one >/data/file; echo own >/home/user/file");
      const layer = removeAfterTest(() => use.engine, createLayerId());
      await sandbox.snapshot(layer);
      const { id: _, ...spec } = sandbox.spec;
      const fork = await use.create({ ...spec, disk: { from: layer } });
      expect(await said(fork, "cat /data/file /home/user/file; echo two >/data/file")).toBe("one\nown\n");
      await sandbox.stop("the test");
      const booted = await use.engine.boot(sandbox.id);
      expect(await said(booted, "cat /data/file /home/user/file")).toBe("two\nown\n");
      // Nothing of the volume is in what the sandbox itself wrote.
      expect(readdirSync(join(use.engine.layers.path(layer), "data"))).toEqual([]);
    });

    it("may be shown read-only, and in several places", async () => {
      const id = await createVolume();
      const sandbox = await use.create({ mounts: [mountOf(id, "/rw"), mountOf(id, "/ro", true)] });
      const { stdout, stderr } = await shell(sandbox, "echo x >/rw/file; cat /ro/file; echo y >/ro/file", {
        user: "0",
      });
      expect(stdout).toBe("x\n");
      expect(stderr).toContain("Read-only file system");
    });

    it("make no set-id programs, and run none", async () => {
      const id = await createVolume();
      const sandbox = await withVolume(id);
      const { stderr } = await shell(sandbox, "cp /usr/bin/id /data/made && chmod 4755 /data/made", { user: "0" });
      expect(stderr).toContain("Operation not permitted");
      const planted = join(use.engine.volumes.path(id), "planted");
      copyFileSync("/usr/bin/id", planted);
      chmodSync(planted, 0o4755);
      expect(await said(sandbox, "stat -c '%a %u' /data/planted; /data/planted -u; /data/made -u")).toBe(
        "4755 0\n1000\n1000\n",
      );
      expect(statSync(join(use.engine.volumes.path(id), "made")).mode & 0o7000).toBe(0);
    });

    it("are reached by every user, however deep their place is", async () => {
      const id = await createVolume();
      const sandbox = await withVolume(id, "/a/b/c/d");
      expect(await said(sandbox, "stat -c %a /a /a/b/c; echo x >/a/b/c/d/file && cat /a/b/c/d/file")).toBe(
        "755\n755\nx\n",
      );
    });

    it.each([
      ["/usr/new", "Read-only file system"],
      ["/etc/passwd", "Not a directory"],
      ["/etc/passwd/below", "Not a directory"],
      ["/bin/x", "symbolic link, /bin"],
      ["/var/run/x", "symbolic link, /var/run"],
    ])("cannot be at %s, which is said in words", async (target, why) => {
      const id = await createVolume();
      const error = await withVolume(id, target).catch((reason: unknown) => reason);
      expect(error).toMatchObject({ code: expect.stringMatching(/^(invalid_argument|file_wrong_type)$/) });
      expect((error as Error).message).toContain(why);
      expect((error as Error).message).not.toContain(use.stateDirectory);
    });
  });

  describe("their room", () => {
    it.runIf(pool === "btrfs")("is bounded by the kernel, for all who write together", async () => {
      const id = await createVolume();
      expect(use.engine.volumes.enforcesLimits).toBe(true);
      const [one, two] = await Promise.all([withVolume(id), withVolume(id)]);
      const fill = "dd if=/dev/urandom of=/data/$0 bs=1M count=24 conv=fsync 2>&1";
      const write = (sandbox: Sandbox, name: string) =>
        shell(sandbox, fill.replace("$0", name), { user: "user" }).then(({ stdout }) => stdout);
      const told = `${await write(one, "one")}${await write(two, "two")}`;
      expect(told).toContain("Disk quota exceeded");
      expect(await use.engine.volumes.usedBytes(id)).toBeLessThanOrEqual(LIMIT_BYTES);
      // Their own disks are not touched by that, and room comes back.
      expect(await said(two, "echo x >/home/user/file && cat /home/user/file")).toBe("x\n");
      await said(one, "rm /data/one; sync");
      await expect
        .poll(() => said(two, "head -c 4M /dev/urandom >/data/again && echo done"), { timeout: patienceMs(10_000) })
        .toBe("done\n");
    });

    it.runIf(pool === "dir")("is not bounded, and that is no secret", async () => {
      const id = await createVolume();
      expect(use.engine.volumes.enforcesLimits).toBe(false);
      expect(await use.engine.volumes.usedBytes(id)).toBeNull();
    });
  });

  describe("their removal", () => {
    it("is refused while a sandbox has it, running, frozen or stopped", async () => {
      const id = await createVolume();
      const sandbox = await withVolume(id);
      const refused = async () => {
        expect(use.engine.volumes.users(id)).toEqual([sandbox.id]);
        await expect(use.engine.volumes.remove(id)).rejects.toMatchObject({
          code: "volume_in_use",
          details: { sandboxes: [sandbox.id] },
        });
        expect(use.engine.volumes.has(id)).toBe(true);
      };
      await refused();
      await sandbox.freeze();
      await refused();
      await sandbox.thaw();
      await sandbox.stop("the test");
      await refused();
      const booted = await use.engine.boot(sandbox.id);
      await refused();
      await booted.kill("the test");
      expect(use.engine.volumes.users(id)).toEqual([]);
      await use.engine.volumes.remove(id);
      expect(use.engine.volumes.has(id)).toBe(false);
      await use.engine.volumes.remove(id);
    });

    it("takes everything along, however deep and odd", async () => {
      const id = await createVolume();
      const sandbox = await withVolume(id);
      const script = `cd /data; for i in $(seq 300); do mkdir deep; cd deep; done; cd /data; mkfifo pipe; ln -s /etc/passwd link
        touch "$(printf 'bad\\377\\nname')"; mkdir closed; touch closed/file; chmod 0 closed; ls | wc -l`;
      expect(Number(await said(sandbox, script))).toBeGreaterThan(4);
      await sandbox.kill("the test");
      await use.engine.volumes.remove(id);
      expect(existsSync(use.engine.volumes.path(id))).toBe(false);
    });

    it("and a create at the same time: one of them wins, never both", { timeout: patienceMs(40_000) }, async () => {
      const log = { info: () => {}, warn: () => {} };
      const other = await BubblewrapEngine.open({ stateDirectory: use.stateDirectory, pool, log });
      onTestFinished(() => other.close({ sandboxes: "kill" }));
      let created = 0;
      for (let round = 0; round < scaled(20, 4); round++) {
        const id = createRandomId("v");
        await use.engine.volumes.create(id, { limitBytes: LIMIT_BYTES });
        const [making, removing] = await Promise.allSettled([
          use.create({ mounts: [mountOf(id)] }),
          (async () => {
            for (let turn = 0; turn < round % 5; turn++) await new Promise((resolve) => setImmediate(resolve));
            await (round % 2 === 0 ? use.engine : other).volumes.remove(id);
          })(),
        ]);
        if (making.status === "fulfilled") {
          created += 1;
          expect(removing).toMatchObject({ status: "rejected", reason: { code: "volume_in_use" } });
          expect(await said(making.value, "touch /data/file && ls /data")).toBe("file\n");
          await making.value.kill("the test");
          await use.engine.volumes.remove(id);
        } else {
          expect(making.reason).toMatchObject({ code: "volume_not_found" });
          expect(removing.status).toBe("fulfilled");
        }
        expect(use.engine.volumes.has(id)).toBe(false);
      }
      expect(created).toBeGreaterThan(0);
      expect(namesLeft()).toEqual([]);
    });

    it("that was cut off is finished by a sweep if it was decided, else forgotten", async () => {
      const [unused, used] = [await createVolume(), await createVolume()];
      const sandbox = await withVolume(used);
      const directory = join(use.engine.volumes.path(used), "../..");
      writeFileSync(join(use.engine.volumes.path(unused), "file"), "x");
      renameSync(join(directory, unused), join(directory, `.rest-${unused}.${DEAD}`));
      writeFileSync(join(directory, `.leaving-${used}.${DEAD}`), "");
      expect(use.engine.volumes.list()).toEqual([used]);
      await use.engine.sweep({ which: "abandoned" });
      expect(readdirSync(directory)).toEqual([used]);
      expect(await said(sandbox, "touch /data/file && echo well")).toBe("well\n");
    });
  });

  describe("their names", () => {
    it("are checked: a path is none", async () => {
      for (const id of ["", "v", "../layers", `v${"A".repeat(20)}`, `v${"a".repeat(21)}`, "/etc"]) {
        await expect(use.engine.volumes.create(id, { limitBytes: LIMIT_BYTES })).rejects.toMatchObject({
          code: "invalid_argument",
        });
        await expect(use.engine.volumes.remove(id)).rejects.toMatchObject({ code: "invalid_argument" });
        expect(() => use.engine.volumes.path(id)).toThrow("volume id");
      }
      const id = await createVolume();
      await expect(use.engine.volumes.create(id, { limitBytes: LIMIT_BYTES })).rejects.toMatchObject({
        code: "invalid_argument",
      });
      expect(use.engine.volumes.list()).toEqual([id]);
    });

    it("do not meet those of sandboxes", async () => {
      for (const id of ["volumes", "layers"] as SandboxId[]) {
        await expect(use.create({ id })).rejects.toMatchObject({ code: "invalid_argument", details: { field: "id" } });
      }
      expect(sandboxesLeftIn(use.stateDirectory)).toEqual([]);
    });

    it("of those that are not there are refused as such", async () => {
      const id = createRandomId("v");
      await expect(withVolume(id)).rejects.toMatchObject({ code: "volume_not_found", details: { volume: id } });
      await expect(use.engine.volumes.usedBytes(id)).rejects.toMatchObject({ code: "volume_not_found" });
    });
  });
});

describe("a pool with volumes", () => {
  const use = useSharedEngine(openBubblewrap());

  it("is let go by its last user, and the volumes are there again", async () => {
    const stateDirectory = join(use.stateDirectory, "own");
    const open = () => BubblewrapEngine.open({ stateDirectory, pool: "btrfs" });
    const id = createRandomId("v");
    const first = await open();
    await first.volumes.create(id, { limitBytes: LIMIT_BYTES });
    const before = (await first.capacity()).diskUsedBytes;
    writeFileSync(join(first.volumes.path(id), "file"), Buffer.alloc(24 * MIB, "kept"), { flush: true });
    expect((await first.capacity()).diskUsedBytes - before).toBeGreaterThan(20 * MIB);
    await first.close({ sandboxes: "kill" });
    expect(existsSync(first.volumes.path(id))).toBe(false);
    const second = await open();
    const mounts = [{ source: second.volumes.path(id), target: "/data", readOnly: true }];
    const sandbox = await second.create({ limits: SMALL_LIMITS, mounts });
    expect((await shell(sandbox, "head -c 4 /data/file")).stdout).toBe("kept");
    await second.close({ sandboxes: "kill" });
  });
});
