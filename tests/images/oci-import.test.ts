/** What other tools write, taken in: skopeo's and buildah's layouts and archives, compressed, streamed, several in one. */
import { execFileSync } from "node:child_process";
import {
  createReadStream,
  createWriteStream,
  readdirSync,
  renameSync,
  statSync,
  symlinkSync,
  writeFileSync,
} from "node:fs";
import { dirname, join } from "node:path";
import type { ImageRecord } from "@holdfast/images";
import { describe, expect, test } from "vitest";
import { type ImportOptions, importImage } from "../../packages/images/src/oci/import-image.js";
import {
  contextOf,
  expectNothingLeft,
  type MadeImage,
  makeImage,
  makeLayer,
  randomLayer,
  sha256,
  skopeo,
  tinyLayer,
  useRegistryImages,
} from "../helpers/registry-images.js";
import { shell } from "../helpers/use-engine.js";
import { temporaryDirectory, tinyRootfs } from "../helpers/use-images.js";

const inUse = useRegistryImages();

function bring(path: string, options: Partial<ImportOptions> = {}): Promise<ImageRecord> {
  return importImage(contextOf(inUse), { path }, { owner: null, ...options });
}

async function runIn(record: ImageRecord, script: string): Promise<string> {
  const sandbox = await inUse.create({ image: { kind: "layers", layers: record.layers }, env: record.config.env });
  const { stdout, stderr } = await shell(sandbox, script);
  await sandbox.kill("test");
  return stdout + stderr;
}

function helloImage(): MadeImage {
  return makeImage([tinyLayer(), makeLayer({ "app/hello": "hello from a layer" })], { env: ["PATH=/bin", "A=b=c"] });
}

function tarOf(directory: string, flags: readonly string[] = []): string {
  const path = join(temporaryDirectory(), "image.tar");
  execFileSync("tar", [...flags, "-C", directory, "-cf", path, "."]);
  return path;
}

/** The image as another tool writes it. */
async function copyTo(image: MadeImage, transport: string, name: string, ...more: readonly string[]): Promise<string> {
  const path = join(temporaryDirectory(), name);
  await skopeo("copy", "-q", ...more, `oci:${image.directory}:latest`, `${transport}:${path}:team/app:1`);
  return path;
}

describe("an image that skopeo wrote", () => {
  test.each([
    ["an OCI layout", "oci", "layout", []],
    ["an OCI layout with zstd layers", "oci", "layout", ["--dest-compress", "--dest-compress-format", "zstd"]],
    ["an OCI archive", "oci-archive", "image.tar", []],
    ["a docker archive", "docker-archive", "image.tar", []],
  ] as const)("is taken in from %s, and runs", async (_name, transport, file, flags) => {
    const image = helloImage();
    const record = await bring(await copyTo(image, transport, file, ...flags));
    expect(record).toMatchObject({ kind: "imported", owner: null, config: { env: { PATH: "/bin", A: "b=c" } } });
    expect(record.layers).toHaveLength(2);
    expect(inUse.store.find("team/app:1", null)?.id).toBe(record.id);
    expect(await runIn(record, "cat /app/hello; echo; echo $A")).toBe("hello from a layer\nb=c\n");
    expectNothingLeft(inUse);
  });

  test.each(["gzip", "zstd"])("is taken in from an archive that is compressed with %s as a whole", async (program) => {
    const path = tarOf(helloImage().directory);
    execFileSync(program, ["-q", path]);
    const packed = readdirSync(dirname(path)).find((name) => name !== "image.tar") as string;
    expect(packed).toMatch(/\.(gz|zst)$/);
    expect(
      await runIn(
        await bring(join(dirname(path), packed), { names: [{ owner: null, name: "a", tag: "1" }] }),
        "cat /app/hello",
      ),
    ).toBe("hello from a layer");
    expectNothingLeft(inUse);
  });

  test("is taken in from a stream, with and without its size", async () => {
    const path = tarOf(helloImage().directory);
    const phases = new Set<string>();
    for (const sizeBytes of [statSync(path).size, undefined]) {
      const record = await importImage(
        contextOf(inUse),
        { stream: createReadStream(path, { highWaterMark: 1000 }), sizeBytes },
        { owner: "key1", onProgress: ({ phase }) => phases.add(phase) },
      );
      expect(record).toMatchObject({ owner: "key1", config: { cmd: ["/bin/sh"] } });
    }
    expect(inUse.store.list()).toHaveLength(1);
    expect([...phases]).toEqual(["spool", "unpack"]);
    expectNothingLeft(inUse);
  });

  test("is taken in from a pipe by its path", async () => {
    const path = tarOf(helloImage().directory);
    const pipe = join(temporaryDirectory(), "pipe");
    execFileSync("mkfifo", [pipe]);
    const [record] = await Promise.all([
      bring(pipe),
      new Promise<void>((resolve) => {
        createReadStream(path).pipe(createWriteStream(pipe)).on("close", resolve);
      }),
    ]);
    expect(record.layers).toHaveLength(2);
    expectNothingLeft(inUse);
  });

  test("is one image however often it comes, and shares layers with others", async () => {
    const [base, one, two] = [tinyLayer(), randomLayer(100_000), randomLayer(100_000)];
    const first = await bring(makeImage([base, one]).directory);
    expect((await bring(makeImage([base, one], { compression: "gzip" }).directory)).id).toBe(first.id);
    const second = await bring(makeImage([base, two]).directory);
    expect(second.layers[1]).toBe(first.layers[1]);
    expect(second.layers[0]).not.toBe(first.layers[0]);
    const another = await bring(makeImage([base, one]).directory, { owner: "somebody" });
    expect(another.id).not.toBe(first.id);
    expect(another.layers).toEqual(first.layers);
    expect(inUse.engine.layers.list()).toHaveLength(3);
  });

  test("with the same layer twice has it once, where it is uppermost", async () => {
    const [base, one, two] = [tinyLayer(), makeLayer({ "a/file": "one" }), makeLayer({ "a/file": "two", b: "b" })];
    const record = await bring(makeImage([base, one, two, one]).directory);
    expect(record.layers).toHaveLength(3);
    expect(await runIn(record, "cat /a/file /b")).toBe("oneb");
  });
});

describe("an image that buildah made", () => {
  test("keeps its config and its files", async () => {
    const root = temporaryDirectory();
    const state = ["--root", `${root}/storage`, "--runroot", `${root}/run`, "--storage-driver", "vfs"];
    const buildah = (...args: readonly string[]) =>
      execFileSync("buildah", [...state, ...args], {
        encoding: "utf8",
        stdio: ["ignore", "pipe", "pipe"],
        env: { ...process.env, BUILDAH_ISOLATION: "chroot", TMPDIR: root },
      }).trim();
    const container = buildah("from", "scratch");
    buildah("copy", "--chown", "0:0", container, tinyRootfs(), "/");
    buildah("config", "--env", "GREETING=hello = world", "--workingdir", "/home/user", "--user", "user", container);
    buildah("config", "--cmd", '["sh", "-c", "echo $GREETING"]', "--entrypoint", '["/bin/env"]', container);
    buildah("config", "--port", "8000", "--label", "maker=buildah", container);
    buildah("commit", "-q", container, "localhost/made:2");
    const archives = { "oci-archive": join(root, "oci.tar"), "docker-archive": join(root, "docker.tar") };
    for (const [transport, path] of Object.entries(archives)) {
      buildah("push", "-q", "localhost/made:2", `${transport}:${path}:localhost/made:2`);
      const record = await bring(path);
      expect(record.config).toMatchObject({
        workdir: "/home/user",
        user: "user",
        cmd: ["sh", "-c", "echo $GREETING"],
        entrypoint: ["/bin/env"],
        exposedPorts: ["8000"],
        env: { GREETING: "hello = world" },
      });
      expect(record.config.labels.maker).toBe("buildah");
      expect(inUse.store.find("localhost/made:2", null)?.id).toBe(record.id);
      expect(await runIn(record, "echo $GREETING; ls -ld /home/user | cut -c1-10")).toBe("hello = world\ndrwxr-xr-x\n");
    }
    expectNothingLeft(inUse);
  });
});

describe("an archive of several images", () => {
  test("of docker's is refused without a name, and gives the one that is asked for", async () => {
    const [one, two] = [makeImage([tinyLayer()], { env: ["N=1"] }), makeImage([tinyLayer()], { env: ["N=2"] })];
    const directory = temporaryDirectory();
    const images = [one, two].map((image, index) => {
      writeFileSync(join(directory, `${sha256(image.config).slice(7)}.json`), image.config);
      writeFileSync(join(directory, "layer.tar"), tinyLayer().tar);
      return {
        Config: `${sha256(image.config).slice(7)}.json`,
        RepoTags: [`docker.io/library/app${index + 1}:latest`],
        Layers: ["layer.tar"],
      };
    });
    writeFileSync(join(directory, "manifest.json"), JSON.stringify(images));
    const path = tarOf(directory);
    await expect(bring(path)).rejects.toMatchObject({
      code: "image_invalid",
      hint: expect.stringContaining("app1:latest; app2:latest"),
    });
    expect((await bring(path, { reference: "app2" })).config.env.N).toBe("2");
    expect((await bring(path, { reference: sha256(one.config).slice(7, 20) })).config.env.N).toBe("1");
    await expect(bring(path, { reference: "app3" })).rejects.toMatchObject({ code: "image_invalid" });
    expect(inUse.store.names().map(({ name }) => name.name)).toEqual(["app1", "app2"]);
  });

  test("of skopeo's is chosen from by tag", async () => {
    const directory = join(temporaryDirectory(), "layout");
    for (const n of ["1", "2"]) {
      const image = makeImage([tinyLayer()], { env: [`N=${n}`] });
      await skopeo("copy", "-q", `oci:${image.directory}:latest`, `oci:${directory}:v${n}`);
    }
    await expect(bring(directory)).rejects.toMatchObject({ hint: expect.stringContaining("v1:latest; v2:latest") });
    expect((await bring(directory, { reference: "v2" })).config.env.N).toBe("2");
  });
});

describe("an image for several platforms", () => {
  function manyPlatforms(architectures: readonly string[]): string {
    const images = architectures.map((architecture) =>
      makeImage([tinyLayer()], { architecture, env: [`ARCH=${architecture}`] }),
    );
    const directory = images[0]?.directory as string;
    for (const image of images.slice(1)) execFileSync("cp", ["-r", `${image.directory}/blobs`, directory]);
    const index = Buffer.from(
      JSON.stringify({
        schemaVersion: 2,
        mediaType: "application/vnd.oci.image.index.v1+json",
        manifests: [
          ...images.map(({ manifest, manifestDigest }, at) => ({
            mediaType: "application/vnd.oci.image.manifest.v1+json",
            digest: manifestDigest,
            size: manifest.length,
            platform: { os: "linux", architecture: architectures[at] },
          })),
          {
            mediaType: "application/vnd.oci.image.manifest.v1+json",
            digest: `sha256:${"0".repeat(64)}`,
            size: 1,
            platform: { os: "unknown", architecture: "unknown" },
          },
        ],
      }),
    );
    writeFileSync(join(directory, "blobs/sha256", sha256(index).slice(7)), index);
    const entry = {
      mediaType: "application/vnd.oci.image.index.v1+json",
      digest: sha256(index),
      size: index.length,
      annotations: { "io.containerd.image.name": "docker.io/library/multi:1" },
    };
    writeFileSync(join(directory, "index.json"), JSON.stringify({ schemaVersion: 2, manifests: [entry] }));
    return directory;
  }
  const host = process.arch === "x64" ? "amd64" : process.arch;

  test("is taken in for this host, or for the one asked for", async () => {
    const directory = manyPlatforms(["s390x", host, "riscv64"]);
    expect((await bring(directory)).config).toMatchObject({ architecture: host, env: { ARCH: host } });
    expect(inUse.store.find("multi:1", null)).toBeDefined();
    expect((await bring(directory, { platform: "linux/riscv64" })).config.architecture).toBe("riscv64");
  });

  test("none of which is this host's is refused with what there is", async () => {
    await expect(bring(manyPlatforms(["s390x", "riscv64"]))).rejects.toMatchObject({
      code: "image_invalid",
      hint: "There is linux/s390x, linux/riscv64.",
    });
    await expect(bring(makeImage([tinyLayer()], { architecture: "s390x" }).directory)).rejects.toMatchObject({
      message: expect.stringContaining("linux/s390x"),
    });
  });
});

describe("an archive of an older docker", () => {
  test("may have links from one image's layer to another's, inside it only", async () => {
    const image = makeImage([tinyLayer()]);
    const directory = temporaryDirectory();
    const [first, second] = ["a".repeat(64), "b".repeat(64)];
    execFileSync("mkdir", [join(directory, first), join(directory, second)]);
    writeFileSync(join(directory, first, "layer.tar"), tinyLayer().tar);
    symlinkSync(`../${first}/layer.tar`, join(directory, second, "layer.tar"));
    writeFileSync(join(directory, "config.json"), image.config);
    writeFileSync(join(directory, "repositories"), JSON.stringify({ old: { "1": second } }));
    const manifest = [{ Config: "config.json", RepoTags: ["old:1"], Layers: [`${second}/layer.tar`] }];
    writeFileSync(join(directory, "manifest.json"), JSON.stringify(manifest));
    const record = await bring(tarOf(directory));
    expect(record.digest).toBe(sha256(image.config));
    expect(inUse.store.find("old:1", null)?.id).toBe(record.id);
    renameSync(join(directory, second, "layer.tar"), join(directory, second, "gone"));
    symlinkSync("../../etc/passwd", join(directory, second, "layer.tar"));
    await expect(bring(tarOf(directory))).rejects.toMatchObject({ code: "image_invalid" });
    await expect(bring(directory)).rejects.toMatchObject({ code: "image_invalid" });
  });

  test("from before 1.10 is refused by name", async () => {
    const directory = temporaryDirectory();
    writeFileSync(join(directory, "repositories"), "{}");
    await expect(bring(directory)).rejects.toMatchObject({ message: expect.stringContaining("older than 1.10") });
  });
});
