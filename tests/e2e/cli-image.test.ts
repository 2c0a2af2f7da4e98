// `holdfast image`, and images over a server: on its own machine, where both share them, and over its API.
import { execFileSync } from "node:child_process";
import { existsSync, mkdirSync, readdirSync, readFileSync, writeFileSync } from "node:fs";
import { createServer, type IncomingMessage } from "node:http";
import { join } from "node:path";
import type { ImageInfo, PruneResult, SandboxInfo, SnapshotInfo } from "@holdfast/protocol";
import { afterEach, beforeAll, beforeEach, describe, expect, onTestFinished, test } from "vitest";
import { startRegistry } from "../helpers/registry.js";
import { writeTinyArchive } from "./tiny-archive.js";
import { ServerInUse } from "./use-server.js";

// Without it a key could not have the server ask a registry of this machine.
const server = new ServerInUse({ HOLDFAST_SERVE_BUILD_ALLOW: '["127.0.0.1"]' });
const MIB = 1024 ** 2;

const archive = join(server.stateDirectory, "tiny.tar");

beforeAll(() => writeTinyArchive(archive));

/** Every test begins with this one image, and nothing else. */
beforeEach(async () => {
  if (!(await server.ok("image", "ls")).includes("tiny:latest")) await server.ok("image", "import", archive);
});

// Images outlive whoever made them.
afterEach(async () => {
  const sandboxes = (await server.ok("ps", "--quiet")).split("\n").filter((id) => id !== "");
  if (sandboxes.length > 0) await server.ok("kill", ...sandboxes);
  const more = (await list()).filter(({ names }) => !names.includes("tiny:latest"));
  if (more.length === 0) return;
  await server.ok("image", "rm", ...more.map(({ id }) => id));
  await server.ok("image", "prune", "--all");
});

const list = () => server.json<ImageInfo[]>("image", "ls", "--json");
const inspect = (name: string, ...more: string[]) => server.json<ImageInfo>("image", "inspect", name, ...more);
const overApi = (): string[] => ["--url", server.ready.url, "--api-key", server.ready.apiKey ?? ""];

/** An image with a file of its own, built on this machine. */
async function buildApp(name = "app", text = "hello"): Promise<ImageInfo> {
  const directory = join(server.scratch, `context-${name.replace(/\W/g, "-")}`);
  mkdirSync(directory, { recursive: true });
  writeFileSync(join(directory, "Dockerfile"), `FROM tiny\nRUN echo ${text} > /greeting\nCMD ["cat", "/greeting"]\n`);
  const built = await server.json<{ image: ImageInfo }>(
    "build",
    "--json",
    "-t",
    name,
    "--runtime-memory",
    "64m",
    directory,
  );
  return built.image;
}

describe("images of this machine", () => {
  test("are listed with their sizes and names, newest first", async () => {
    const app = await buildApp();
    await server.ok("image", "tag", "app", "team/app:1");
    const table = (await server.ok("image", "ls")).split("\n");
    expect(table[0]).toMatch(/^ID +KIND +SIZE +UNIQUE +FLOOR +AGE +NAME$/);
    expect(table[1]).toMatch(new RegExp(`^${app.id} +built +\\S+ +\\S+ +64M +\\S+ +app:latest$`));
    expect(table[2]).toMatch(new RegExp(`^${app.id} .* team/app:1$`));
    expect(table[3]).toMatch(/^img\w{20} +imported +\S+ +\S+ +- +\S+ +tiny:latest$/);
    expect((await list()).map(({ names }) => names)).toEqual([["app:latest", "team/app:1"], ["tiny:latest"]]);
    expect((await server.ok("image", "ls", "-q")).split("\n")).toEqual((await list()).map(({ id }) => id));
    await server.ok("image", "untag", "team/app:1");
    expect((await inspect("app")).names).toEqual(["app:latest"]);
    expect((await server.holdfast("image", "untag", "team/app:1")).stderr).toContain("image_not_found");
  });

  test("tell what they are made of, and the log of their build", async () => {
    const app = await buildApp();
    expect(await inspect(app.digest)).toMatchObject({
      id: app.id,
      kind: "built",
      config: { cmd: ["cat", "/greeting"], env: { TINY: "yes" } },
      floor: { memoryBytes: 64 * MIB },
      parent: (await inspect("tiny")).id,
    });
    const history = (await server.ok("image", "history", "app")).split("\n");
    expect(history[1]).toMatch(/^l\w{20} +\S+ +\S+ \S+ +RUN echo hello > \/greeting$/);
    expect(history[2]).toMatch(/imported from tiny\.tar$/);
    expect(await server.ok("image", "log", "app")).toMatch(/^\S+Z 1 RUN echo hello > \/greeting$/m);
    expect(await server.holdfast("image", "log", "tiny")).toMatchObject({
      code: 125,
      stderr: expect.stringContaining("was not built, so it has no log") as string,
    });
  });

  test("that something stands on are not removed, and all at once in any order are", async () => {
    const tiny = await inspect("tiny");
    const app = await buildApp();
    const refused = await server.holdfast("image", "rm", "tiny", "nothing");
    expect(refused.code).toBe(1);
    expect(refused.stderr).toMatch(new RegExp(`image ${tiny.id} is in use by image ${app.id} \\[image_in_use\\]`));
    expect(refused.stderr).toContain('there is no image "nothing"');
    const box = await server.ok("create", "--image", "app");
    expect((await server.holdfast("image", "rm", "app")).stderr).toContain(`sandbox ${box}`);
    await server.ok("kill", box);
    const removed = await server.ok("image", "rm", "tiny", "app");
    expect(removed.split("\n").sort()).toEqual([tiny.id, app.id].sort());
    expect(await list()).toEqual([]);
  });

  test("that nobody needs are pruned, and what has a name stays", async () => {
    await buildApp();
    await server.ok("image", "untag", "app");
    expect(await server.json<PruneResult>("image", "prune", "--json")).toMatchObject({ images: 0 });
    expect(await server.ok("image", "prune", "--all", "--unused-for", "1h")).toBe("Nothing was to be removed.");
    expect(await server.ok("image", "prune", "--all")).toMatch(/^Removed 1 image, 1 layer.*: .* are free\.$/);
    expect((await list()).map(({ names }) => names)).toEqual([["tiny:latest"]]);
  });
});

describe("moving", () => {
  test("an image out and in again gives the same image, and the same bytes every time", async () => {
    const app = await buildApp();
    const [one, two] = [join(server.scratch, "one.tar"), join(server.scratch, "two.tar")];
    const written = await server.holdfast("image", "export", "app", "-o", one, "--format", "docker");
    expect(written).toMatchObject({ code: 0, stderr: expect.stringMatching(/wrote app to .*one\.tar: \d/) as string });
    expect((await server.shell(`holdfast image export app -o - --format docker > ${two}`).ended).code).toBe(0);
    expect(readFileSync(one).equals(readFileSync(two))).toBe(true);
    await server.ok("image", "rm", "app");
    const imported = await server.shell(`holdfast image import - -t back:1 < ${one}`).ended;
    expect(imported.code).toBe(0);
    expect(imported.stdout.toString().trimEnd()).toBe((await inspect("back:1")).id);
    expect((await inspect("back:1")).floor).toEqual(app.floor);
    expect(await server.ok("run", "--image", "back:1")).toBe("hello");
  });

  test("formats and compressions are what others read", async () => {
    await buildApp();
    const directory = join(server.scratch, "layout");
    await server.ok("image", "export", "app", "--format", "oci-directory", "--compress", "zstd", "-o", directory);
    const inspected = JSON.parse(
      execFileSync("skopeo", ["inspect", "--config", `oci:${directory}:app:latest`], { encoding: "utf8" }),
    ) as { config: { Cmd: string[] } };
    expect(inspected.config.Cmd).toEqual(["cat", "/greeting"]);
    const again = await server.ok("image", "import", directory, "-t", "from-directory");
    expect(again).toBe((await inspect("from-directory")).id);
    const file = join(server.scratch, "app.tar");
    const scratch = join(server.scratch, "temporary");
    mkdirSync(scratch);
    await server.ok("image", "export", "app", "--compress", "gzip", "-o", file, "--scratch", scratch);
    expect(execFileSync("tar", ["-tf", file], { encoding: "utf8" })).toContain("oci-layout");
    expect(readdirSync(scratch)).toEqual([]);
  });

  test("to a registry and back, with a name and a password", async () => {
    const app = await buildApp();
    const { host } = await startRegistry({ users: { me: "secret" } });
    const login = ["--username", "me", "--password-stdin"];
    expect((await server.holdfast("image", "push", "app", `${host}/team/app:1`)).stderr).toMatch(
      /registry_failed|unauthenticated/,
    );
    const pushed = await server.feed("secret\n", "image", "push", "app", `${host}/team/app:1`, ...login);
    expect(pushed).toMatchObject({ code: 0, stdout: expect.anything() as Buffer });
    expect(pushed.stdout.toString()).toMatch(/^sha256:[0-9a-f]{64}\n$/);
    await server.ok("image", "rm", app.id);
    const pulled = await server.feed(
      "secret",
      "image",
      "pull",
      `${host}/team/app:1`,
      "-t",
      "pulled",
      ...login,
      "--json",
    );
    expect(pulled.code).toBe(0);
    expect((JSON.parse(pulled.stdout.toString()) as ImageInfo).names).toEqual(["pulled:latest"]);
    expect(await server.ok("run", "--image", "pulled")).toBe("hello");
  });

  test("into a sandbox, and into a container of docker", async () => {
    await buildApp();
    const box = await server.ok("create");
    await server.ok("image", "deliver", "app", `sandbox://${box}/home/user/app.tar`);
    expect(await server.ok("exec", box, "--", "tar", "-tf", "/home/user/app.tar")).toContain("manifest.json");

    const received: { path: string; body: Buffer }[] = [];
    const socket = join(server.scratch, "docker.sock");
    const docker = createServer((request, response) => {
      void bodyOf(request).then((body) => {
        received.push({ path: request.url ?? "", body });
        response.end();
      });
    });
    await new Promise<void>((resolve) => docker.listen(socket, resolve));
    onTestFinished(() => void docker.close());
    const { ended } = server.shell(`DOCKER_HOST=unix://${socket} holdfast image deliver app docker://web/srv/app.tar`);
    expect(await ended).toMatchObject({ code: 0 });
    expect(received.map(({ path }) => path)).toEqual(["/containers/web/archive?path=%2Fsrv"]);
    const wrapped = execFileSync("tar", ["-tf", "-"], { input: received[0]?.body, encoding: "utf8" });
    expect(wrapped).toBe("app.tar\n");
  });

  test("an archive is neither written to a terminal nor read from one", async () => {
    const cli = join(import.meta.dirname, "../../packages/cli/dist/main.js");
    for (const args of ["image export tiny -o -", "image import -"]) {
      const { code, stdout } = await server.shell(`script -qec "$(command -v node) ${cli} ${args}" /dev/null`).ended;
      expect({ code, said: stdout.toString() }).toEqual({
        code: 125,
        said: expect.stringContaining("terminal") as string,
      });
    }
  });

  test("a file that is no image leaves nothing", async () => {
    const file = join(server.scratch, "nonsense.tar");
    writeFileSync(file, "x".repeat(5000));
    const before = await list();
    expect(await server.holdfast("image", "import", file)).toMatchObject({ code: 125 });
    expect(await server.holdfast("image", "import", join(server.scratch, "missing.tar"))).toMatchObject({
      code: 125,
      stderr: expect.stringContaining("there is no such file") as string,
    });
    expect(await list()).toEqual(before);
  });
});

describe("over a server's API", () => {
  test("a build is sent, followed and found again; what is a key's own is not everybody's", async () => {
    const directory = join(server.scratch, "remote");
    mkdirSync(directory);
    writeFileSync(join(directory, "Dockerfile"), "FROM tiny\nCOPY . /files\nRUN cat /files/a /files/empty\n");
    writeFileSync(join(directory, "a"), "from far away\n");
    writeFileSync(join(directory, "empty"), "");
    const built = await server.holdfast("build", "-t", "remote", "--runtime-memory", "64m", ...overApi(), directory);
    expect(built).toMatchObject({ code: 0, stderr: expect.stringMatching(/^#3 \d\.\d+ from far away$/m) as string });
    expect(built.stdout.toString()).toMatch(/^run it +holdfast create --image remote$/m);
    const again = await server.json<{ build: { cached: boolean } }>(
      "build",
      "--json",
      "-t",
      "remote",
      ...overApi(),
      directory,
    );
    expect(again.build.cached).toBe(true);

    const listed = await server.json<ImageInfo[]>("image", "ls", "--json", ...overApi());
    expect(listed.map(({ names }) => names).sort()).toEqual([["remote:latest"], ["tiny:latest"]]);
    expect(listed.find(({ kind }) => kind === "built")).toMatchObject({
      shared: false,
      uniqueBytes: expect.any(Number) as number,
    });
    // Keys are not told whose it is; the operator knows it by its id and by the key's name for it.
    const { id, ...seen } = await inspect("remote", ...overApi());
    expect(seen).not.toHaveProperty("owner");
    expect(await inspect(id)).toMatchObject({ shared: false, owner: expect.any(String) as string });
    expect(await inspect("remote")).toMatchObject({ id, shared: false });
    expect(await server.ok("image", "log", "remote", ...overApi())).toContain("from far away");
    expect((await server.holdfast("image", "history", "remote", ...overApi())).stderr).toContain("not_implemented");
  });

  test("images of keys are shown to the operator with their owner, and found by name if one key has it", async () => {
    const directory = join(server.scratch, "theirs");
    mkdirSync(directory);
    writeFileSync(join(directory, "Dockerfile"), 'FROM tiny\nRUN echo theirs > /whose\nCMD ["cat", "/whose"]\n');
    const build = (...key: string[]) =>
      server.json<{ image: ImageInfo }>(
        ...["build", "--json", "-t", "theirs", "--runtime-memory", "64m", ...key, directory],
      );
    const { image } = await build(...overApi());
    const owner = (await inspect(image.id)).owner ?? "";
    const table = (await server.ok("image", "ls")).split("\n");
    expect(table[0]).toMatch(/ AGE +OWNER +NAME$/);
    expect(
      table
        .find((line) => line.startsWith(image.id))
        ?.split(/ {2,}/)
        .slice(-2),
    ).toEqual([owner, "theirs:latest"]);
    expect(table.find((line) => line.endsWith("tiny:latest"))).toMatch(/ - +tiny:latest$/);
    expect(await server.ok("image", "ls", ...overApi())).not.toContain("OWNER");
    expect(await server.ok("run", "--image", "theirs")).toBe("theirs");
    const sandbox = (await server.ok("create", "--image", "theirs")).trim();
    expect(await server.ok("exec", sandbox, "--", "/bin/cat", "/whose")).toBe("theirs");
    await server.ok("kill", sandbox);
    await server.ok("image", "export", "theirs", "-o", "/dev/null");

    const other = await server.json<{ key: string; id: string }>("key", "create", "other", "--json");
    const second = (await build("--url", server.ready.url, "--api-key", other.key)).image;
    expect(second.id).not.toBe(image.id);
    const unclear = [
      ["image", "inspect", "theirs"],
      ["image", "rm", "theirs"],
      ["run", "--image", "theirs"],
      ["create", "--image", "theirs"],
    ];
    for (const args of unclear) {
      const { code, stderr } = await server.holdfast(...args);
      expect({ args, isRefused: code !== 0 }).toEqual({ args, isRefused: true });
      expect(stderr).toContain("several keys have an image called theirs");
      for (const { id } of [image, second]) expect(stderr).toContain(id);
    }
    await server.ok("image", "rm", second.id);
    await server.ok("image", "tag", "theirs", "ours");
    expect((await inspect("ours")).id).toBe(image.id);
    await server.ok("image", "untag", "ours");
    await server.ok("image", "rm", "theirs");
    expect((await list()).map(({ names }) => names)).toEqual([["tiny:latest"]]);
  });

  test("a failure says the same as on this machine", async () => {
    const directory = join(server.scratch, "remote");
    mkdirSync(directory);
    writeFileSync(join(directory, "Dockerfile"), "FROM tiny\nRUN echo last words; exit 4\n");
    const result = await server.holdfast("build", ...overApi(), directory);
    expect(result.code).toBe(1);
    expect(result.stderr).toContain("│ last words\n");
    expect(result.stderr).toMatch(/^holdfast: step 1 \(RUN .*\) failed: exited with code 4\. \[build_failed\]$/m);
    const wrong = await server.holdfast("build", "--builder-memory", "900t", ...overApi(), directory);
    expect(wrong).toMatchObject({
      code: 125,
      stderr: expect.stringMatching(/^holdfast: --builder-memory: /m) as string,
    });
  });

  test("images are named, moved and removed", async () => {
    const file = join(server.scratch, "tiny-again.tar");
    await server.ok("image", "import", archive, "-t", "mine", ...overApi());
    await server.ok("image", "tag", "mine", "mine:2", ...overApi());
    await server.ok("image", "untag", "mine:latest", ...overApi());
    await server.ok("image", "export", "mine:2", "-o", file, "--format", "docker", ...overApi());
    expect(execFileSync("tar", ["-tf", file], { encoding: "utf8" })).toContain("manifest.json");
    expect(readdirSync(server.scratch).filter((name) => name.includes(".new"))).toEqual([]);
    const piped = await server.shell(`holdfast image export mine:2 -o - ${overApi().join(" ")} | tar -t`).ended;
    expect(piped.stdout.toString()).toContain("oci-layout");
    expect((await server.holdfast("image", "rm", "tiny", ...overApi())).stderr).toContain("access_denied");
    expect((await server.holdfast("image", "prune", ...overApi())).stderr).toContain("access_denied");
    await server.ok("image", "rm", "mine:2", ...overApi());
    const { host } = await startRegistry();
    await server.ok("image", "push", "tiny", `${host}/tiny:1`, ...overApi());
    await server.ok("image", "pull", `${host}/tiny:1`, "-t", "theirs", ...overApi());
    expect((await inspect("theirs", ...overApi())).names).toContain("theirs:latest");
    const directory = await server.holdfast(
      "image",
      "export",
      "tiny",
      "-o",
      join(server.scratch, "d"),
      "--format",
      "oci-directory",
      ...overApi(),
    );
    expect(directory).toMatchObject({ code: 125, stderr: expect.stringContaining("--format") as string });
    expect(existsSync(join(server.scratch, "d"))).toBe(false);
  });
});

describe("sandboxes of images", () => {
  test("are made by name, with at least the memory of the floor", async () => {
    await buildApp();
    const made = await server.holdfast("create", "--image", "app", "--memory", "32m", "--json");
    expect(made).toMatchObject({
      code: 0,
      stderr: expect.stringMatching(/--memory: it has 64 MiB, not 32 MiB: /) as string,
    });
    const info = JSON.parse(made.stdout.toString()) as SandboxInfo;
    expect(info.memory).toMatchObject({
      requestedBytes: 32 * MIB,
      effectiveBytes: 64 * MIB,
      floorBytes: 64 * MIB,
      reason: expect.any(String) as string,
    });
    expect(await server.ok("exec", info.id, "--", "cat", "/greeting")).toBe("hello");
    const strict = await server.holdfast("create", "--image", "app", "--memory", "32m", "--strict");
    expect(strict).toMatchObject({
      code: 125,
      stderr: expect.stringMatching(/^holdfast: --memory: 32 MiB is too/) as string,
    });
    expect((await server.holdfast("create", "--image", "nothing")).stderr).toContain("image_not_found");
    expect((await server.holdfast("create", "--image", "app", "--template", "base")).stderr).toContain("--image");
  });

  test("are kept as images while they run, and made anew of those", async () => {
    await buildApp();
    const box = await server.ok("create", "--image", "app");
    await server.ok("exec", box, "--", "sh", "-c", "echo changed > /greeting");
    const taken = await server.json<SnapshotInfo>("snapshot", box, "-t", "kept:1", "--json");
    expect(taken).toMatchObject({ holds: "files", image: { kind: "snapshot", fromSandbox: box, names: ["kept:1"] } });
    const unnamed = await server.holdfast("snapshot", box);
    expect(unnamed.stdout.toString()).toMatch(/^img\w{20}\n$/);
    expect(unnamed.stderr).toMatch(/of files, and no processes; it stood still for/);
    const second = await server.ok("create", "--image", "kept:1");
    expect(await server.ok("exec", second, "--", "cat", "/greeting")).toBe("changed");
    expect((await server.holdfast("snapshot", box, "-t", "Not A Name")).stderr).toMatch(
      /^holdfast: --tag "?Not A Name/,
    );
  });

  test("are forked, as many as are asked for", async () => {
    const box = await server.ok("create", "--image", "tiny");
    await server.ok("exec", box, "--", "sh", "-c", "echo mine > /note");
    const forked = await server.holdfast("fork", box, "-n", "3");
    const ids = forked.stdout.toString().trimEnd().split("\n");
    expect(ids).toHaveLength(3);
    expect(forked.stderr).toMatch(/3 sandboxes with the files of \w+, and none of its processes/);
    for (const id of ids) expect(await server.ok("exec", id, "--", "cat", "/note")).toBe("mine");
    const one = await server.json<{ sandboxes: SandboxInfo[]; restored: string; method: string }>(
      "fork",
      box,
      "--json",
    );
    expect(one).toMatchObject({ sandboxes: [{ status: "running" }], restored: "files" });
    expect((await server.holdfast("fork", box, "-n", "0")).stderr).toContain("--count");
    expect((await server.holdfast("fork", box, "-n", "101")).stderr).toContain("--count");
  });
});

test("what is wrong with a call is named, and the code is 125", async () => {
  const wrong: readonly (readonly [said: string, args: readonly string[]])[] = [
    ["unknown command", ["nonsense"]],
    ["'name'", ["inspect"]],
    ["image_not_found", ["inspect", "nothing"]],
    ["NAME sha256:00: a digest needs 12 to 64 digits", ["inspect", "sha256:00"]],
    ["--output", ["export", "tiny"]],
    ["--output: expected a file", ["export", "tiny", "-o", "/"]],
    ["--output", ["export", "tiny", "-o", "-", "--format", "oci-directory"]],
    ["--format", ["export", "tiny", "-o", "x", "--format", "zip"]],
    ["--compress", ["export", "tiny", "-o", "x", "--compress", "xz"]],
    ["--scratch", ["export", "tiny", "-o", "x", "--scratch", "/nowhere"]],
    ["--platform", ["import", archive, "--platform", "nonsense"]],
    ["--tag", ["import", archive, "-t", "Not A Name"]],
    ["NEWNAME", ["tag", "tiny", "Not A Name"]],
    ["--unused-for", ["prune", "--unused-for", "ages"]],
    ["--password-stdin: is needed", ["pull", "a", "--username", "me"]],
    ["--username: is needed", ["pull", "a", "--password-stdin"]],
    ["TARGET", ["deliver", "tiny", "somewhere"]],
    ["--pool", ["ls", "--pool", "btrfs", "--url", "http://127.0.0.1:1", "--api-key", "x"]],
  ];
  for (const [said, args] of wrong) {
    const { code, stderr } = await server.holdfast("image", ...args);
    expect({ args, code, stderr }).toEqual({ args, code: 125, stderr: expect.stringContaining(said) as string });
    expect(stderr).not.toMatch(/\n\s+at /);
  }
  expect(existsSync("x")).toBe(false);
}, 120_000);

async function bodyOf(request: IncomingMessage): Promise<Buffer> {
  const chunks: Buffer[] = [];
  for await (const chunk of request) chunks.push(chunk as Buffer);
  return Buffer.concat(chunks);
}
