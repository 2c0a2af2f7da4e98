/** A root file system directory as an image: it works, and it is never changed. */
import { execFileSync } from "node:child_process";
import {
  chmodSync,
  chownSync,
  copyFileSync,
  lstatSync,
  mkdirSync,
  mkdtempSync,
  readdirSync,
  readFileSync,
  readlinkSync,
  rmdirSync,
  rmSync,
  symlinkSync,
  writeFileSync,
} from "node:fs";
import { dirname, join } from "node:path";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { OUR_DIRECTORIES } from "../helpers/leaks.js";
import { openBubblewrap } from "../helpers/open-bubblewrap.js";
import { useSharedEngine } from "../helpers/shared-engine.js";
import { run, shell } from "../helpers/use-engine.js";

const PROGRAMS = ["bash", "ls", "cat", "id", "touch", "rm", "nproc"];

/** A program of the host with the libraries that ldd names. */
function copyProgram(name: string, root: string): void {
  const path = execFileSync("/bin/sh", ["-c", `command -v ${name}`], { encoding: "utf8" }).trim();
  copyFileSync(path, join(root, "usr/bin", name));
  for (const [library] of execFileSync("ldd", [path], { encoding: "utf8" }).matchAll(/\/\S+/g)) {
    mkdirSync(join(root, dirname(library)), { recursive: true });
    copyFileSync(library, join(root, library));
  }
}

/** Every path with what must not change about it. */
function contentOf(directory: string): string[] {
  return readdirSync(directory, { withFileTypes: true, recursive: true }).map((entry) => {
    const path = join(entry.parentPath, entry.name);
    const info = lstatSync(path);
    const content = info.isSymbolicLink()
      ? readlinkSync(path)
      : info.isFile() && info.size < 10_000
        ? readFileSync(path, "utf8")
        : info.size;
    return `${path} ${info.mode} ${info.uid} ${info.mtimeMs} ${content}`;
  });
}

describe("a root file system directory", () => {
  const use = useSharedEngine(openBubblewrap());
  let root: string;
  const image = () => ({ kind: "rootfs", path: root }) as const;

  beforeAll(() => {
    root = mkdtempSync(OUR_DIRECTORIES);
    chmodSync(root, 0o755);
    for (const directory of ["usr/bin", "etc", "root", "home/somebody"])
      mkdirSync(join(root, directory), { recursive: true });
    symlinkSync("usr/bin", join(root, "bin"));
    for (const name of PROGRAMS) copyProgram(name, root);
    symlinkSync("bash", join(root, "usr/bin/sh"));
    writeFileSync(join(root, "etc/passwd"), "root:x:0:0::/root:/bin/sh\nsomebody:x:500:500::/home/somebody:/bin/sh\n");
    writeFileSync(join(root, "etc/group"), "root:x:0:\nsomebody:x:500:\n");
    writeFileSync(join(root, "etc/marker"), "of the image\n");
  });
  afterAll(() => rmSync(root, { recursive: true, force: true }));

  it("is what a sandbox starts from, with its own users", async () => {
    const sandbox = await use.create({ image: image(), defaultUser: "somebody" });
    expect((await run(sandbox, ["cat", "/etc/marker"])).stdout).toBe("of the image\n");
    expect((await shell(sandbox, "id -u; echo $HOME")).stdout).toBe("500\n/home/somebody\n");
    expect((await run(sandbox, ["nproc"])).stdout).toBe("2\n");
    await expect(sandbox.start({ argv: ["node", "-v"] })).rejects.toMatchObject({ details: { exitCode: 127 } });
  });

  it("without the default user runs as root", async () => {
    const sandbox = await use.create({ image: image() });
    expect((await shell(sandbox, "id -u; pwd")).stdout).toBe("0\n/root\n");
  });

  it("is never changed, whatever a sandbox does to it", async () => {
    const before = contentOf(root);
    const [one, other] = await Promise.all([use.create({ image: image() }), use.create({ image: image() })]);
    const script =
      "echo changed >/etc/marker; rm -rf /home; touch /new /usr/bin/new; rm /usr/bin/nproc; cat /etc/marker; ls /home /new";
    expect((await shell(one, script, { user: "root" })).stdout).toBe("changed\n/new\n");
    expect((await shell(other, "cat /etc/marker; ls / | cat", { user: "root" })).stdout).not.toContain("new");
    expect((await run(other, ["cat", "/etc/marker"])).stdout).toBe("of the image\n");
    await Promise.all([one.kill("the test"), other.kill("the test")]);
    expect(contentOf(root)).toEqual(before);
  });

  it("says to programs which sandbox they are in, and has the /run that it came with", async () => {
    const look =
      "cat /run/e2b/.E2B_SANDBOX; echo; cat /run/e2b/.E2B_SANDBOX_ID; echo; cat /dev/holdfast/sandbox-id; echo; ls -ldn /run";
    const said = async () => {
      const sandbox = await use.create({ image: image() });
      const { stdout } = await shell(sandbox, `{ ${look}; } 2>&1`);
      await sandbox.kill("the test");
      return stdout.replaceAll(sandbox.id, "ID").replace(/^([dl]\S+) +\d+ +(\d+) +(\d+) .*(\/run.*)$/m, "$1 $2 $3 $4");
    };
    expect(await said()).toBe("true\nID\nID\ndrwxr-xr-x 0 0 /run\n");
    mkdirSync(join(root, "run"));
    chownSync(join(root, "run"), 500, 0);
    chmodSync(join(root, "run"), 0o2775);
    expect(await said()).toBe("true\nID\nID\ndrwxrwsr-x 500 0 /run\n");
    rmdirSync(join(root, "run"));
    symlinkSync("home", join(root, "run"));
    expect(await said()).toMatch(
      /^cat: .*No such file or directory\n\ncat: .*No such file or directory\n\nID\nl.* \/run -> home\n$/,
    );
    rmSync(join(root, "run"));
  });

  it.each([
    ["a path that is not absolute", "image", "invalid_argument"],
    ["a path with nothing there", "/does/not/exist", "image_not_found"],
    ["a file", "/etc/passwd", "image_not_found"],
    ["a directory that is no root", "/etc/alternatives", "image_not_found"],
  ])("is not %s", async (_what, path, code) => {
    await expect(use.create({ image: { kind: "rootfs", path } })).rejects.toMatchObject({
      name: "HoldfastError",
      code,
    });
  });
});
