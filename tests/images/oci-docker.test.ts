/** Docker itself, with a data directory of its own: what it saves comes in, what goes out loads and runs. */
import { type ChildProcess, execFile, execFileSync, spawn } from "node:child_process";
import { createHash } from "node:crypto";
import {
  existsSync,
  mkdirSync,
  mkdtempSync,
  readdirSync,
  readFileSync,
  rmdirSync,
  rmSync,
  writeFileSync,
} from "node:fs";
import { join } from "node:path";
import { setTimeout as sleep } from "node:timers/promises";
import { promisify } from "node:util";
import type { ImageName, ImageRecord } from "@holdfast/images";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { deliverImage, deliverToContainer, wrapAsTar } from "../../packages/images/src/deliver/deliver-image.js";
import { exportImage } from "../../packages/images/src/oci/export-image.js";
import { importImage } from "../../packages/images/src/oci/import-image.js";
import { OUR_DIRECTORIES } from "../helpers/leaks.js";
import { contextOf, expectNothingLeft, useRegistryImages } from "../helpers/registry-images.js";
import { shell } from "../helpers/use-engine.js";
import { PLAIN_CONFIG, temporaryDirectory, tinyRootfs } from "../helpers/use-images.js";

const START_MS = 30_000;
let daemon: ChildProcess;
let home: string;
let socketPath: string;

async function docker(...args: readonly string[]): Promise<string> {
  const { stdout } = await promisify(execFile)("docker", ["-H", `unix://${socketPath}`, ...args], {
    encoding: "utf8",
    timeout: 60_000,
    env: { ...process.env, DOCKER_BUILDKIT: "0", DOCKER_CONFIG: home },
  });
  return stdout.trim();
}

/** `ls` fails, and with it the command. */
async function run(image: string): Promise<string> {
  const output = await docker("run", "--rm", "--network", "none", image).catch(
    (error: { stdout: string }) => error.stdout,
  );
  return output.trim();
}

/** Of its own, or that of the whole run, which isolated.sh removes. */
const OWN_CGROUP = process.env.HOLDFAST_CGROUP_PARENT === undefined;
const CGROUP = process.env.HOLDFAST_CGROUP_PARENT ?? "holdfast-docker-test";

beforeAll(async () => {
  home = mkdtempSync(OUR_DIRECTORIES);
  socketPath = join(home, "docker.sock");
  const log = join(home, "log");
  daemon = spawn(
    "sh",
    [
      "-c",
      `exec dockerd --data-root ${home}/data --exec-root ${home}/exec --pidfile ${home}/pid -H unix://${socketPath} \
        --iptables=false --ip6tables=false --bridge=none --storage-driver=vfs \
        --cgroup-parent /${CGROUP} > ${log} 2>&1`,
    ],
    { stdio: "ignore" },
  );
  const deadline = Date.now() + START_MS;
  for (;;) {
    try {
      await docker("version");
      return;
    } catch (error) {
      if (daemon.exitCode !== null || Date.now() > deadline) {
        throw new Error(`docker's daemon does not start: ${readFileSync(log, "utf8").slice(-2000)}`, { cause: error });
      }
      await sleep(200);
    }
  }
}, START_MS + 10_000);

function mountsBelow(directory: string): string[] {
  return readFileSync("/proc/self/mounts", "utf8")
    .split("\n")
    .flatMap((line) => line.split(" ")[1] ?? [])
    .filter((path) => path.startsWith(`${directory}/`));
}

afterAll(async () => {
  if (daemon.exitCode === null) {
    const ended = new Promise((resolve) => daemon.once("exit", resolve));
    daemon.kill("SIGTERM");
    await ended;
  }
  for (const path of mountsBelow(home).reverse()) execFileSync("umount", ["-l", path]);
  rmSync(home, { recursive: true, force: true });
  // The daemon makes it in every hierarchy and leaves it there.
  const left = readdirSync("/sys/fs/cgroup").map((hierarchy) => join("/sys/fs/cgroup", hierarchy, CGROUP));
  for (const directory of left) if (OWN_CGROUP && existsSync(directory)) rmdirSync(directory);
}, 30_000);

const inUse = useRegistryImages();
const NAME: ImageName = { owner: null, name: "team/app", tag: "1" };

function context(): string {
  const directory = temporaryDirectory();
  tinyRootfs(join(mkdirIn(directory, "rootfs")));
  writeFileSync(
    join(directory, "Dockerfile"),
    `FROM scratch
COPY rootfs /
ENV GREETING="hello = world"
RUN mkdir /made && echo text > /made/file && chown -R 1000:1000 /made && rm /etc/group
WORKDIR /made
USER user
CMD ["sh", "-c", "cat file; echo $GREETING; id -u; ls /etc/group 2>&1"]
`,
  );
  return directory;
}

function mkdirIn(directory: string, name: string): string {
  mkdirSync(join(directory, name));
  return join(directory, name);
}

const OUTPUT = "text\nhello = world\n1000\nls: /etc/group: No such file or directory";

async function runHere(record: ImageRecord): Promise<string> {
  const { config } = record;
  const sandbox = await inUse.create({
    image: { kind: "layers", layers: record.layers },
    env: config.env,
    workdir: config.workdir ?? undefined,
    defaultUser: config.user ?? "root",
  });
  const { stdout, stderr } = await shell(sandbox, config.cmd?.[2] ?? "");
  await sandbox.kill("test");
  return (stdout + stderr).trim();
}

describe("docker's own archives", () => {
  test("come in and run, by file, compressed, and several at once", async () => {
    const directory = context();
    await docker("build", "-q", "-t", "built:1", directory);
    expect(await run("built:1")).toBe(OUTPUT);
    const path = join(directory, "saved.tar");
    await docker("save", "-o", path, "built:1");
    const record = await importImage(contextOf(inUse), { path }, { owner: null });
    expect(`${record.digest}`).toBe(await docker("inspect", "--format", "{{.Id}}", "built:1"));
    expect(inUse.store.find("built:1", null)?.id).toBe(record.id);
    expect(record.config).toMatchObject({ workdir: "/made", user: "user", env: { GREETING: "hello = world" } });
    expect(await runHere(record)).toBe(OUTPUT);

    execFileSync("gzip", ["-k", path]);
    expect((await importImage(contextOf(inUse), { path: `${path}.gz` }, { owner: null })).id).toBe(record.id);

    await docker("tag", "built:1", "other:2");
    writeFileSync(join(directory, "rootfs/more"), "more");
    await docker("build", "-q", "-t", "third:3", directory);
    await docker("save", "-o", path, "built:1", "other:2", "third:3");
    await expect(importImage(contextOf(inUse), { path }, { owner: null })).rejects.toMatchObject({
      hint: expect.stringMatching(/built:1, other:2; third:3|third:3; built:1, other:2/),
    });
    const again = await importImage(contextOf(inUse), { path }, { owner: null, reference: "other:2" });
    expect(again.id).toBe(record.id);
    expect(inUse.store.names().map(({ name }) => `${name.name}:${name.tag}`)).toEqual(["built:1", "other:2"]);
    expectNothingLeft(inUse);
  });
});

describe("what goes out", () => {
  async function addImage(): Promise<ImageRecord> {
    const lower = await inUse.addLayer((directory) => void tinyRootfs(directory));
    const upper = await inUse.addLayer((directory) =>
      execFileSync("sh", [
        "-euc",
        `cd ${directory}; mkdir made etc; echo text > made/file; chown -R 1000:1000 made; mknod etc/group c 0 0`,
      ]),
    );
    return inUse.addImage({
      layers: [upper, lower],
      config: {
        ...PLAIN_CONFIG,
        env: { ...PLAIN_CONFIG.env, GREETING: "hello = world" },
        workdir: "/made",
        user: "user",
        cmd: ["sh", "-c", "cat file; echo $GREETING; id -u; ls /etc/group 2>&1"],
      },
    });
  }

  test.each(["none", "gzip"] as const)("loads in docker and runs, layers compressed with %s", async (compression) => {
    const record = await addImage();
    const path = join(temporaryDirectory(), "image.tar");
    const report = await exportImage(contextOf(inUse), record, {
      format: "docker",
      to: { path },
      compression,
      names: [NAME],
    });
    expect(await docker("load", "-i", path)).toContain("team/app:1");
    expect(await docker("inspect", "--format", "{{.Id}}", "team/app:1")).toBe(report.configDigest);
    expect(await run("team/app:1")).toBe(OUTPUT);
    await docker("rmi", "team/app:1");
  });

  test("can be piped into docker load", async () => {
    const record = await addImage();
    const load = spawn("docker", ["-H", `unix://${socketPath}`, "load"], { stdio: ["pipe", "ignore", "pipe"] });
    const ended = new Promise((resolve) => load.once("exit", resolve));
    await exportImage(contextOf(inUse), record, { format: "docker", to: load.stdin, names: [NAME] });
    load.stdin.end();
    expect(await ended).toBe(0);
    await docker("rmi", "team/app:1");
  });

  test("is delivered into a running container, and into a sandbox", async () => {
    const record = await addImage();
    const path = join(temporaryDirectory(), "image.tar");
    await exportImage(contextOf(inUse), record, { format: "docker", to: { path }, names: [NAME] });
    const sum = createHash("sha256").update(readFileSync(path)).digest("hex");
    await docker("load", "-i", path);
    const container = await docker("run", "-d", "--network", "none", "team/app:1", "sleep", "1000");
    const phases = new Set<string>();
    await deliverImage(contextOf(inUse), record, {
      to: { kind: "container", container, path: "/made", socketPath },
      names: [NAME],
      onProgress: ({ phase }) => phases.add(phase),
    });
    expect([...phases]).toEqual(["write", "deliver"]);
    expect(await docker("exec", container, "sha256sum", "/made/image.tar")).toContain(sum);

    for (const size of [0, 1, 511, 512, 513, 3_000_001]) {
      const content = Buffer.alloc(size, "x");
      const wrapped = await wrapAsTar(contextOf(inUse), parts(content), { name: "some.file", mode: 0o600 });
      await deliverToContainer(wrapped, { container, path: "/tmp", socketPath });
      expect(await docker("exec", "-u", "root", container, "sh", "-c", "stat -c '%s %a' /tmp/some.file")).toBe(
        `${size} 600`,
      );
    }
    const wrap = () => wrapAsTar(contextOf(inUse), parts(Buffer.alloc(5_000_000)), { name: "file" });
    await expect(deliverToContainer(await wrap(), { container, path: "/no/such", socketPath })).rejects.toMatchObject({
      code: "file_not_found",
    });
    await expect(
      deliverToContainer(await wrap(), { container: "nobody", path: "/tmp", socketPath }),
    ).rejects.toMatchObject({ code: "file_not_found" });
    await expect(
      deliverToContainer(await wrap(), { container, path: "/tmp", socketPath: `${socketPath}.not` }),
    ).rejects.toMatchObject({ code: "server_unreachable" });
    await docker("rm", "-f", container);
    // Which docker forgets.
    for (const path of mountsBelow(`${home}/exec/netns`)) execFileSync("umount", [path]);

    const sandbox = await inUse.create({ image: { kind: "layers", layers: record.layers } });
    await deliverImage(contextOf(inUse), record, {
      to: { kind: "sandbox", sandbox, path: "/tmp/deep/image.tar" },
      names: [NAME],
    });
    expect((await shell(sandbox, "sha256sum /tmp/deep/image.tar")).stdout).toContain(sum);
    await sandbox.kill("test");
    expect(existsSync(path)).toBe(true);
    expectNothingLeft(inUse);
  });
});

async function* parts(content: Buffer): AsyncGenerator<Buffer> {
  for (let offset = 0; offset < content.length; offset += 100_000) yield content.subarray(offset, offset + 100_000);
}
