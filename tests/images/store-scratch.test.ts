import { execFileSync } from "node:child_process";
import { existsSync, mkdirSync, readdirSync, rmSync, symlinkSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { describe, expect, onTestFinished, test } from "vitest";
import { checkFreeSpace } from "../../packages/images/src/scratch/free-space.js";
import { openScratch, sweepScratch } from "../../packages/images/src/scratch/scratch.js";
import { temporaryDirectory } from "../helpers/use-images.js";

const MIB = 1024 * 1024;
const code = (value: string) => expect.objectContaining({ code: value });

function smallTmpfs(): string {
  const directory = temporaryDirectory();
  execFileSync("mount", ["-t", "tmpfs", "-o", "size=4m", "tmpfs", directory]);
  onTestFinished(() => void execFileSync("umount", [directory]));
  return directory;
}

describe("scratch", () => {
  test("is a directory of its own for each job, gone when it is closed", async () => {
    const scratchDirectory = temporaryDirectory();
    const [one, two] = await Promise.all([
      openScratch({ scratchDirectory }, { what: "a test" }),
      openScratch({ scratchDirectory }, { what: "a test", neededBytes: MIB }),
    ]);
    expect(one.directory).not.toBe(two.directory);
    mkdirSync(one.path("deep/er"), { recursive: true });
    writeFileSync(one.path("deep/er/file"), "x");
    await one.close();
    await one.close();
    expect(readdirSync(scratchDirectory)).toHaveLength(1);
    await two[Symbol.asyncDispose]();
    expect(readdirSync(scratchDirectory)).toEqual([]);
  });

  test("in memory that is too small is refused with both numbers", async () => {
    const scratchDirectory = smallTmpfs();
    const asked = openScratch({ scratchDirectory }, { what: "exporting app:latest", neededBytes: 5 * MIB });
    await expect(asked).rejects.toThrow(code("no_space"));
    await expect(asked).rejects.toThrow(/exporting app:latest needs 5\.0 MiB .*tmpfs.* 4\.0 MiB/);
    await expect(asked).rejects.toThrow(
      expect.objectContaining({
        details: { directory: scratchDirectory, neededBytes: 5 * MIB, freeBytes: 4 * MIB, fileSystem: "tmpfs" },
      }),
    );
    expect(readdirSync(scratchDirectory)).toEqual([]);
    const fits = await openScratch({ scratchDirectory }, { what: "a test", neededBytes: 3 * MIB });
    await fits.close();
  });

  test("on a disk with less than is needed is refused too", () => {
    expect(() => checkFreeSpace(temporaryDirectory(), 2 ** 50, "a test")).toThrow(code("no_space"));
    checkFreeSpace(temporaryDirectory(), MIB, "a test");
  });

  test("that does not exist, is no directory or not absolute is refused by name", async () => {
    const directory = temporaryDirectory();
    writeFileSync(join(directory, "file"), "");
    symlinkSync("nowhere", join(directory, "link"));
    for (const scratchDirectory of [
      join(directory, "none"),
      join(directory, "file"),
      join(directory, "link"),
      "tmp",
      "",
    ]) {
      const asked = openScratch({ scratchDirectory }, { what: "a test" });
      await expect(asked).rejects.toThrow(code("invalid_argument"));
      await expect(asked).rejects.toThrow(
        expect.objectContaining({ hint: expect.stringContaining("HOLDFAST_SCRATCH_DIR") }),
      );
    }
  });

  test("that is read-only is refused", async () => {
    const scratchDirectory = smallTmpfs();
    execFileSync("mount", ["-o", "remount,ro", scratchDirectory]);
    await expect(openScratch({ scratchDirectory }, { what: "a test" })).rejects.toThrow(/read-only|not writable/);
  });

  test("of dead processes is swept, of living ones and of others it is not", async () => {
    const scratchDirectory = temporaryDirectory();
    const living = await openScratch({ scratchDirectory }, { what: "a test" });
    const name = living.directory.slice(scratchDirectory.length + 1);
    const dead = join(scratchDirectory, name.replace(/^(holdfast-scratch\.\d+)\.\d+/, "$1.1"));
    mkdirSync(join(dead, "files"), { recursive: true });
    const before = temporaryDirectory();
    writeFileSync(join(before, "kept"), "");
    symlinkSync(before, join(dead, "files", "elsewhere"));
    const rebooted = join(scratchDirectory, name.replace(/[0-9a-f]{12}\.\d+$/, "000000000000.1"));
    mkdirSync(rebooted);
    for (const other of ["holdfast-scratch.x", "mine", ".hidden"]) mkdirSync(join(scratchDirectory, other));
    const foreign = join(scratchDirectory, name.replace(/^(holdfast-scratch\.\d+)\.\d+/, "$1.2"));
    mkdirSync(foreign);
    execFileSync("chown", ["1000", foreign]);
    sweepScratch(scratchDirectory);
    expect([dead, rebooted].some(existsSync)).toBe(false);
    expect(readdirSync(scratchDirectory)).toHaveLength(5);
    expect(existsSync(join(before, "kept"))).toBe(true);
    await living.close();
    sweepScratch(join(scratchDirectory, "none"));
    rmSync(foreign, { recursive: true });
  });
});
