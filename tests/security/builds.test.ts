/** Build steps are anybody's code with a way out; what they are copied from is anybody's, too. */
import { execFileSync } from "node:child_process";
import {
  existsSync,
  mkdirSync,
  mkdtempSync,
  readdirSync,
  readFileSync,
  rmSync,
  symlinkSync,
  writeFileSync,
} from "node:fs";
import { createServer, type Server } from "node:http";
import type { AddressInfo } from "node:net";
import { networkInterfaces, tmpdir } from "node:os";
import { basename, join } from "node:path";
import { canonicalJson } from "@holdfast/recipe";
import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, it, onTestFinished } from "vitest";
import { type HostSecret, placeHostSecret } from "../helpers/attack.js";
import { patienceMs } from "../helpers/scale.js";
import { recipe, run, SMALL_BUILDER, useImageServer } from "./image-server.js";
import { expectWell } from "./server-client.js";

const use = useImageServer();
let secret: HostSecret;
let pid: number;

beforeAll(() => {
  ({ pid } = use.server);
});
beforeEach(() => {
  secret = placeHostSecret();
});
afterEach(async () => {
  expect(readdirSync(secret.directory)).toEqual([basename(secret.path)]);
  expect(readFileSync(secret.path, "utf8")).toBe(secret.text);
  secret.remove();
  await expectWell(use.server, pid);
});

/** As root, and whatever it says counts as what an attacker learns. */
async function tryInStep(script: string, builder: object = SMALL_BUILDER): Promise<string> {
  // Never the same step twice: what was run before is not run again.
  const unique = `: ${Math.random()}; exec 2>&1; ${script}; true`;
  const { build, output } = await use.build(use.a, recipe([run(unique, { user: "root" })]), builder);
  expect(build.state, build.error?.message).toBe("ready");
  return output.join("\n");
}

describe("a step", () => {
  it("cannot read the host's files, the store, other layers or the server's state", async () => {
    const { stateDirectory } = use.server;
    const places = [
      secret.path,
      stateDirectory,
      join(stateDirectory, "images"),
      join(stateDirectory, "pool"),
      "/oldroot",
    ];
    const script = places.flatMap((place) =>
      ["", "/proc/1/root", "/proc/self/root/..", "/../../.."].map(
        (before) => `ls -a ${before}${place}; cat ${before}${place}`,
      ),
    );
    const said = await tryInStep(
      [...script, "ls /var/lib/holdfast /run/holdfast", "cat /proc/1/environ /proc/1/maps"].join("; "),
    );
    expect(said).not.toContain(secret.text);
    expect(said).not.toMatch(/holdfast\.(db|sock)|records|blobs|scratch|uid-ranges/);
  });

  it("cannot mount, make devices, or change what it stands on", async () => {
    const said = await tryInStep(
      [
        "mount -t tmpfs none /mnt && echo DONE-mount",
        "mount --bind / /mnt && echo DONE-bind",
        "mknod /disk b 8 0 && echo DONE-mknod",
        "mkdir -p /r && cd / && chroot /proc/1/root /bin/true && echo DONE-chroot",
        "echo 1 > /proc/sys/kernel/panic && echo DONE-sysctl",
        "for f in /sys/fs/cgroup/*/memory.max /sys/fs/cgroup/memory.max; do echo max > $f && echo DONE-cgroup; done",
        "rm -rf --no-preserve-root /bin/[a-y]* 2>/dev/null",
      ].join("; "),
    );
    expect(said).not.toContain("DONE");
    // The image that it stood on is what it was.
    expect((await use.build(use.b, recipe([run("ls / >/dev/null; echo whole")]))).output).toEqual(["whole"]);
  });

  it("cannot leave a file on the disk that gives anybody privileges on the host", async () => {
    await tryInStep("cp /bin/busybox /suid; chmod 6755 /suid; chown 0:0 /suid");
    // Layers are below directories that only root enters.
    const pool = join(use.server.stateDirectory, "pool");
    if (existsSync(pool)) {
      expect(() =>
        execFileSync("setpriv", ["--reuid", "65534", "--clear-groups", "ls", pool], { stdio: "pipe" }),
      ).toThrow();
    }
  });
});

describe("the way out of a step", () => {
  const addresses = Object.values(networkInterfaces())
    .flatMap((list) => list ?? [])
    .filter(({ family, internal }) => family === "IPv4" && !internal)
    .map(({ address }) => address);
  let service: Server;
  let port: number;

  beforeAll(async () => {
    service = createServer((_request, response) => response.end("WORDS-OF-THE-HOST"));
    await new Promise<void>((resolve) => service.listen(0, "0.0.0.0", resolve));
    ({ port } = service.address() as AddressInfo);
  });
  afterAll(() => new Promise<void>((resolve) => void service.close(() => resolve())));

  it(
    "does not lead to services of this host, the server itself, or where clouds keep credentials",
    async () => {
      const hosts = ["127.0.0.1", "127.1", "0.0.0.0", "127.18.0.1", "169.254.169.254", "localhost", ...addresses];
      const ask = (host: string, at: number) =>
        String.raw`printf 'GET /health HTTP/1.0\r\nHost: localhost\r\n\r\n' | nc -w 2 ${host} ${at}`;
      const said = await tryInStep(
        [...hosts.flatMap((host) => [ask(host, port), ask(host, use.server.port)]), ask("169.254.169.254", 80)].join(
          "; ",
        ),
      );
      expect(said).not.toMatch(/WORDS-OF-THE-HOST|HTTP\/1/);
    },
    patienceMs(60_000),
  );

  it("does not lead to the operator's socket, by its path or by another name", async () => {
    const { socketPath } = use.server;
    const said = await tryInStep(
      [
        `ls -l ${socketPath}`,
        String.raw`printf 'GET /v1/host HTTP/1.0\r\n\r\n' | nc -w 2 local:${socketPath}`,
        "grep -c holdfast.sock /proc/net/unix",
      ].join("; "),
    );
    expect(said).not.toMatch(/memoryBytes|HTTP\/1|^s/m);
    expect(said.split("\n").at(-1)).toBe("0");
  });
});

/** A directory of files to be copied, as it travels. */
async function addTree(entries: readonly Record<string, unknown>[]): Promise<string> {
  return use.addBlob(use.a, canonicalJson({ version: 1, entries } as never));
}

describe("a copy", () => {
  it("goes to no place of the host, wherever the image's links lead", async () => {
    const digest = await use.addBlob(use.a, "copied");
    const tree = await addTree([
      { path: "file", type: "file", mode: 0o644, sizeBytes: 6, digest },
      { path: "out", type: "symlink", mode: 0o777, target: `../../../../../..${secret.directory}` },
    ]);
    const ups = "../".repeat(20);
    const { build, output } = await use.build(
      use.a,
      recipe([
        run(`ln -s ${secret.directory} /absolute; ln -s ${ups}${secret.directory.slice(1)} /relative; mkdir -p /r`),
        { kind: "copy", tree, to: "/absolute/" },
        { kind: "copy", tree, to: "/relative/" },
        { kind: "copy", tree, to: "/r/" },
        { kind: "copy", tree, to: "/r/out/" },
        { kind: "workdir", path: "/relative/work" },
        run("pwd; touch here; cat /r/file; echo"),
        run(`cat ${secret.path} 2>&1; ls ${secret.directory}`),
      ]),
    );
    expect(build.state, build.error?.message).toMatch(/ready|failed/);
    expect(output.join("\n")).not.toContain(secret.text);
  });

  it("reads no file of the host through links of the image that it reads from", async () => {
    const steps = [
      run(
        `mkdir /in; ln -s ${secret.path} /in/a; ln -s ${secret.directory} /in/b; ln -s ${"../".repeat(20)}${secret.path.slice(1)} /in/c`,
      ),
    ];
    const from = {
      version: 1,
      base: { kind: "image", name: "tiny" },
      stages: [{ base: { kind: "image", name: "tiny" }, steps }],
      start: null,
    };
    for (const path of ["/in/a", `/in/b/${basename(secret.path)}`, "/in/c", "/in/*", secret.path]) {
      const { output } = await use.build(use.a, {
        ...from,
        steps: [
          { kind: "copy-from", source: { kind: "stage", index: 0 }, paths: [path], to: "/got/" },
          run("cat /got/* 2>&1; find /got | xargs cat 2>&1; true"),
        ],
      });
      expect(output.join("\n"), path).not.toContain(secret.text);
    }
  });

  it.each([
    ["a path that climbs", [{ path: "../up", type: "directory", mode: 0o755 }]],
    ["an absolute path", [{ path: "/etc", type: "directory", mode: 0o755 }]],
    [
      "a path through a link",
      [
        { path: "l", type: "symlink", mode: 0o777, target: "/etc" },
        { path: "l/passwd", type: "directory", mode: 0o755 },
      ],
    ],
    ["a device", [{ path: "d", type: "device", mode: 0o644 }]],
  ])("takes no tree with %s", async (_what, entries) => {
    const tree = await addTree(entries);
    await expect(use.build(use.a, recipe([{ kind: "copy", tree, to: "/x/" }]))).rejects.toMatchObject({
      code: "invalid_argument",
    });
  });

  it("unpacks no hostile archive over anything", async () => {
    const work = mkdtempSync(join(tmpdir(), "hostile-archive-"));
    onTestFinished(() => rmSync(work, { recursive: true, force: true }));
    mkdirSync(join(work, "in"));
    writeFileSync(join(work, "in/file"), "planted");
    symlinkSync(secret.directory, join(work, "link"));
    const archives = {
      climbing: ["--transform", `s,^in,${"../".repeat(15)}${secret.directory.slice(1)},`, "in"],
      absolute: ["--transform", `s,^in,${secret.directory},`, "in"],
      through: ["--transform", "s,^in,link,", "link", "in"],
    };
    for (const [name, args] of Object.entries(archives)) {
      const path = join(work, `${name}.tar`);
      execFileSync("tar", ["-C", work, "-P", "-cf", path, ...args]);
      const archive = await use.addBlob(use.a, readFileSync(path));
      const { build } = await use.build(use.a, recipe([{ kind: "copy-archive", archive, from: ".", to: "/x" }]));
      expect(["ready", "failed"], name).toContain(build.state);
      expect(readdirSync(secret.directory), name).toEqual([basename(secret.path)]);
    }
  });
});

describe("what a step writes to its log", () => {
  it(
    "cannot bring the server to its knees, nor fill the disk",
    async () => {
      const { build } = await use.build(
        use.a,
        recipe([run("head -c 100000000 /dev/zero | tr '\\0' 'x'; head -c 20000000 /dev/urandom; seq 1000000")]),
        { ...SMALL_BUILDER, network: "off" },
      );
      expect(build.state).toBe("ready");
      const directory = join(use.server.stateDirectory, "images/builds", build.id);
      const bytes = Number(execFileSync("du", ["-sb", directory], { encoding: "utf8" }).split("\t")[0]);
      expect(bytes).toBeLessThan(80 * 1024 * 1024);
    },
    patienceMs(60_000),
  );
});
