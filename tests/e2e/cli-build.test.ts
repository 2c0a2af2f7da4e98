// `holdfast build` and `holdfast run --image`, without a server.
import { execFileSync } from "node:child_process";
import { mkdirSync, readdirSync, writeFileSync } from "node:fs";
import { dirname, join } from "node:path";
import { type BuildStepInfo, formatBytes, type ImageInfo, type MemoryReport } from "@holdfast/protocol";
import { beforeAll, describe, expect, test } from "vitest";
import { Screen } from "../../packages/cli/src/testing/screen.js";
import { DEFAULT_FLOOR_BYTES } from "../helpers/needs-host.js";
import { temporaryDirectory } from "../helpers/use-images.js";
import { writeTinyArchive } from "./tiny-archive.js";
import { type CliResult, useCli } from "./use-cli.js";

const cli = useCli();
const holdfast = (...args: string[]): Promise<CliResult> => cli.holdfast(args);

/** What --json prints. */
interface Built {
  readonly image: ImageInfo;
  readonly build: { readonly cached: boolean; readonly steps: readonly BuildStepInfo[] };
  readonly error?: { readonly code: string; readonly details: Record<string, unknown> };
}

beforeAll(async () => {
  const archive = join(cli.stateDirectory, "tiny.tar");
  writeTinyArchive(archive);
  expect(await holdfast("image", "import", archive)).toMatchObject({ code: 0 });
});

/** A directory with these files, for the test that runs. */
function context(files: Readonly<Record<string, string>>): string {
  const directory = temporaryDirectory();
  for (const [name, text] of Object.entries(files)) {
    mkdirSync(dirname(join(directory, name)), { recursive: true });
    writeFileSync(join(directory, name), text);
  }
  return directory;
}

async function built(...args: string[]): Promise<Built> {
  const { code, stdout, stderr } = await holdfast("build", "--json", ...args);
  expect({ code, stderr: code === 0 ? "" : stderr }).toEqual({ code: 0, stderr: "" });
  return JSON.parse(stdout.toString()) as Built;
}

const statesOf = ({ build }: Built): string[] => build.steps.map(({ step, state }) => `${step} ${state}`);

const run = async (...args: string[]): Promise<string> => {
  const { code, stdout, stderr } = await holdfast("run", ...args);
  expect({ code, stderr }).toEqual({ code: 0, stderr: "" });
  return stdout.toString();
};

describe("a Dockerfile", () => {
  const dockerfile = `FROM tiny
ARG WHO=world
WORKDIR /app
COPY greeting.txt ./
ENV GREETING=hello
RUN echo "$GREETING $WHO" > out; cat greeting.txt; echo careful >&2
USER user
CMD ["cat", "/app/out"]
`;

  test("is built step by step, found again, and run", async () => {
    const directory = context({ Dockerfile: dockerfile, "greeting.txt": "from a file\n" });
    const first = await holdfast("build", "-t", "docker-app", "--build-arg", "WHO=you", directory);
    expect(first.code).toBe(0);
    expect(first.stderr).toMatch(/^#1 FROM tiny$/m);
    expect(first.stderr).toMatch(/^#5 \[4\/6\] RUN echo "\$GREETING \$WHO" > out;/m);
    expect(first.stderr).toMatch(/^#5 \d+\.\d{3} from a file$/m);
    expect(first.stderr).toMatch(/^#5 \d+\.\d{3} careful$/m);
    expect(first.stderr).toMatch(/^#5 DONE \d+\.\ds$/m);
    expect(first.stdout.toString()).toMatch(/^image +img[a-z0-9]{20} {2}docker-app$/m);
    expect(first.stdout.toString()).toMatch(/^digest +sha256:[0-9a-f]{64}$/m);
    expect(first.stdout.toString()).toMatch(
      new RegExp(`^runs with +at least ${formatBytes(DEFAULT_FLOOR_BYTES)} of memory$`, "m"),
    );
    expect(first.stdout.toString()).toMatch(/, 0 of 6 steps from the cache$/m);
    expect(first.stdout.toString()).toMatch(/^run it +holdfast run --image docker-app$/m);

    const again = await holdfast("build", "-t", "docker-app", "--build-arg", "WHO=you", directory);
    expect(again.stdout.toString()).toMatch(/everything was there$/m);
    expect(again.stderr).toMatch(/^#5 CACHED$/m);

    expect(await run("--image", "docker-app")).toBe("hello you\n");
    expect(await run("--image", "docker-app", "--", "sh", "-c", "id -un; pwd; echo $GREETING $TINY")).toBe(
      "user\n/app\nhello yes\n",
    );
    expect(
      await run(
        "--image",
        "docker-app",
        "-u",
        "root",
        "-w",
        "/",
        "-e",
        "GREETING=x",
        "--",
        "sh",
        "-c",
        "id -un; pwd; echo $GREETING",
      ),
    ).toBe("root\n/\nx\n");
  });

  test("an edited step is run again, and what comes after it", async () => {
    const file = (text: string): string => `FROM tiny\nRUN echo one > /one\nRUN ${text}\nRUN echo three > /three\n`;
    const directory = context({ Dockerfile: file("echo two > /two") });
    const first = await built("-t", "edited", directory);
    expect(statesOf(first)).toEqual(["base done", "1 done", "2 done", "3 done", "finalize done"]);
    writeFileSync(join(directory, "Dockerfile"), file("echo zwei > /two"));
    const second = await built("-t", "edited", directory);
    expect(statesOf(second)).toEqual(["base done", "1 cached", "2 done", "3 done", "finalize done"]);
    expect(second.image.id).not.toBe(first.image.id);
    const forced = await built("-t", "edited", "--no-cache", directory);
    expect(statesOf(forced)).toEqual(["base done", "1 done", "2 done", "3 done", "finalize done"]);
    expect(await run("--image", "edited", "--", "cat", "/one", "/two", "/three")).toBe("one\nzwei\nthree\n");
  });

  test("a stage and a file of another name can be chosen", async () => {
    const directory = context({
      "build.Dockerfile": "FROM tiny AS one\nRUN echo one > /which\nFROM tiny\nRUN echo two > /which\n",
    });
    const file = join(directory, "build.Dockerfile");
    await built("-t", "stage", "-f", file, "--target", "one", directory);
    expect(await run("--image", "stage", "--", "cat", "/which")).toBe("one\n");
  });

  test("what it has no word for is refused by line", async () => {
    const result = await holdfast("build", context({ Dockerfile: "FROM tiny\nHEALTHCHECK NONE\n" }));
    expect(result.code).toBe(125);
    expect(result.stderr).toMatch(/Dockerfile:2: HEALTHCHECK is not supported/);
  });
});

describe("a module", () => {
  test("in TypeScript declares an image, with files of the context and arguments, and needs nothing installed", async () => {
    const directory = context({
      "holdfast.image.ts": `import { Image } from "@holdfast/sdk";
import { greet } from "./words.js";
interface Given { readonly args: Readonly<Record<string, string>> }
export default async ({ args }: Given): Promise<Image> =>
  Image.from("tiny").addLocalDir("files", "/files").addFile("/greeting", greet(args.WHO as string)).cmd(["cat", "/greeting"]);
`,
      "words.ts": "export const greet = (who: string): string => 'hello ' + who + '\\n';\n",
      "files/a.txt": "a\n",
    });
    await built("-t", "ts-app", "--build-arg", "WHO=module", directory);
    expect(await run("--image", "ts-app")).toBe("hello module\n");
    expect(await run("--image", "ts-app", "--", "cat", "/files/a.txt")).toBe("a\n");
  });

  test("in JavaScript does too, by any of our names", async () => {
    const directory = context({
      "one.mjs": `import { Image } from "holdfast";\nexport default Image.from("tiny").addFile("/x", "one");\n`,
      "two.js": `import { Image } from "@holdfast/recipe";\nexport default () => Image.from("tiny").addFile("/x", "two");\n`,
    });
    for (const [file, text] of [
      ["one.mjs", "one"],
      ["two.js", "two"],
    ] as const) {
      await built("-t", "js-app", "-f", join(directory, file), directory);
      expect(await run("--image", "js-app", "--", "cat", "/x")).toBe(text);
    }
  });

  test("that starts something says what that needs, and runs it", async () => {
    const directory = context({
      "holdfast.image.mjs": `import { Image } from "@holdfast/sdk";
export default Image.from("tiny").startCommand("echo up > /up; exec httpd -f -p 8000 -h /", { readyWhen: "port 8000" })
  .builder({ runtimeMemoryMb: 64 });
`,
    });
    const result = await holdfast("build", "-t", "started", directory);
    expect(result.stdout.toString()).toMatch(/^its start +needed .* MiB, ready after/m);
    expect(result.stdout.toString()).toMatch(/^runs with +at least 64 MiB of memory$/m);
    expect(await run("--image", "started", "--", "wget", "-qO-", "http://127.0.0.1:8000/up")).toBe("up\n");
    const without = await holdfast("run", "--image", "started", "--no-start", "--", "cat", "/up");
    expect(without.code).toBe(1);
    // Without a command it is what is run.
    expect(await holdfast("run", "--image", "started", "--timeout", "1s")).toMatchObject({ code: 124 });
  });

  test.each([
    ["export default 7;", /--file: the default export of .*bad\.mjs is something else/],
    ["", /--file: the default export of .*bad\.mjs is missing/],
    ["export default () => 7;", /is a function that returns something else/],
    ["throw new Error('my own')", /--file: .*bad\.mjs cannot be loaded: Error: my own/],
    [
      "export default () => { throw new Error('my own') }",
      /the function that .*bad\.mjs exports failed: Error: my own/,
    ],
    ["import x from 'not-there'; export default x", /cannot be loaded: Error: Cannot find package 'not-there'/],
    [
      "import { Image } from '@holdfast/sdk'; export default Image.base().aptInstall(['-x'])",
      /cannot be loaded: aptInstall/,
    ],
  ])("that is wrong is refused: %s", async (text, said) => {
    const directory = context({ "bad.mjs": text });
    const result = await holdfast("build", "-f", join(directory, "bad.mjs"), directory);
    expect(result.code).toBe(125);
    expect(result.stderr).toMatch(said);
    expect(result.stderr).not.toMatch(/\n\s+at /);
  });
});

describe("a build that fails", () => {
  test("says which step, why and its last lines, and exits with 1", async () => {
    const directory = context({
      Dockerfile: "FROM tiny\nRUN echo fine\nRUN seq 1 50; echo 'it broke' >&2; exit 3\nRUN echo never\n",
    });
    const result = await holdfast("build", "-t", "fails", directory);
    expect(result.code).toBe(1);
    expect(result.stdout.toString()).toBe("");
    expect(result.stderr).toMatch(/^#3 FAILED/m);
    expect(result.stderr).not.toContain("never");
    const told = result.stderr.slice(result.stderr.indexOf("The last lines of step 2:"));
    expect(told).toContain("│ 50\n  │ it broke\n");
    expect(told).toMatch(/^holdfast: step 2 \(RUN seq 1 50; .*\) failed: exited with code 3\. \[build_failed\]$/m);
    expect(told).toMatch(/^ {2}after \d+\.\ds, cause exited/m);
    expect((await holdfast("run", "--image", "fails", "--", "true")).stderr).toContain('no image "fails"');
  });

  test("for memory says how much it had, and the next size, which --retry-on-oom tries by itself", async () => {
    const directory = context({ Dockerfile: "FROM tiny\nRUN dd if=/dev/zero of=/dev/null bs=90M count=1\n" });
    const result = await holdfast("build", "--json", "--builder-memory", "64m", directory);
    expect(result.code).toBe(1);
    expect(result.stderr).toMatch(/cause out_of_memory, limit 64 MiB, peak .*, next size to try 128m$/m);
    expect(result.stderr).toContain("--builder-memory 128m");
    const { error } = JSON.parse(result.stdout.toString()) as Built;
    expect(error).toMatchObject({
      code: "build_failed",
      details: { step: "1", limitBytes: 64 * 1024 ** 2, suggestedMemoryMb: 128 },
    });
    const retried = await built("-t", "retried", "--builder-memory", "64m", "--retry-on-oom", directory);
    expect(retried.image.names).toEqual(["retried:latest"]);
  });

  test("on an image that is not there says what there is", async () => {
    const directory = context({ Dockerfile: "FROM nothing/of-this-name\nRUN true\n" });
    const result = await cli.holdfast(["build", directory], { env: { HOLDFAST_SERVE_IMAGE_PULL: "false" } });
    expect(result.code).toBe(1);
    expect(result.stderr).toMatch(/^#1 FAILED \d\.\ds$/m);
    expect(result.stderr).toMatch(/^holdfast: there is no image "nothing\/of-this-name" \[build_failed\]$/m);
    expect(result.stderr).toMatch(/^ {2}There are .*tiny:latest/m);
  });

  test("for time says which flag gives more", async () => {
    const directory = context({ Dockerfile: "FROM tiny\nRUN sleep 60\n" });
    const result = await holdfast("build", "--timeout", "2s", directory);
    expect(result.code).toBe(1);
    expect(result.stderr).toMatch(/cause timed_out/);
    expect(result.stderr).toContain("--timeout 4s");
  });

  test("Ctrl-C cancels it and leaves nothing", async () => {
    const directory = context({ Dockerfile: "FROM tiny\nRUN echo started; sleep 100\n" });
    const process = cli.start(["build", "-t", "canceled", directory]);
    await expect.poll(() => process.stderr, { timeout: 20_000 }).toMatch(/^#2 \d\.\d+ started$/m);
    process.child.kill("SIGINT");
    const result = await process.ended;
    expect(result.code).toBe(130);
    expect(result.stderr).toContain("the build was canceled");
    expect(result.tookMs).toBeLessThan(30_000);
  });
});

describe("a module that never settles", () => {
  test.each([
    ["waits in its own body", "await new Promise(() => {}); export default 1", "SIGINT", 130],
    ["waits in its function", "export default () => new Promise(() => {})", "SIGTERM", 143],
  ] as const)("and %s goes with the first signal", async (_, text, signal, code) => {
    const directory = context({ "m.mjs": `console.error("module is read"); ${text}` });
    const process = cli.start(["build", "-t", "never", "-f", join(directory, "m.mjs"), directory]);
    await expect.poll(() => process.stderr, { timeout: 20_000 }).toContain("module is read");
    process.child.kill(signal);
    const result = await process.ended;
    expect(result.code).toBe(code);
    expect(result.stderr).toContain("the build was canceled");
    expect(result.tookMs).toBeLessThan(20_000);
  });
});

describe("names that mean something already", () => {
  test("host is refused, base is told about", async () => {
    const directory = context({ Dockerfile: "FROM tiny\n" });
    const archive = join(cli.stateDirectory, "tiny.tar");
    for (const args of [
      ["build", "-t", "host", directory],
      ["build", "-t", "fine", "-t", "host:1", directory],
      ["image", "tag", "tiny", "host"],
      ["image", "import", archive, "-t", "host"],
    ]) {
      const { code, stderr } = await holdfast(...args);
      expect({ code, args }).toEqual({ code: 125, args });
      expect(stderr).toMatch(
        /(--tag|NEWNAME): no image can be called host(:1)?: `host` means the programs of this host/,
      );
    }
    expect((await holdfast("image", "ls")).stdout.toString()).not.toContain("host");
    const { code, stderr } = await holdfast("image", "tag", "tiny", "base");
    expect(code).toBe(0);
    expect(stderr).toContain("from now on `FROM base` and Image.base() mean this image");
    const untagged = await holdfast("image", "untag", "base");
    expect(untagged.code).toBe(0);
  });
});

describe("output that cannot be written", () => {
  test.each([
    "image ls",
    "image ls --json",
    "image inspect tiny",
    "image history tiny",
    "--help",
    "image export tiny -o -",
  ])("%s > /dev/full", async (line) => {
    const { ended, child } = cli.shell(`holdfast ${line} > /dev/full`);
    child.stdin.end();
    const { code, stderr } = await ended;
    expect({ code, stderr }).toEqual({ code: 125, stderr: expect.stringMatching(/^holdfast: [^\n]*\[no_space\]\n/) });
    expect(stderr).not.toMatch(/^\s+at /m);
    expect(stderr).not.toContain("prune");
  });

  test("image export to a full device", async () => {
    const { code, stderr } = await holdfast("image", "export", "tiny", "-o", "/dev/full");
    expect({ code, stderr }).toEqual({
      code: 125,
      stderr: expect.stringMatching(/^holdfast: writing \/dev\/full: [^\n]*\[no_space\]\n {2}Free some space there/),
    });
    expect(await holdfast("image", "export", "tiny", "-o", "/dev/null")).toMatchObject({ code: 0 });
  });

  test("a reader that has seen enough is none of it", async () => {
    const { ended, child } = cli.shell("set -o pipefail; holdfast image ls --json | head -c 1; echo $?");
    child.stdin.end();
    expect((await ended).stdout.toString()).toMatch(/^\[0\n$/);
  });
});

test("an export has the name that was asked for, and no other", async () => {
  await holdfast("image", "tag", "tiny", "team/other:2");
  const exported = async (name: string): Promise<unknown> => {
    const file = join(temporaryDirectory(), "out.tar");
    expect(await holdfast("image", "export", name, "--format", "docker", "-o", file)).toMatchObject({ code: 0 });
    const manifest = execFileSync("tar", ["-xOf", file, "manifest.json"]).toString();
    return (JSON.parse(manifest) as readonly { RepoTags: unknown }[])[0]?.RepoTags;
  };
  expect(await exported("tiny")).toEqual(["tiny:latest"]);
  expect(await exported("team/other:2")).toEqual(["team/other:2"]);
  const { id } = JSON.parse((await holdfast("image", "inspect", "tiny")).stdout.toString()) as ImageInfo;
  expect((await exported(id)) ?? []).toEqual([]);
  const untagged = await holdfast("image", "untag", id);
  expect(untagged.code).toBe(125);
  expect(untagged.stderr).toContain("is an image's id; untag takes away a name");
  await holdfast("image", "untag", "team/other:2");
});

describe("on a terminal", () => {
  test("steps are drawn live in 80 columns, and only they are left", async () => {
    const directory = context({
      Dockerfile: `FROM tiny\nRUN for i in 1 2 3 4 5 6 7 8; do echo "output $i ${"x".repeat(200)}"; sleep 0.1; done\n`,
    });
    const screen = new Screen(80);
    const { ended, child } = cli.shell(
      `script -qec "stty cols 80 rows 24; $(command -v node) '${join(import.meta.dirname, "../../packages/cli/dist/main.js")}' build -t live '${directory}'" /dev/null`,
    );
    let most = 0;
    child.stdout.on("data", (chunk: Buffer) => {
      screen.write(chunk.toString());
      most = Math.max(most, screen.text.match(/│ output/g)?.length ?? 0);
    });
    const { code } = await ended;
    expect(code).toBe(0);
    expect(most).toBeGreaterThan(2);
    const lines = screen.text.split("\n").map((line) => line.trimEnd());
    expect(lines.slice(0, 3)).toEqual([
      expect.stringMatching(/^ ✓ FROM tiny +\d\.\ds$/),
      expect.stringMatching(/^ ✓ \[1\/1\] RUN for i in 1 2 .*… +\d\.\ds$/),
      expect.stringMatching(/^ ✓ FINALIZE +\d\.\ds$/),
    ]);
    expect(lines.slice(0, 3).every((line) => line.length === 79)).toBe(true);
    expect(lines[3]).toMatch(/^image +img/);
    expect(screen.cursorIsHidden).toBe(false);
  });
});

describe("run --image", () => {
  test("by name, tag, id and digest; what it runs is the image's own if nothing is said", async () => {
    const info = JSON.parse((await holdfast("image", "inspect", "tiny")).stdout.toString()) as ImageInfo;
    for (const name of ["tiny", "tiny:latest", info.id, info.digest, info.digest.slice("sha256:".length, 20)]) {
      expect(await run("--image", name)).toBe("tiny\n");
    }
  });

  test("memory below the floor is raised and told, or refused with --strict", async () => {
    const directory = context({ Dockerfile: "FROM tiny\nRUN true\n" });
    await built("-t", "floored", "--runtime-memory", "128m", directory);
    const raised = await holdfast("run", "--image", "floored", "--memory", "64m", "--json", "--", "true");
    expect(raised.stderr).toMatch(/^holdfast: --memory: it has 128 MiB, not 64 MiB: the image was made to start in/);
    const report = JSON.parse(raised.stdout.toString()) as { readonly memory: MemoryReport };
    expect(report.memory).toMatchObject({ requestedBytes: 64 * 1024 ** 2, effectiveBytes: 128 * 1024 ** 2 });
    const refused = await holdfast("run", "--image", "floored", "--memory", "64m", "--strict", "--", "true");
    expect(refused).toMatchObject({
      code: 125,
      stderr: expect.stringMatching(/^holdfast: --memory: 64 MiB is too/) as string,
    });
    expect(await holdfast("run", "--image", "floored", "--memory", "200m", "--strict", "--", "true")).toMatchObject({
      code: 0,
      stderr: "",
    });
  });

  test("a name that is not known says what there is, and a directory of that name how to mean it", async () => {
    const unknown = await holdfast("run", "--image", "nope/nothing", "--", "true");
    expect(unknown.code).toBe(125);
    expect(unknown.stderr).toMatch(
      /there is no image "nope\/nothing" \[image_not_found\]\n {2}There are .*tiny:latest/,
    );
    const directory = context({ "rootfs/x": "" });
    const meant = await cli.holdfast(["run", "--image", "rootfs", "--", "true"], { cwd: directory });
    expect(meant.stderr).toContain("--image ./rootfs");
  });

  test("an image that does not say what to run needs a command", async () => {
    const directory = context({ Dockerfile: "FROM tiny\nCMD []\nENTRYPOINT []\n" });
    await built("-t", "silent", directory);
    const result = await holdfast("run", "--image", "silent");
    expect(result.code).toBe(125);
    expect(result.stderr).toContain("the command is missing: image silent");
  });
});

describe("wrong calls", () => {
  const good = () => context({ Dockerfile: "FROM tiny\n" });

  test.each([
    ["context", ["build"]],
    ["CONTEXT", ["build", "/nowhere"]],
    ["--file", ["build", "-f", "/nowhere", "."]],
    ["--tag", ["build", "-t", "Not A Name", "GOOD"]],
    ["--tag", ["build", "-t", "a@sha256:00", "GOOD"]],
    ["--builder-memory", ["build", "--builder-memory", "lots", "GOOD"]],
    ["--builder-memory", ["build", "--builder-memory", "900t", "GOOD"]],
    ["--runtime-memory", ["build", "--runtime-memory", "1", "GOOD"]],
    ["--cpus", ["build", "--cpus", "1000", "GOOD"]],
    ["--disk", ["build", "--disk", "900t", "GOOD"]],
    ["--timeout", ["build", "--timeout", "soon", "GOOD"]],
    ["--build-arg", ["build", "--build-arg", "NOT_SET_HERE", "GOOD"]],
    ["--network", ["build", "--network", "perhaps", "GOOD"]],
    ["--progress", ["build", "--progress", "fancy", "GOOD"]],
    ["--scratch", ["build", "--scratch", "/nowhere", "GOOD"]],
    ["--scratch", ["build", "--scratch", "/tmp", "--url", "http://127.0.0.1:1", "--api-key", "x", "GOOD"]],
  ])("%s is named, and the code is 125: %j", async (flag, args) => {
    const result = await holdfast(...args.map((word) => (word === "GOOD" ? good() : word)));
    expect(result.code).toBe(125);
    expect(result.stderr).toContain(flag);
    expect(result.stderr).not.toMatch(/\n\s+at /);
  });

  test("a server that is not there is said", async () => {
    const result = await holdfast("build", "--url", "http://127.0.0.1:1", "--api-key", "x", good());
    expect(result).toMatchObject({ code: 125, stderr: expect.stringContaining("server_unreachable") as string });
  });
});

test("temporary files go where they are told to, and none is left", async () => {
  const scratch = temporaryDirectory();
  await built("-t", "scratched", "--scratch", scratch, context({ Dockerfile: "FROM tiny\nRUN echo x\n" }));
  expect(readdirSync(scratch)).toEqual([]);
});
