import { execFileSync } from "node:child_process";
import { randomBytes } from "node:crypto";
import { existsSync, mkdirSync, readdirSync, readFileSync, symlinkSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { beforeEach, describe, expect, test } from "vitest";
import { ServerInUse } from "./use-server.js";

const server = new ServerInUse();

describe("cp", () => {
  let box: string;
  beforeEach(async () => {
    box = await server.ok("create", "--timeout", "10m");
  });

  test("files go both ways, whole, with their mode", async () => {
    const bytes = randomBytes(20_000_000);
    const [file, back] = [join(server.scratch, "file"), join(server.scratch, "back")];
    writeFileSync(file, bytes, { mode: 0o750 });
    await server.ok("cp", file, `${box}:`);
    expect(await server.ok("exec", box, "--", "stat", "-c", "%a %s %U", "file")).toBe("750 20000000 user");
    await server.ok("cp", `${box}:file`, back);
    expect(readFileSync(back).equals(bytes)).toBe(true);
    expect(execFileSync("stat", ["-c", "%a", back]).toString()).toBe("750\n");
    await server.ok("cp", `${box}:file`, server.scratch);
    expect(readdirSync(server.scratch).sort()).toEqual(["back", "file"]);
  });

  test("stdin and stdout are sides too", async () => {
    expect(await server.feed("from a pipe", "cp", "-", `${box}:/tmp/made/x`)).toMatchObject({ code: 0 });
    expect(await server.ok("cp", `${box}:/tmp/made/x`, "-")).toBe("from a pipe");
    expect((await server.holdfast("cp", `${box}:/tmp`, "-")).stderr).toContain("is a directory");
    const big = await server.shell(
      `holdfast exec ${box} -- sh -c 'head -c 50000000 /dev/zero > big'; holdfast cp ${box}:big - | head -c 3 | wc -c`,
    ).ended;
    expect(big.stdout.toString()).toBe("3\n");
  });

  test("directories go both ways with all that is in them", async () => {
    const tree = join(server.scratch, "tree");
    mkdirSync(join(tree, "a/b"), { recursive: true });
    writeFileSync(join(tree, "a/b/run.sh"), "#!/bin/sh\n", { mode: 0o755 });
    writeFileSync(join(tree, "ü \n name"), "odd");
    writeFileSync(join(tree, "big"), randomBytes(5_000_000));
    symlinkSync("a/b", join(tree, "link"));
    await server.ok("cp", tree, `${box}:/tmp`);
    await server.ok("cp", `${tree}/.`, `${box}:contents`);
    expect(
      await server.ok("exec", box, "--", "sh", "-c", "ls -A /tmp/tree; diff -r /tmp/tree contents && echo same"),
    ).toContain("same");
    await server.ok("cp", `${box}:/tmp/tree`, join(server.scratch, "out"));
    execFileSync("diff", ["-r", "--no-dereference", tree, join(server.scratch, "out")]);
    await server.ok("cp", `${box}:/tmp/tree`, join(server.scratch, "out"));
    expect(readdirSync(join(server.scratch, "out"))).toContain("tree");
  });

  test("a directory whose archive is packed before anybody reads it arrives too", async () => {
    const small = join(server.scratch, "small");
    mkdirSync(small);
    writeFileSync(join(small, "a"), "1");
    await server.ok("cp", small, `${box}:/tmp/t1`);
    expect(await server.ok("exec", box, "--", "cat", "/tmp/t1/a")).toBe("1");
  });

  test("what a sandbox sends cannot leave the target, and is told", async () => {
    const plant =
      "mkdir d && ln -s /etc d/abs && ln -s ../../up d/up && echo fine > d/fine && ln -s fine d/ok && mkfifo d/pipe && cp /bin/true d/su && chmod 4755 d/su";
    await server.ok("exec", box, "--", "sh", "-c", plant);
    const result = await server.holdfast("cp", `${box}:d`, join(server.scratch, "d"));
    expect(result.code).toBe(1);
    expect(result.stderr).toContain("left out ./abs: it is a link to /etc, outside the copy");
    expect(result.stderr).toContain("left out ./up");
    expect(result.stderr).toContain("left out ./pipe");
    expect(readdirSync(join(server.scratch, "d")).sort()).toEqual(["fine", "ok", "su"]);
    expect(execFileSync("stat", ["-c", "%a", join(server.scratch, "d/su")]).toString()).toBe("755\n");
  });

  test("a tar of the sandbox's own making is not believed", async () => {
    const evil = join(server.scratch, "evil");
    mkdirSync(evil);
    writeFileSync(join(evil, "x"), "owned");
    const archive = join(server.scratch, "evil.tar");
    execFileSync("tar", ["-cf", archive, "-C", evil, "--transform", "s,^x$,../../escaped,", "-P", "x"]);
    // The command is looked up by the sandbox's PATH, which whoever made the sandbox may have set.
    const hostile = await server.ok("create", "--env", "PATH=/home/user/bin:/usr/bin:/bin", "--timeout", "10m");
    await server.ok("cp", archive, `${hostile}:evil.tar`);
    await server.feed("#!/bin/sh\nexec cat /home/user/evil.tar\n", "cp", "-", `${hostile}:bin/tar`);
    await server.ok("exec", hostile, "--", "chmod", "+x", "bin/tar");
    const result = await server.holdfast("cp", `${hostile}:.`, join(server.scratch, "inner/target"));
    expect(result.code).toBe(125);
    expect(result.stderr).toContain("would leave the target directory");
    expect(existsSync(join(server.scratch, "escaped"))).toBe(false);
  });

  test("what is not there is refused by its side", async () => {
    expect((await server.holdfast("cp", join(server.scratch, "none"), `${box}:x`)).stderr).toContain(
      "SRC: expected a file or directory",
    );
    expect((await server.holdfast("cp", `${box}:none`, server.scratch)).stderr).toContain(
      "SRC: expected something that is there",
    );
    expect((await server.holdfast("cp", `${box}:/etc/hostname`, "/no/such/dir/x")).stderr).toContain("DST: expected");
    expect((await server.holdfast("cp", "a", "b")).stderr).toContain("neither side is in a sandbox");
  });
});
