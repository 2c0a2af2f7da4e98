/** Images and mounts are given by whoever may be careless, and made by whoever may be hostile. */
import { execFileSync } from "node:child_process";
import {
  chmodSync,
  existsSync,
  mkdirSync,
  mkdtempSync,
  readdirSync,
  rmSync,
  symlinkSync,
  writeFileSync,
} from "node:fs";
import { tmpdir } from "node:os";
import { basename, join } from "node:path";
import { afterEach, beforeEach, describe, expect, it } from "vitest";
import { compile, expectAlive, type HostSecret, placeHostSecret, readAll, tryInside } from "../helpers/attack.js";
import { run, shell, useEngine } from "../helpers/use-engine.js";

/** A root file system with one program. */
function makeRootfs(): string {
  const root = mkdtempSync(join(tmpdir(), "evil-image-"));
  chmodSync(root, 0o755);
  mkdirSync(join(root, "bin"));
  writeFileSync(join(root, "bin/probe"), compile("probe"), { mode: 0o755 });
  return root;
}

describe("a hostile root file system", () => {
  const use = useEngine();
  let root: string;
  let secret: HostSecret;
  beforeEach(() => {
    root = makeRootfs();
    secret = placeHostSecret();
  });
  afterEach(() => {
    rmSync(root, { recursive: true, force: true });
    secret.remove();
  });
  const probe = async (extra: Partial<Parameters<typeof use.create>[0]> = {}) => {
    const sandbox = await use.create({ image: { kind: "rootfs", path: root }, ...extra });
    const { stdout } = await run(sandbox, ["/bin/probe", "unshare-user", "mount-tmpfs"], { user: "0" });
    expect(stdout).toBe("unshare-user EPERM\nmount-tmpfs EPERM\n");
    return sandbox;
  };

  it("cannot have /proc, /dev, /sys, /tmp and /usr lead out by links", async () => {
    for (const name of ["proc", "dev", "sys", "tmp", "usr", "run", "home", "etc"])
      symlinkSync(`../../../../../../../../..${secret.directory}`, join(root, name));
    const sandbox = await use.create({ image: { kind: "rootfs", path: root } });
    for (const name of ["proc", "dev", "sys", "tmp", "usr", "run", "home", "etc"]) {
      await expect(readAll(sandbox, `/${name}/${basename(secret.path)}`)).rejects.toThrow();
    }
    expect(readdirSync(secret.directory)).toEqual([basename(secret.path)]);
  });

  it("cannot have /proc, /dev, /sys and /tmp be files or pipes", async () => {
    for (const name of ["proc", "tmp"]) writeFileSync(join(root, name), "x");
    for (const name of ["dev", "sys"]) execFileSync("mkfifo", [join(root, name)]);
    await probe();
  });

  it("cannot stall the guest by an /etc/passwd that is a pipe", async () => {
    mkdirSync(join(root, "etc"));
    for (const name of ["passwd", "group"]) execFileSync("mkfifo", [join(root, "etc", name)]);
    await probe();
  });

  it("cannot stall the guest by an endless /etc/passwd", async () => {
    mkdirSync(join(root, "etc"));
    symlinkSync("/dev/zero", join(root, "etc/passwd"));
    writeFileSync(join(root, "etc/group"), "x:x:1:".repeat(1_000_000));
    await probe();
  });

  it("cannot turn a mount's target into a place on the host by a link", async () => {
    const source = mkdtempSync(join(tmpdir(), "mount-source-"));
    const planted = join(tmpdir(), `planted-${process.pid}`);
    try {
      for (const target of [
        `../oldroot${planted}`,
        `../../oldroot${planted}`,
        `../../../../../..${planted}`,
        planted,
      ]) {
        rmSync(join(root, "mnt"), { force: true });
        symlinkSync(target, join(root, "mnt"));
        await use
          .create({ image: { kind: "rootfs", path: root }, mounts: [{ source, target: "/mnt/deep", readOnly: false }] })
          .then(
            (sandbox) => sandbox.kill("the test"),
            () => {},
          );
        expect(existsSync(planted)).toBe(false);
        await use
          .create({ image: { kind: "rootfs", path: root }, mounts: [{ source, target: "/mnt", readOnly: false }] })
          .then(
            (sandbox) => sandbox.kill("the test"),
            () => {},
          );
        expect(existsSync(planted)).toBe(false);
      }
    } finally {
      rmSync(source, { recursive: true, force: true });
      rmSync(planted, { recursive: true, force: true });
    }
  });

  it("cannot make use of a setuid shell in the image", async () => {
    chmodSync(join(root, "bin/probe"), 0o6755);
    const sandbox = await use.create({ image: { kind: "rootfs", path: root } });
    const { stdout } = await run(sandbox, ["/bin/probe", "nice", "cap-sys-admin", "mknod-mem"], { user: "1000" });
    expect(stdout).toBe("nice EACCES\ncap-sys-admin EPERM\nmknod-mem EPERM\n");
  });

  it("cannot be written to by a sandbox made from it", async () => {
    mkdirSync(join(root, "data"));
    writeFileSync(join(root, "data/file"), "original");
    const sandbox = await probe();
    await sandbox.files.write("/data/file", "changed");
    await sandbox.files.write("/data/new", "new");
    await sandbox.files.remove("/bin");
    expect(readdirSync(join(root, "data"))).toEqual(["file"]);
    expect(existsSync(join(root, "bin/probe"))).toBe(true);
  });

  it("cannot be named by a link chain, a relative path or a file", async () => {
    await expect(use.create({ image: { kind: "rootfs", path: "tmp" } })).rejects.toMatchObject({
      code: "invalid_argument",
    });
    await expect(use.create({ image: { kind: "rootfs", path: "/etc/passwd" } })).rejects.toMatchObject({
      code: "image_not_found",
    });
    await expect(use.create({ image: { kind: "rootfs", path: "/no/such" } })).rejects.toMatchObject({
      code: "image_not_found",
    });
  });
});

describe("mounts", () => {
  const use = useEngine();

  for (const target of [
    "/",
    "//",
    "/proc",
    "/proc/",
    "//proc",
    "/proc/sys",
    "/dev",
    "/dev/shm",
    "/sys",
    "/sys/fs/cgroup",
    "/a/../proc",
    "/./proc",
    "/./",
    "/.//dev",
    "relative",
    "",
  ]) {
    it(`cannot be put at ${JSON.stringify(target)}`, async () => {
      await expect(use.create({ mounts: [{ source: "/tmp", target, readOnly: true }] })).rejects.toMatchObject({
        code: "invalid_argument",
      });
    });
  }

  it("cannot be made of something that is not there", async () => {
    await expect(
      use.create({ mounts: [{ source: "/no/such", target: "/data", readOnly: true }] }),
    ).rejects.toMatchObject({ code: "invalid_argument" });
  });

  it("cannot be redirected to the host's files by a sandbox that shares the directory above (flatpak CVE-2024-42472)", async () => {
    const above = mkdtempSync(join(tmpdir(), "mount-above-"));
    const secret = placeHostSecret();
    try {
      mkdirSync(join(above, "project"));
      const first = await use.create({ mounts: [{ source: above, target: "/data", readOnly: false }] });
      await shell(first, `rmdir /data/project; ln -s ${secret.directory} /data/project`, { user: "root" });
      const second = await use
        .create({ mounts: [{ source: join(above, "project"), target: "/data", readOnly: false }] })
        .catch(() => undefined);
      if (second === undefined) return;
      expect(
        await tryInside(second, `cat /data/${basename(secret.path)}; echo hacked > /data/hacked`, "root"),
      ).not.toContain(secret.text);
      expect(readdirSync(secret.directory)).toEqual([basename(secret.path)]);
    } finally {
      rmSync(above, { recursive: true, force: true });
      secret.remove();
    }
  });

  it("cannot show what is mounted below the source on the host", async () => {
    const source = mkdtempSync(join(tmpdir(), "mount-below-"));
    mkdirSync(join(source, "below"));
    execFileSync("mount", ["-t", "tmpfs", "tmpfs", join(source, "below")]);
    try {
      writeFileSync(join(source, "below/file"), "x");
      const sandbox = await use.create({ mounts: [{ source, target: "/data", readOnly: true }] });
      expect(await tryInside(sandbox, "ls /data/below", "root")).toBe("");
      await expectAlive(sandbox);
    } finally {
      execFileSync("umount", [join(source, "below")]);
      rmSync(source, { recursive: true, force: true });
    }
  });
});
