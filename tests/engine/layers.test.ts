/** Layers: what images are stacked from, who stands on them, and how they come and go. */
import { execFileSync } from "node:child_process";
import { mkdirSync, mkdtempSync, readFileSync, rmSync, symlinkSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { createLayerId, type LayerId, type Sandbox } from "@holdfast/engine";
import { describe, expect, it, onTestFinished } from "vitest";
import { OUR_DIRECTORIES } from "../helpers/leaks.js";
import { openBubblewrap } from "../helpers/open-bubblewrap.js";
import { patienceMs } from "../helpers/scale.js";
import { sandboxesLeftIn, useSharedEngine } from "../helpers/shared-engine.js";
import { MIB, run, SMALL_LIMITS, shell } from "../helpers/use-engine.js";
import {
  addBusybox,
  layerOf,
  layersLeftIn,
  listingOf,
  makeLayer,
  onLayers,
  removeAfterTest,
  runStep,
} from "./layer-images.js";

describe.each(["btrfs", "dir"] as const)("layers in a %s pool", (pool) => {
  const use = useSharedEngine(openBubblewrap(pool));
  const kept = (id: LayerId) => removeAfterTest(() => use.engine, id);
  const busybox = async () => kept(await makeLayer(use.engine, (directory) => addBusybox(directory)));
  const step = async (layers: readonly LayerId[], script: string) => kept(await runStep(use.engine, layers, script));

  describe("an image of layers", () => {
    it("runs commands although it has no /etc, no /usr and no home directories", async () => {
      const sandbox = await use.create(onLayers(await busybox()));
      expect((await shell(sandbox, "id -u; pwd; ls /etc /home 2>/dev/null; echo done")).stdout).toBe("0\n/\ndone\n");
      expect((await run(sandbox, ["sudo", "id", "-u"])).stdout).toBe("0\n");
      expect((await shell(sandbox, "echo x >/tmp/file && stat -c %a /tmp && ls /dev/null")).stdout).toBe(
        "1777\n/dev/null\n",
      );
    });

    it("runs commands although its directories are links, and our programs are found by their usual names", async () => {
      const image = kept(
        await makeLayer(use.engine, (directory) => {
          addBusybox(directory, "system/programs");
          mkdirSync(join(directory, "system/lib64"));
          writeFileSync(join(directory, "system/lib64/library"), "of the image\n");
          symlinkSync("system", join(directory, "usr"));
          symlinkSync("programs", join(directory, "system/bin"));
          symlinkSync("/usr/lib64", join(directory, "system/lib"));
          symlinkSync("usr/bin", join(directory, "bin"));
          symlinkSync("usr/lib", join(directory, "lib"));
          for (const name of ["tmp", "dev", "proc", "sys"]) symlinkSync("/does/not/exist", join(directory, name));
        }),
      );
      const sandbox = await use.create(onLayers(image));
      expect((await run(sandbox, ["sudo", "cat", "/usr/lib/library", "/lib/library"])).stdout).toBe(
        "of the image\nof the image\n",
      );
      const listing = await shell(sandbox, "ls /usr/bin/sudo /usr/lib/holdfast; echo x >/tmp/y; ls /tmp /dev/null");
      expect(listing.stderr).toBe("");
      expect(listing.stdout).toContain("tar\n");
    });

    it.each([
      ["a loop", "usr", "usr"],
      ["the root", "usr", "/"],
      ["a place of ours", "usr", "/proc/self"],
      ["the outside", "usr", "../../../../../../../../tmp"],
      ["a name that is too long", "usr", "x".repeat(300)],
    ])("is not confused by a /usr that leads to %s", async (_what, name, target) => {
      const image = kept(
        await makeLayer(use.engine, (directory) => {
          addBusybox(directory);
          symlinkSync(target, join(directory, name));
        }),
      );
      const sandbox = await use.create(onLayers(image));
      expect((await run(sandbox, ["/bin/echo", "well"])).stdout).toBe("well\n");
    });

    it("shows upper layers' deletions and replacements, not what lies below them", async () => {
      const base = await busybox();
      const first = await step(
        [base],
        "mkdir -p /a/deep /b && echo 1 >/a/deep/file && echo 1 >/a/gone && echo 1 >/b/old && echo 1 >/c && ln /c /d",
      );
      const second = await step([first, base], "rm /a/gone /c && rm -rf /b && mkdir /b && echo 2 >/b/new");
      const third = await step(
        [second, first, base],
        "rm -rf /a/deep && echo 3 >/a/deep && mkdir /c && echo 3 >/c/file",
      );
      const image = [third, second, first, base];
      const look = "cd / && find a b c d | while read p; do [ -d $p ] && echo $p/ || echo $p=$(cat $p); done; ls -i /d";
      const sandbox = await use.create(onLayers(...image));
      const seen = (await shell(sandbox, look)).stdout.split("\n").filter((line) => !/^ *\d/.test(line));
      expect(seen.filter((line) => line !== "").sort()).toEqual(
        ["a/", "a/deep=3", "b/", "b/new=2", "c/", "c/file=3", "d=1"].sort(),
      );
      // Each layer is what its step did and nothing else.
      const deletions = execFileSync("find", [".", "-type", "c"], {
        cwd: use.engine.layers.path(second),
        encoding: "utf8",
      });
      expect(deletions.split("\n").sort()).toEqual(["", "./a/gone", "./c"]);
      const before = image.map((id) => listingOf(use.engine.layers.path(id)));
      await shell(sandbox, "rm -rf /a /b /bin; echo changed >/c/file");
      await sandbox.kill("the test");
      expect(image.map((id) => listingOf(use.engine.layers.path(id)))).toEqual(before);
    });

    it("may have 128 layers and no more", { timeout: patienceMs(60_000) }, async () => {
      const base = await busybox();
      const layers = [base];
      for (let i = 0; i < 127; i++) {
        const fill = (directory: string) => {
          writeFileSync(join(directory, `file${i}`), `${i}\n`);
          writeFileSync(join(directory, "all"), `${i}\n`);
        };
        layers.unshift(kept(await makeLayer(use.engine, fill)));
      }
      const sandbox = await use.create(onLayers(...layers));
      expect((await shell(sandbox, "cat /all /file0 /file126; ls /file* | cat")).stdout).toContain(
        "126\n0\n126\n/file0\n",
      );
      await expect(use.create(onLayers(...layers, createLayerId()))).rejects.toMatchObject({ code: "image_invalid" });
      await expect(use.create(onLayers())).rejects.toMatchObject({ code: "image_invalid" });
      await sandbox.kill("the test");
    });

    it("may name a layer twice", async () => {
      const base = await busybox();
      const upper = await step([base], "echo text >/file");
      const sandbox = await use.create(onLayers(upper, base, upper));
      expect((await run(sandbox, ["cat", "/file"])).stdout).toBe("text\n");
    });

    it("without one of its layers is not found, and nothing is left of the attempt", async () => {
      const missing = createLayerId();
      await expect(use.create(onLayers(await busybox(), missing))).rejects.toMatchObject({
        code: "image_not_found",
        details: { layer: missing },
      });
      await expect(use.create({ disk: { from: missing } })).rejects.toMatchObject({ code: "image_not_found" });
      expect(sandboxesLeftIn(use.stateDirectory)).toEqual([]);
    });

    it.each(["", "l", "../x", `l${"A".repeat(20)}`, `l${"a".repeat(21)}`])("is not named by %j", async (text) => {
      const id = text as LayerId;
      await expect(use.create(onLayers(id))).rejects.toMatchObject({ code: "invalid_argument" });
      await expect(use.create({ disk: { from: id } })).rejects.toMatchObject({ code: "invalid_argument" });
      await expect(use.engine.layers.remove(id)).rejects.toMatchObject({ code: "invalid_argument" });
      await expect(use.engine.layers.draft(id)).rejects.toMatchObject({ code: "invalid_argument" });
      expect(() => use.engine.layers.path(id)).toThrow("layer id");
    });

    it("does not lead a mount of the host's astray by a link", async () => {
      const shared = mkdtempSync(OUR_DIRECTORIES);
      onTestFinished(() => rmSync(shared, { recursive: true, force: true }));
      const base = await busybox();
      const linked = await step([base], "mkdir /real && ln -s /real /data && ln -s /oldroot /real/deep");
      const mount = (target: string) => ({ mounts: [{ source: shared, target, readOnly: true }] });
      for (const target of ["/data", "/data/below", "/real/deep/etc"]) {
        await expect(use.create({ ...onLayers(linked, base), ...mount(target) })).rejects.toMatchObject({
          code: "file_wrong_type",
          details: { target },
        });
      }
      writeFileSync(join(shared, "file"), "text\n");
      const sandbox = await use.create({ ...onLayers(linked, base), ...mount("/real/new") });
      expect((await run(sandbox, ["cat", "/real/new/file"])).stdout).toBe("text\n");
    });
  });

  describe("a draft", () => {
    it("is seen by nobody until it is committed, and of a discarded one nothing is left", async () => {
      const before = layersLeftIn(use.stateDirectory);
      const [kept, dropped] = await Promise.all([1, 2].map(() => use.engine.layers.draft(createLayerId())));
      writeFileSync(join(kept?.directory ?? "", "file"), "text\n");
      mkdirSync(join(dropped?.directory ?? "", "deep/er"), { recursive: true });
      expect(use.engine.layers.list()).toEqual([]);
      await expect(use.create({ disk: { from: kept?.id as LayerId } })).rejects.toMatchObject({
        code: "image_not_found",
      });
      await kept?.commit();
      await dropped?.discard();
      expect(use.engine.layers.list()).toEqual([kept?.id]);
      expect(readFileSync(join(use.engine.layers.path(kept?.id as LayerId), "file"), "utf8")).toBe("text\n");
      await expect(use.engine.layers.draft(kept?.id as LayerId)).rejects.toMatchObject({ code: "invalid_argument" });
      await use.engine.layers.remove(kept?.id as LayerId);
      expect(layersLeftIn(use.stateDirectory)).toEqual(before);
    });

    it("of a living process is left alone by the sweep", async () => {
      const draft = await use.engine.layers.draft(createLayerId());
      await use.engine.sweep();
      writeFileSync(join(draft.directory, "file"), "text\n");
      await draft.commit();
      await use.engine.layers.remove(draft.id);
    });

    it("says how large it became", async () => {
      const id = kept(
        await makeLayer(use.engine, (directory) => writeFileSync(join(directory, "x"), Buffer.alloc(5 * MIB, "x"))),
      );
      const bytes = await use.engine.layers.sizeBytes(id);
      expect(bytes).toBeGreaterThanOrEqual(5 * MIB);
      expect(bytes).toBeLessThan(6 * MIB);
      await expect(use.engine.layers.sizeBytes(createLayerId())).rejects.toMatchObject({ code: "image_not_found" });
    });
  });

  describe("the layer of a stopped sandbox", () => {
    it("holds what the sandbox wrote, and the sandbox is gone", async () => {
      const base = await busybox();
      const sandbox = await use.create(onLayers(base));
      await shell(sandbox, "echo text >/file; rm /bin/touch");
      await run(sandbox, ["cat", "/bin/busybox"], { spillBytes: 4 * MIB, whenReaderIsSlow: "drop" });
      const id = kept(await layerOf(use.engine, sandbox));
      expect(use.engine.stopped()).toEqual([]);
      expect(sandboxesLeftIn(use.stateDirectory)).toEqual([]);
      expect(use.engine.layers.users(base)).toEqual([]);
      const names = execFileSync("find", [".", "-mindepth", "1"], {
        cwd: join(use.engine.layers.path(id), ".."),
        encoding: "utf8",
      });
      expect(names.split("\n").sort()).toEqual(
        [
          "",
          "./upper",
          "./upper/bin",
          "./upper/bin/touch",
          "./upper/file",
          // What its inode numbers began after.
          ...(pool === "btrfs" ? ["./first-inode"] : []),
        ].sort(),
      );
      expect(await use.engine.layers.sizeBytes(id)).toBeLessThan(MIB);
    });

    it("is not made of a sandbox that runs, or is not there, or under an id that is taken", async () => {
      const sandbox = await use.create();
      const id = createLayerId();
      await expect(use.engine.layers.fromStopped(sandbox.id, id)).rejects.toMatchObject({ code: "sandbox_exists" });
      const base = await busybox();
      await sandbox.stop("the test");
      await expect(use.engine.layers.fromStopped(sandbox.id, base)).rejects.toMatchObject({ code: "invalid_argument" });
      expect(use.engine.stopped()).toEqual([sandbox.id]);
      await use.engine.discard(sandbox.id);
      await expect(use.engine.layers.fromStopped(sandbox.id, id)).rejects.toMatchObject({ code: "sandbox_not_found" });
      expect(use.engine.layers.has(id)).toBe(false);
    });

    it("is made once, however many ask", async () => {
      const sandbox = await use.create();
      await sandbox.stop("the test");
      const ids = [1, 2, 3].map(() => createLayerId());
      const results = await Promise.allSettled(ids.map((id) => use.engine.layers.fromStopped(sandbox.id, id)));
      expect(results.filter(({ status }) => status === "fulfilled")).toHaveLength(1);
      expect(use.engine.layers.list()).toHaveLength(1);
      for (const id of use.engine.layers.list()) kept(id);
    });
  });

  describe("a layer in use", () => {
    it("cannot be removed while a sandbox runs on it or has stopped on it", async () => {
      const base = await busybox();
      const sandbox = await use.create(onLayers(base));
      const refused = { code: "image_in_use", details: { layer: base, sandboxes: [sandbox.id] } };
      expect(use.engine.layers.users(base)).toEqual([sandbox.id]);
      await expect(use.engine.layers.remove(base)).rejects.toMatchObject(refused);
      await sandbox.stop("the test");
      await expect(use.engine.layers.remove(base)).rejects.toMatchObject(refused);
      const again = await use.engine.boot(sandbox.id);
      expect((await run(again, ["echo", "well"])).stdout).toBe("well\n");
      await again.kill("the test");
      await use.engine.layers.remove(base);
      await use.engine.layers.remove(base);
      expect(use.engine.layers.list()).toEqual([]);
    });
  });

  describe("a disk that begins as a layer", () => {
    const FILES = `
      mkdir -p deep/er && cd deep && head -c 300000 /dev/urandom >data && ln data hard && ln -s data link && mkfifo pipe
      chown 1234:4321 data; chmod 4755 data; chown -h 77 link; truncate -s 10M sparse; : >empty; chmod 1777 er
      touch -d '2001-02-03 04:05:06.789' empty
      rm /etc/hosts; rm -rf /opt; mkdir /opt; chmod 0700 /srv`;

    async function filled(): Promise<{ from: LayerId; sandbox: Sandbox }> {
      const sandbox = await use.create();
      expect(await shell(sandbox, FILES, { user: "root", cwd: "/home/user" })).toMatchObject({
        stderr: "",
        exitCode: 0,
      });
      await sandbox.files.write("/home/user/deep/marked", "x", { attributes: { "user.colour": "blue" } });
      const from = kept(createLayerId());
      await sandbox.snapshot(from);
      return { from, sandbox };
    }

    it("has all of its files, and neither sees what the other does then", async () => {
      const { from, sandbox } = await filled();
      const original = listingOf(use.engine.layers.path(from));
      expect(original).toContain("user.colour");
      expect(original).toContain("trusted.overlay.opaque");
      const [one, other] = await Promise.all([1, 2].map(() => use.create({ disk: { from } })));
      const look =
        "cd /home/user/deep && ls -1 /etc/hosts /opt 2>/dev/null; stat -c '%n %u:%g %a %s %h' * && sha256sum data";
      const expected = (await shell(sandbox, look)).stdout;
      expect((await shell(one as Sandbox, look)).stdout).toBe(expected);
      expect(expected).toContain("data 1234:4321 4755 300000 2");
      await shell(one as Sandbox, "echo changed >/home/user/deep/data; rm /home/user/deep/empty", { user: "root" });
      expect((await shell(other as Sandbox, look)).stdout).toBe(expected);
      expect((await shell(sandbox, look)).stdout).toBe(expected);
      // A copy of the copy is the same again.
      const again = kept(createLayerId());
      await (other as Sandbox).snapshot(again);
      expect(listingOf(use.engine.layers.path(again))).toBe(original);
      expect(listingOf(use.engine.layers.path(from))).toBe(original);
    });

    it("does not need that layer any more", async () => {
      const { from } = await filled();
      const sandbox = await use.create({ disk: { from } });
      expect(use.engine.layers.users(from)).toEqual([]);
      await use.engine.layers.remove(from);
      expect((await shell(sandbox, "stat -c %s /home/user/deep/data")).stdout).toBe("300000\n");
      await sandbox.stop("the test");
      const again = await use.engine.boot(sandbox.id);
      expect((await shell(again, "stat -c %s /home/user/deep/data")).stdout).toBe("300000\n");
    });

    it("counts as its own, and is refused where it does not fit", async () => {
      const big = await use.create();
      await shell(big, "head -c 20M /dev/urandom >big");
      const from = kept(createLayerId());
      const { sizeBytes } = await big.snapshot(from);
      expect(sizeBytes).toBeGreaterThan(20 * MIB);
      expect(await use.engine.layers.sizeBytes(from)).toBe(sizeBytes);
      const before = sandboxesLeftIn(use.stateDirectory);
      await expect(
        use.create({ disk: { from }, limits: { ...SMALL_LIMITS, diskBytes: 16 * MIB } }),
      ).rejects.toMatchObject({
        code: "invalid_argument",
        message: expect.stringContaining(`limits.diskBytes: expected at least ${sizeBytes}`),
        details: { field: "limits.diskBytes", neededBytes: sizeBytes },
      });
      expect(sandboxesLeftIn(use.stateDirectory)).toEqual(before);
      const limits = { ...SMALL_LIMITS, diskBytes: 32 * MIB };
      const sandbox = await use.create({ disk: { from }, limits });
      expect((await sandbox.stats()).diskBytes).toBeGreaterThan(20 * MIB);
      expect((await shell(sandbox, "head -c 6M /dev/urandom >more")).exitCode).toBe(0);
      const full = await shell(sandbox, "head -c 20M /dev/urandom >most; sleep 5");
      expect(full.cause.kind === "out_of_disk" || full.incidents[0]?.kind === "out_of_disk").toBe(true);
    });

    it("goes when the creation is given up in the middle", async () => {
      const { from } = await filled();
      for (const delayMs of [0, 1, 3, 6, 10]) {
        const given = new AbortController();
        setTimeout(() => given.abort(), delayMs);
        await use.engine.create({ limits: SMALL_LIMITS, disk: { from } }, { signal: given.signal }).then(
          (sandbox) => sandbox.kill("the test"),
          (error) => expect(error).toMatchObject({ code: "canceled" }),
        );
      }
    });
  });

  describe("a working directory", () => {
    it("is where commands start that do not say, if it is a directory that their user may enter", async () => {
      const sandbox = await use.create({ workdir: "/srv/app/" });
      expect((await run(sandbox, ["pwd"])).stdout).toBe("/home/user\n");
      await shell(sandbox, "mkdir -p /srv/app", { user: "root" });
      expect((await shell(sandbox, "pwd; echo $HOME")).stdout).toBe("/srv/app\n/home/user\n");
      expect((await shell(sandbox, "pwd; echo $HOME", { user: "root" })).stdout).toBe("/srv/app\n/root\n");
      expect((await run(sandbox, ["pwd"], { cwd: "/tmp" })).stdout).toBe("/tmp\n");
      expect((await run(sandbox, ["pwd"], { pty: { columns: 80, rows: 24 } })).stdout).toBe("/srv/app\r\n");
      await shell(sandbox, "chmod 0700 /srv", { user: "root" });
      expect((await run(sandbox, ["pwd"])).stdout).toBe("/home/user\n");
      expect((await run(sandbox, ["pwd"], { user: "root" })).stdout).toBe("/srv/app\n");
      await shell(sandbox, "rmdir /srv/app; touch /srv/app; chmod 0755 /srv", { user: "root", cwd: "/" });
      expect((await run(sandbox, ["pwd"])).stdout).toBe("/home/user\n");
    });

    it("is kept over a stop, and must be a path", async () => {
      const sandbox = await use.create({ workdir: "/tmp" });
      await sandbox.stop("the test");
      const again = await use.engine.boot(sandbox.id);
      expect((await run(again, ["pwd"])).stdout).toBe("/tmp\n");
      for (const workdir of ["", "app", `/${"x".repeat(255)}`, "/a\0b"]) {
        await expect(use.create({ workdir })).rejects.toMatchObject({ code: "invalid_argument" });
      }
    });
  });

  it("cannot be confused with a sandbox", async () => {
    await expect(use.create({ id: "layers" as Sandbox["id"] })).rejects.toMatchObject({ code: "invalid_argument" });
  });
});
