import { randomBytes } from "node:crypto";
import type { Volume } from "e2b";
import { expect, onTestFinished } from "vitest";
import { type Cases, type Cell, failure, sha256 } from "../cell.js";

const MIB = 1024 * 1024;
const BIG_MIB = 100;

/** Without a domain the SDK must be told where a volume's content is, here or by E2B_VOLUME_API_URL. */
const place = ({ way, server }: Pick<Cell, "way" | "server">) => (way === "header" ? { apiUrl: server.url } : {});

async function createVolume({ client }: Pick<Cell, "client">): Promise<Volume> {
  const volume = await client.Volume.create(`v-${randomBytes(6).toString("hex")}`);
  onTestFinished(async () => {
    await client.Volume.destroy(volume.volumeId);
  });
  return volume;
}

function block(index: number): Uint8Array {
  return new Uint8Array(MIB).fill(index % 251);
}

export const volumeCases: Cases = {
  "a volume is made, found, listed and destroyed": async (cell) => {
    const { Volume } = cell.client;
    const volume = await createVolume(cell);
    expect(volume.volumeId).toMatch(/^v[a-z0-9]{20}$/);
    expect(volume.token).toBeTruthy();
    const info = await Volume.getInfo(volume.volumeId);
    expect(info).toEqual({
      volumeId: volume.volumeId,
      name: volume.name,
      token: volume.token,
      domain: cell.server.domain ?? undefined,
    });
    expect(await Volume.list()).toContainEqual({ volumeId: volume.volumeId, name: volume.name });
    const again = await Volume.connect(volume.volumeId);
    expect([again.name, again.token]).toEqual([volume.name, volume.token]);
    await volume.writeFile("/file", "here", place(cell));
    expect(await again.readFile("/file", place(cell))).toBe("here");

    expect(await Volume.destroy(volume.volumeId)).toBe(true);
    expect(await Volume.destroy(volume.volumeId)).toBe(false);
    expect(await failure(Volume.connect(volume.volumeId))).toBeInstanceOf(cell.sdk.VolumeNotFoundError);
    expect((await Volume.list()).map(({ volumeId }) => volumeId)).not.toContain(volume.volumeId);
    expect(await failure(volume.readFile("/file", place(cell)))).toBeInstanceOf(cell.sdk.VolumeError);
  },

  "a name is taken once, and is a plain one": async (cell) => {
    const volume = await createVolume(cell);
    expect((await failure(cell.client.Volume.create(volume.name))).message).toMatch(/^409: .*already/);
    for (const name of ["", "a b", "a/b", "ü", "a".repeat(129)]) {
      const error = await failure(cell.client.Volume.create(name));
      expect(error).toBeInstanceOf(cell.sdk.VolumeError);
      expect(error.message).toMatch(/^400: name/);
    }
  },

  "files are written and read as text, bytes, blob and stream": async (cell) => {
    const volume = await createVolume(cell);
    const at = place(cell);
    const bytes = new Uint8Array(randomBytes(300_000));
    const written = await volume.writeFile("/text", "héllo\n", at);
    expect(written).toMatchObject({ name: "text", path: "/text", type: "file", size: 7, uid: 1000, gid: 1000 });
    expect(Math.abs(Date.now() - written.mtime.getTime())).toBeLessThan(60_000);
    expect(await volume.readFile("text", at)).toBe("héllo\n");
    await volume.writeFile("/bytes", bytes.buffer, at);
    expect(sha256(await volume.readFile("/bytes", { format: "bytes", ...at }))).toBe(sha256(bytes));
    expect(await (await volume.readFile("/bytes", { format: "blob", ...at })).arrayBuffer()).toEqual(bytes.buffer);
    const chunks: Uint8Array[] = [];
    for await (const chunk of await volume.readFile("/bytes", { format: "stream", ...at })) chunks.push(chunk);
    expect(sha256(Buffer.concat(chunks))).toBe(sha256(bytes));
    await volume.writeFile("/text", new Blob(["second"]), { mode: 0o600, uid: 0, gid: 5, ...at });
    expect(await volume.readFile("/text", at)).toBe("second");
    expect(await volume.getInfo("/text", at)).toMatchObject({ mode: 0o600, uid: 0, gid: 5, size: 6 });
    await volume.writeFile("/empty", "", at);
    expect(await volume.readFile("/empty", at)).toBe("");
  },

  "directories are made, listed and removed": async (cell) => {
    const volume = await createVolume(cell);
    const at = place(cell);
    expect(await volume.list("/", at)).toEqual([]);
    expect(await volume.makeDir("/a", at)).toMatchObject({ name: "a", path: "/a", type: "directory", uid: 1000 });
    expect((await failure(volume.makeDir("/a", at))).message).toMatch(/^409/);
    expect(await failure(volume.makeDir("/b/c/d", at))).toBeInstanceOf(cell.sdk.VolumePathNotFoundError);
    expect(await volume.makeDir("/b/c/d", { force: true, mode: 0o700, ...at })).toMatchObject({ mode: 0o700 });
    expect(await failure(volume.writeFile("/e/f", "x", at))).toBeInstanceOf(cell.sdk.VolumePathNotFoundError);
    await volume.writeFile("/e/f", "x", { force: true, ...at });
    const names = async (path: string, depth?: number) =>
      (await volume.list(path, depth === undefined ? at : { depth, ...at })).map((entry) => entry.path).sort();
    expect(await names("/")).toEqual(["/a", "/b", "/e"]);
    expect(await names("/", 2)).toEqual(["/a", "/b", "/b/c", "/e", "/e/f"]);
    expect(await names("/b", 9)).toEqual(["/b/c", "/b/c/d"]);
    expect(await volume.exists("/e/f", at)).toBe(true);
    await volume.remove("/e", at);
    expect(await volume.exists("/e/f", at)).toBe(false);
    for (const call of [
      () => volume.list("/e", at),
      () => volume.remove("/e", at),
      () => volume.getInfo("/e", at),
      () => volume.readFile("/e/f", at),
      () => volume.readFile("/e/f", { format: "stream", ...at }),
      () => volume.updateMetadata("/e", { uid: 1 }, at),
    ]) {
      expect(await failure(call())).toBeInstanceOf(cell.sdk.VolumePathNotFoundError);
    }
    expect((await failure(volume.readFile("/b", at))).message).toMatch(/^400: .*directory/);
    expect((await failure(volume.remove("/", at))).message).toMatch(/^400: path/);
    expect(await volume.getInfo("/", at)).toMatchObject({ name: "/", path: "/", type: "directory", mode: 0o777 });
  },

  "owner and mode are changed": async (cell) => {
    const volume = await createVolume(cell);
    const at = place(cell);
    await volume.writeFile("/file", "x", at);
    expect(await volume.updateMetadata("/file", { mode: 0o640 }, at)).toMatchObject({ mode: 0o640, uid: 1000 });
    expect(await volume.updateMetadata("/file", { uid: 0, gid: 27 }, at)).toMatchObject({ uid: 0, gid: 27 });
    expect(await volume.updateMetadata("/file", {}, at)).toMatchObject({ mode: 0o640, uid: 0, gid: 27 });
    expect((await failure(volume.updateMetadata("/file", { mode: 0o10000 }, at))).message).toMatch(/^400: mode/);
    expect((await failure(volume.updateMetadata("/file", { uid: 70_000 }, at))).message).toMatch(/^400: uid/);
  },

  "sandboxes share a volume, and see each other's writes at once": async (cell) => {
    const volume = await createVolume(cell);
    const at = place(cell);
    await volume.writeFile("/from-outside", "outside", at);
    const one = await cell.create({ volumeMounts: { "/data": volume } });
    const two = await cell.create({ volumeMounts: { "/srv/deep/shared": volume.name } });
    expect((await one.getInfo()).volumeMounts).toEqual([{ name: volume.name, path: "/data" }]);
    const listed = await cell.client.Sandbox.list({ limit: 100 }).nextItems();
    expect(listed.find(({ sandboxId }) => sandboxId === two.sandboxId)?.volumeMounts).toEqual([
      { name: volume.name, path: "/srv/deep/shared" },
    ]);
    expect((await one.commands.run("cat /data/from-outside")).stdout).toBe("outside");
    await one.commands.run("echo one >/data/from-one");
    expect((await two.commands.run("cat /srv/deep/shared/from-one; stat -c %u /srv/deep/shared/from-one")).stdout).toBe(
      "one\n1000\n",
    );
    await two.files.write("/srv/deep/shared/from-two", "two");
    expect(await one.files.read("/data/from-two")).toBe("two");
    expect(await volume.readFile("/from-two", at)).toBe("two");
    await volume.writeFile("/from-one", "changed", at);
    expect((await one.commands.run("cat /data/from-one && rm /data/from-one")).stdout).toBe("changed");
    expect(await volume.exists("/from-one", at)).toBe(false);

    expect((await failure(cell.client.Volume.destroy(volume.volumeId))).message).toMatch(/^409: .*in use/);
    await one.kill();
    await two.kill();
    expect(await volume.readFile("/from-two", at)).toBe("two");
  },

  "a volume survives a pause of its sandbox, with and without memory": async (cell) => {
    const volume = await createVolume(cell);
    const sandbox = await cell.create({ volumeMounts: { "/data": volume } });
    await sandbox.commands.run("echo before >/data/file");
    for (const keepMemory of [true, false]) {
      await sandbox.pause({ keepMemory });
      expect((await failure(cell.client.Volume.destroy(volume.volumeId))).message).toMatch(/^409/);
      await volume.writeFile("/meanwhile", String(keepMemory), place(cell));
      await sandbox.connect();
      expect((await sandbox.commands.run("cat /data/file /data/meanwhile")).stdout).toBe(`before\n${keepMemory}`);
      expect((await sandbox.getInfo()).volumeMounts).toEqual([{ name: volume.name, path: "/data" }]);
    }
  },

  "a fork has its original's volumes, an image of its files has none": async (cell) => {
    const volume = await createVolume(cell);
    const sandbox = await cell.create({ volumeMounts: { "/data": volume } });
    await sandbox.commands.run("echo shared >/data/file; echo own >/home/user/file");
    const [fork] = await sandbox.fork();
    if (!(fork instanceof cell.sdk.Sandbox)) throw new Error(`the fork failed: ${String(fork)}`);
    onTestFinished(async () => {
      await fork.kill();
    });
    expect((await fork.getInfo()).volumeMounts).toEqual([{ name: volume.name, path: "/data" }]);
    expect((await fork.commands.run("cat /data/file /home/user/file; echo fork >/data/file")).stdout).toBe(
      "shared\nown\n",
    );
    expect((await sandbox.commands.run("cat /data/file")).stdout).toBe("fork\n");

    const { snapshotId } = await sandbox.createSnapshot();
    onTestFinished(async () => {
      await cell.client.Sandbox.deleteSnapshot(snapshotId);
    });
    const copy = await cell.client.Sandbox.create(snapshotId, { timeoutMs: 60_000 });
    onTestFinished(async () => {
      await copy.kill();
    });
    expect((await copy.getInfo()).volumeMounts).toEqual([]);
    expect((await copy.commands.run("cat /home/user/file; ls -A /data")).stdout).toBe("own\n");
  },

  "a volume that there is not, and a place that is none, are refused by name": async (cell) => {
    const volume = await createVolume(cell);
    const missing = await failure(cell.client.Sandbox.create({ volumeMounts: { "/data": "no-such-volume" } }));
    expect(missing.message).toMatch(/^404: volumeMounts\[0\]\.name: .*no-such-volume/);
    const wrong = ["data", "/", "/proc/x", "/dev", "/sys", "/a/../b", "/a/", "/usr/new", "/etc/passwd", "/var/run/x"];
    for (const path of wrong) {
      const error = await failure(cell.client.Sandbox.create({ volumeMounts: { [path]: volume } }));
      expect(error.message, path).toMatch(/^400: .*(path|mount)/);
    }
    const nested = cell.client.Sandbox.create({ volumeMounts: { "/a": volume, "/a/b": volume } });
    expect((await failure(nested)).message).toMatch(/^400: volumeMounts\[1\]\.path/);
  },

  "E2B_VOLUME_API_URL tells where the content is": {
    in: ({ way }) => way === "header",
    run: async (cell) => {
      const volume = await createVolume(cell);
      process.env.E2B_VOLUME_API_URL = cell.server.url;
      onTestFinished(() => {
        delete process.env.E2B_VOLUME_API_URL;
      });
      await volume.writeFile("/file", "by the environment");
      expect(await volume.readFile("/file")).toBe("by the environment");
    },
  },

  "100 MB stream up and down": {
    timeoutMs: 120_000,
    run: async (cell) => {
      const volume = await createVolume(cell);
      const at = place(cell);
      let index = 0;
      const upload = new ReadableStream<Uint8Array>({
        pull(controller) {
          if (index === BIG_MIB) return controller.close();
          controller.enqueue(block(index++));
        },
      });
      expect(await volume.writeFile("/big", upload, at)).toMatchObject({ size: BIG_MIB * MIB });
      let offset = 0;
      for await (const chunk of await volume.readFile("/big", { format: "stream", ...at })) {
        const expected = block(Math.floor(offset / MIB))[0];
        if (chunk[0] !== expected) throw new Error(`at ${offset}: ${chunk[0]} instead of ${expected}`);
        offset += chunk.length;
      }
      expect(offset).toBe(BIG_MIB * MIB);
    },
  },
};
