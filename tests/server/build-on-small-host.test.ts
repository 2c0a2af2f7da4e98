/** Builds on a host that carries hardly more than one of them. */
import { createReadStream, mkdtempSync, rmSync } from "node:fs";
import { join } from "node:path";
import { Readable } from "node:stream";
import { Holdfast, Image } from "@holdfast/sdk";
import { afterAll, beforeAll, expect, test } from "vitest";
import { writeTinyArchive } from "../e2e/tiny-archive.js";
import { OUR_DIRECTORIES } from "../helpers/leaks.js";
import { patienceMs } from "../helpers/scale.js";
import { makeSmallHost } from "../helpers/small-host.js";
import { useServer } from "../helpers/use-server.js";

const MIB = 1024 * 1024;
const small = makeSmallHost({ memoryBytes: 1024 * MIB, pids: 200 });
// Before the server's own, because hooks run in reverse.
afterAll(() => small.remove());
const server = useServer({ env: { HOLDFAST_CGROUP_PARENT: small.parent } });
const holdfast = () => new Holdfast({ url: server.url, apiKey: server.apiKey });

beforeAll(async () => {
  const directory = mkdtempSync(OUR_DIRECTORIES);
  try {
    const path = join(directory, "tiny.tar");
    writeTinyArchive(path);
    const archive = Readable.toWeb(createReadStream(path)) as ReadableStream<Uint8Array>;
    await holdfast().images.import(archive, { name: "tiny" });
  } finally {
    rmSync(directory, { recursive: true, force: true });
  }
}, patienceMs(60_000));

test("a step that copies from another stage does not wait for what it has itself", {
  timeout: patienceMs(60_000),
}, async () => {
  const builder = { memoryMb: 600, diskMb: 200, runtimeMemoryMb: 32, network: "off" } as const;
  const made = Image.from("tiny").builder(builder).run("mkdir /out; echo made > /out/file");
  const image = Image.from("tiny").builder(builder).copyFrom(made, "/out", "/got").run("cat /got/file");
  await holdfast().images.build(image, { name: "copied" });
  const sandbox = await holdfast().sandboxes.create({ image: "copied", memoryMb: 64 });
  expect((await sandbox.run(["/bin/cat", "/got/file"])).stdout).toBe("made\n");
  await sandbox.kill();
});
