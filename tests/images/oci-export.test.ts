/** Images going out: what skopeo reads, the same bytes every time, and everything of a file kept there and back. */
import { execFileSync } from "node:child_process";
import { createHash } from "node:crypto";
import {
  createWriteStream,
  existsSync,
  lstatSync,
  mkdirSync,
  readdirSync,
  readFileSync,
  rmSync,
  symlinkSync,
  writeFileSync,
} from "node:fs";
import { dirname, join } from "node:path";
import { PassThrough, Writable } from "node:stream";
import type { LayerId } from "@holdfast/engine";
import type { ImageName, ImageRecord } from "@holdfast/images";
import { describe, expect, test } from "vitest";
import { type ExportOptions, exportImage } from "../../packages/images/src/oci/export-image.js";
import { importImage } from "../../packages/images/src/oci/import-image.js";
import { contextOf, expectNothingLeft, skopeo, useRegistryImages } from "../helpers/registry-images.js";
import { shell } from "../helpers/use-engine.js";
import { PLAIN_CONFIG, temporaryDirectory, tinyRootfs } from "../helpers/use-images.js";

const inUse = useRegistryImages();
const NAME: ImageName = { owner: null, name: "team/app", tag: "1" };

function send(record: ImageRecord, options: Partial<ExportOptions> & Pick<ExportOptions, "to">) {
  return exportImage(contextOf(inUse), record, { format: "oci", names: [NAME], ...options });
}

function sh(script: string): string {
  return execFileSync("sh", ["-euc", script], { encoding: "utf8" });
}

/** Two layers: a root file system, and one with everything that a file can be, and deletions. */
async function addRichImage(parts: Partial<ImageRecord> = {}): Promise<ImageRecord> {
  const lower = await inUse.addLayer((directory) => {
    tinyRootfs(directory);
    mkdirSync(join(directory, "gone"));
    mkdirSync(join(directory, "hidden"));
    writeFileSync(join(directory, "hidden/below"), "below");
    writeFileSync(join(directory, "deleted"), "deleted");
  });
  const upper = await inUse.addLayer((directory) => {
    sh(`cd ${directory}; mkdir -p hidden opt/deep; head -c 300000 /dev/urandom > opt/random; mknod deleted c 0 0; mknod gone c 0 0
      ${setAttribute("hidden", "trusted.overlay.opaque", "y")}; echo above > hidden/above
      echo text > opt/file; ln opt/file opt/hard; ln -s ../opt/file opt/soft; ln -s /nowhere opt/broken
      chown 1000:1001 opt/file; chmod 4751 opt/file; chmod 1777 opt/deep
      ${setAttribute("opt/file", "user.note", "a note")}; setcap cap_net_raw+ep opt/random
      mkfifo opt/fifo; touch -d @1234567890 opt/file; printf 'ünï' > "opt/ünï ☃"
      chown 70000:80000 opt/deep; `);
  });
  return inUse.addImage({
    layers: [upper, lower],
    config: {
      ...PLAIN_CONFIG,
      env: { ...PLAIN_CONFIG.env, EQUALS: "a=b=c", EMPTY: "" },
      workdir: "/opt",
      user: "user",
      entrypoint: ["/bin/env"],
      cmd: ["sh"],
      exposedPorts: ["53/udp", "8000/tcp"],
      labels: { one: "1" },
      start: { command: "sleep 1000", readyWhen: { kind: "port", port: 8000 } },
    },
    floor: { memoryBytes: 1 << 30, startPeakBytes: 12345678, readyMs: 250 },
    limits: { memoryBytes: 1 << 29 },
    ...parts,
  });
}

const setAttribute = (path: string, name: string, value: string): string =>
  `python3 -c 'import os,sys; os.setxattr(sys.argv[1], sys.argv[2], sys.argv[3].encode())' '${path}' '${name}' '${value}'`;

const LISTING = `
import hashlib, os, stat, sys
os.chdir(sys.argv[1])
for top, directories, files in sorted(os.walk(".")):
    for name in sorted(directories + files) + ["."]:
        path = os.path.join(top, name)
        s = os.lstat(path)
        kind = stat.S_IFMT(s.st_mode)
        if kind == stat.S_IFCHR or path == "./.":
            print(path, s.st_rdev)
            continue
        facts = [oct(s.st_mode), s.st_uid, s.st_gid, int(s.st_mtime), s.st_rdev]
        if kind != stat.S_IFDIR: facts += [s.st_nlink, s.st_size]
        if kind == stat.S_IFLNK: facts.append(os.readlink(path))
        if kind == stat.S_IFREG: facts.append(hashlib.sha256(open(path, "rb").read()).hexdigest())
        facts += [(a, os.getxattr(path, a, follow_symlinks=False)) for a in sorted(os.listxattr(path, follow_symlinks=False))]
        print(path, *facts)
`;

/** Everything of a layer that has to be kept. Of a deletion only that it is one, of the top nothing. */
function listing(id: LayerId): string {
  return execFileSync("python3", ["-c", LISTING, inUse.engine.layers.path(id)], { encoding: "utf8" });
}

const sha256File = (path: string): string => createHash("sha256").update(readFileSync(path)).digest("hex");

describe("an image that leaves and comes back", () => {
  test.each([
    ["an OCI archive", "oci", "none"],
    ["a docker archive", "docker", "none"],
    ["an OCI layout", "oci-directory", "none"],
    ["an OCI archive with gzip", "oci", "gzip"],
    ["a docker archive with zstd", "docker", "zstd"],
  ] as const)("as %s is what it was", async (_what, format, compression) => {
    const record = await addRichImage();
    const path = join(temporaryDirectory(), "image");
    const report = await send(record, { to: { path }, format, compression });
    expect(readdirSync(dirname(path))).toEqual(["image"]);
    if (format !== "oci-directory") expect(lstatSync(path).size).toBe(report.sizeBytes);
    // As if it had never been here: the layers are not found by what they hold.
    for (const id of record.layers) rmSync(join(inUse.store.directory, "layers", `${id}.json`), { force: true });
    const back = await importImage(contextOf(inUse), { path }, { owner: null });
    expect(back.id).not.toBe(record.id);
    expect(back.digest).toBe(report.configDigest);
    expect(back).toMatchObject({ config: record.config, floor: record.floor, limits: record.limits, kind: "imported" });
    expect(inUse.store.find("team/app:1", null)?.id).toBe(back.id);
    for (const [index, id] of record.layers.entries()) expect(listing(back.layers[index] as LayerId)).toBe(listing(id));
    const sandbox = await inUse.create({ image: { kind: "layers", layers: back.layers } });
    expect((await shell(sandbox, "ls /hidden; ls /deleted /gone 2>&1 | wc -l; cat /opt/soft /opt/hard")).stdout).toBe(
      "above\n2\ntext\ntext\n",
    );
    await sandbox.kill("test");
    expectNothingLeft(inUse);
  });

  test("is read by skopeo, which finds every digest right", async () => {
    const record = await addRichImage();
    const directory = temporaryDirectory();
    for (const compression of ["none", "gzip", "zstd"] as const) {
      for (const [format, transport] of [
        ["oci", "oci-archive"],
        ["docker", "docker-archive"],
        ["docker", "oci-archive"],
        ["oci-directory", "oci"],
      ] as const) {
        const path = join(directory, `${format}-${transport}-${compression}`);
        const report = await send(record, { to: { path }, format, compression });
        const copied = `oci:${directory}/copy-${format}-${transport}-${compression}:x`;
        await skopeo("copy", "-q", `${transport}:${path}`, copied);
        const inspected = JSON.parse(await skopeo("inspect", "--config", copied)) as Record<string, unknown>;
        expect(inspected).toMatchObject({ config: { Env: expect.arrayContaining(["EQUALS=a=b=c"]), User: "user" } });
        if (format !== "docker") {
          expect(await skopeo("inspect", "--raw", `${transport}:${path}`)).toContain(report.configDigest);
        }
      }
    }
  });

  test("gives the same bytes every time, into a file and into a stream", async () => {
    const record = await addRichImage();
    const directory = temporaryDirectory();
    for (const compression of ["none", "gzip", "zstd"] as const) {
      const sums = new Set<string>();
      for (const name of ["one", "two"]) {
        const path = join(directory, `${name}-${compression}`);
        await send(record, { to: { path }, compression });
        sums.add(sha256File(path));
      }
      const hash = createHash("sha256");
      let bytes = 0;
      const to = new Writable({
        write(chunk: Buffer, _encoding, callback) {
          hash.update(chunk);
          bytes += chunk.length;
          setImmediate(callback);
        },
      });
      const report = await send(record, { to, compression });
      expect(report.sizeBytes).toBe(bytes);
      expect(to.writableEnded).toBe(false);
      sums.add(hash.digest("hex"));
      expect(sums.size).toBe(1);
    }
    expectNothingLeft(inUse);
  });

  test("has the same layer in its archive once", async () => {
    const fill = (directory: string) => sh(`cd ${directory}; echo same > file; touch -d @0 file .`);
    const [one, two] = [await inUse.addLayer(fill), await inUse.addLayer(fill)];
    const record = await inUse.addImage({ layers: [one, two] });
    const path = join(temporaryDirectory(), "image.tar");
    await send(record, { to: { path } });
    expect(sh(`tar -tf ${path} | sort | uniq -d`)).toBe("");
    expect(sh(`tar -tf ${path} | grep -c blobs/sha256/.`).trim()).toBe("3");
    const streamed = join(temporaryDirectory(), "image.tar");
    const to = createWriteStream(streamed);
    await send(record, { to });
    await new Promise<void>((resolve) => to.end(resolve));
    expect(sha256File(streamed)).toBe(sha256File(path));
  });

  test("has a snapshot's own files as its uppermost layer", async () => {
    const lower = await inUse.addLayer((directory) => void tinyRootfs(directory));
    const disk = await inUse.addLayer((directory) => writeFileSync(join(directory, "mine"), "written later"));
    for (const id of [lower, disk]) {
      inUse.store.putLayer({
        version: 1,
        id,
        createdAt: new Date().toISOString(),
        diffId: null,
        sizeBytes: 1,
        from: "x",
      });
    }
    const record = await inUse.addImage({ kind: "snapshot", layers: [lower], disk });
    const path = join(temporaryDirectory(), "image.tar");
    await send(record, { to: { path } });
    const back = await importImage(contextOf(inUse), { path }, { owner: null });
    // Found again by what they hold, which is known of them since they left.
    expect(back).toMatchObject({ disk: null, layers: [disk, lower] });
  });

  test("that lies on the host's own files cannot leave", async () => {
    const record = { ...(await inUse.addImage()), below: { kind: "host" } as const };
    await expect(send(record, { to: { path: "/tmp/nowhere" } })).rejects.toMatchObject({ code: "invalid_argument" });
  });
});

describe("an export that fails", () => {
  test("leaves what was there before, and no temporary file", async () => {
    const record = await addRichImage();
    const directory = temporaryDirectory();
    const path = join(directory, "image.tar");
    writeFileSync(path, "before");
    const stop = new AbortController();
    await expect(
      send(record, { to: { path }, signal: stop.signal, onProgress: () => stop.abort() }),
    ).rejects.toMatchObject({ code: "canceled" });
    expect(readFileSync(path, "utf8")).toBe("before");
    expect(readdirSync(directory)).toEqual(["image.tar"]);
    await expect(send(record, { to: { path: join(directory, "no/such/image.tar") } })).rejects.toMatchObject({
      code: "file_not_found",
    });
    await expect(send(record, { to: { path: directory } })).rejects.toMatchObject({ code: "invalid_argument" });
    await expect(send(record, { to: { path: directory }, format: "oci-directory" })).rejects.toMatchObject({
      code: "file_exists",
    });
    expectNothingLeft(inUse);
  });

  test("notices that the reader of its stream has gone", async () => {
    const record = await addRichImage();
    for (const compression of ["none", "gzip"] as const) {
      const to = new PassThrough({ highWaterMark: 1024 });
      to.once("data", () => to.destroy());
      await expect(send(record, { to, compression })).rejects.toMatchObject({ code: "canceled" });
    }
    expectNothingLeft(inUse);
  });

  test("is refused before it begins if there is no room, and removes what it wrote if there is none later", async () => {
    const layer = await inUse.addLayer((directory) => sh(`head -c 20000000 /dev/urandom > ${directory}/random`));
    const zeros = await inUse.addLayer((directory) => sh(`head -c 60000000 /dev/urandom > ${directory}/random`));
    const directory = temporaryDirectory();
    sh(`mount -t tmpfs -o size=16m tmpfs ${directory}`);
    try {
      // Somebody else takes the room in the middle.
      const small = await inUse.addLayer((place) => sh(`head -c 12000000 /dev/urandom > ${place}/random`));
      for (const format of ["oci", "oci-directory"] as const) {
        const onProgress = () => writeFileSync(join(directory, "other"), Buffer.alloc(8_000_000));
        const to = { path: join(directory, "image") };
        const one = await inUse.addImage({ layers: [small] });
        await expect(send(one, { to, format, onProgress })).rejects.toMatchObject({ code: "no_space" });
        expect(readdirSync(directory)).toEqual(["other"]);
        rmSync(join(directory, "other"));
      }
      const path = join(directory, "image.tar");
      await expect(send(await inUse.addImage({ layers: [layer] }), { to: { path } })).rejects.toMatchObject({
        code: "no_space",
        details: { neededBytes: expect.any(Number), freeBytes: 16 * 1024 * 1024 },
      });
      // Compressed, it might have fitted.
      const record = await inUse.addImage({ layers: [zeros] });
      for (const format of ["oci", "oci-directory"] as const) {
        await expect(send(record, { to: { path }, format, compression: "zstd" })).rejects.toMatchObject({
          code: "no_space",
        });
        expect(readdirSync(directory)).toEqual([]);
      }
    } finally {
      sh(`umount ${directory}`);
    }
    expectNothingLeft(inUse);
  });

  test("sweeps what a killed one has left beside it", async () => {
    const directory = temporaryDirectory();
    const left = join(directory, ".holdfast-export.1.1.0123456789ab.1");
    mkdirSync(left);
    symlinkSync("/etc", join(left, "link"));
    writeFileSync(join(directory, ".holdfast-export.mine"), "not ours");
    await send(await inUse.addImage(), { to: { path: join(directory, "image.tar") } });
    expect(existsSync(left)).toBe(false);
    expect(readdirSync(directory)).toEqual([".holdfast-export.mine", "image.tar"]);
  });
});
