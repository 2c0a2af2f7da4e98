/**
 * 512 MiB in every direction, in a process whose memory is watched: it grows by less than 64 MiB. It and the programs that it
 * starts have half of the image's size between them, files in memory included: who keeps more is killed.
 */
import { execFileSync } from "node:child_process";
import { createHash } from "node:crypto";
import {
  createReadStream,
  createWriteStream,
  existsSync,
  mkdirSync,
  mkdtempSync,
  rmdirSync,
  rmSync,
  statSync,
  writeFileSync,
} from "node:fs";
import { createServer, type Server } from "node:http";
import { join } from "node:path";
import { pipeline } from "node:stream/promises";
import { createGzip } from "node:zlib";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { runScript, type ScriptProcess } from "../helpers/built-engine.js";
import { OUR_DIRECTORIES } from "../helpers/leaks.js";
import { MIB } from "../helpers/registry-images.js";
import { buildImages } from "../helpers/use-images.js";

const SIZE_BYTES = 512 * MIB;
const MAX_GROWTH_BYTES = 64 * MIB;
const CAP_BYTES = 256 * MIB;
const SLOW_MS = 300_000;

interface Outcome {
  readonly grownBytes: number;
  readonly ms: number;
  readonly error?: { readonly code: string; readonly message: string };
  readonly result: { readonly id: string; readonly sizeBytes: number };
}

/** A cgroup that gives no more memory than that. */
function makeCap(): string {
  const name = `${process.env.HOLDFAST_CGROUP_PARENT ?? "holdfast-test"}-cap-${process.pid}`;
  const v1 = join("/sys/fs/cgroup/memory", name);
  if (existsSync("/sys/fs/cgroup/memory/memory.limit_in_bytes")) {
    mkdirSync(v1);
    writeFileSync(join(v1, "memory.swappiness"), "0");
    writeFileSync(join(v1, "memory.limit_in_bytes"), String(CAP_BYTES));
    return v1;
  }
  const v2 = join("/sys/fs/cgroup", name);
  writeFileSync("/sys/fs/cgroup/cgroup.subtree_control", "+memory");
  mkdirSync(v2);
  writeFileSync(join(v2, "memory.max"), String(CAP_BYTES));
  if (existsSync(join(v2, "memory.swap.max"))) writeFileSync(join(v2, "memory.swap.max"), "0");
  return v2;
}

let cap: string;
let directory: string;
let mover: ScriptProcess;

async function move(job: string, options: Record<string, unknown> = {}): Promise<Outcome> {
  mover.child.stdin?.write(`${JSON.stringify({ job, ...options })}\n`);
  const outcome = await mover.next<Outcome>();
  expect(outcome.error).toBeUndefined();
  return outcome;
}

function expectSmall({ grownBytes }: Outcome): void {
  expect(grownBytes).toBeLessThan(MAX_GROWTH_BYTES);
}

beforeAll(async () => {
  buildImages();
  directory = mkdtempSync(OUR_DIRECTORIES);
  // Half of it cannot be compressed.
  execFileSync("sh", [
    "-euc",
    `cd ${directory}; mkdir root state; head -c ${SIZE_BYTES / 2} /dev/urandom > root/random
     head -c ${SIZE_BYTES / 2} /dev/zero > root/zeros; tar -C root -cf layer.tar .; rm -r root`,
  ]);
  cap = makeCap();
  mover = runScript(
    "oci-move.mjs",
    [join(directory, "state")],
    ["sh", "-c", 'echo $$ >"$0/cgroup.procs"; exec "$@"', cap],
  );
  await mover.next();
  execFileSync("python3", ["-c", MAKE_LAYOUT, directory]);
}, SLOW_MS);

afterAll(async () => {
  mover.child.stdin?.end();
  await mover.exited;
  rmdirSync(cap);
  rmSync(directory, { recursive: true, force: true });
});

/** An OCI layout around layer.tar, as a tar: without holding it either. */
const MAKE_LAYOUT = `
import hashlib, json, os, subprocess, sys
os.chdir(sys.argv[1])
os.makedirs("layout/blobs/sha256")
def digest(path): return subprocess.check_output(["sha256sum", path]).split()[0].decode()
def put(value):
    text = json.dumps(value).encode()
    name = hashlib.sha256(text).hexdigest()
    open(f"layout/blobs/sha256/{name}", "wb").write(text)
    return {"digest": f"sha256:{name}", "size": len(text)}
size, name = os.path.getsize("layer.tar"), digest("layer.tar")
os.rename("layer.tar", f"layout/blobs/sha256/{name}")
v1 = "application/vnd.oci.image."
arch = {"x86_64": "amd64", "aarch64": "arm64"}[os.uname().machine]
config = put({"architecture": arch, "os": "linux", "config": {}, "rootfs": {"type": "layers", "diff_ids": [f"sha256:{name}"]}})
manifest = put({"schemaVersion": 2, "config": {"mediaType": v1 + "config.v1+json", **config},
    "layers": [{"mediaType": v1 + "layer.v1.tar", "digest": f"sha256:{name}", "size": size}]})
entry = {"mediaType": v1 + "manifest.v1+json", **manifest, "annotations": {"org.opencontainers.image.ref.name": "big:1"}}
json.dump({"schemaVersion": 2, "manifests": [entry]}, open("layout/index.json", "w"))
open("layout/oci-layout", "w").write('{"imageLayoutVersion":"1.0.0"}')
subprocess.check_call(["tar", "-C", "layout", "-cf", "in.tar", "."])
subprocess.check_call(["rm", "-r", "layout"])
`;

const path = (name: string): string => join(directory, name);

describe("memory does not grow with an image", () => {
  test(
    "that comes in from a file, from a stream, and compressed as a whole",
    async () => {
      expectSmall(await move("import", { path: path("in.tar") }));
      await move("remove", { image: "big:1" });
      expectSmall(await move("importStream", { path: path("in.tar") }));
      await pipeline(createReadStream(path("in.tar")), createGzip({ level: 0 }), createWriteStream(path("in.tar.gz")));
      await move("remove", { image: "big:1" });
      expectSmall(await move("import", { path: path("in.tar.gz") }));
      // What is here already is read all the same.
      expectSmall(await move("import", { path: path("in.tar") }));
      rmSync(path("in.tar.gz"));
    },
    SLOW_MS,
  );

  test.each(["none", "gzip", "zstd"])(
    "that goes out into a file and into a stream, compressed with %s",
    async (compression) => {
      const image = "big:1";
      const toFile = await move("export", { image, path: path("out.tar"), format: "docker", compression });
      expectSmall(toFile);
      expect(statSync(path("out.tar")).size).toBe(toFile.result.sizeBytes);
      const toStream = await move("exportStream", { image, format: "docker", compression });
      expectSmall(toStream);
      expect(toStream.result).toEqual(toFile.result);
      // And what came out compressed comes in again.
      if (compression !== "none") expectSmall(await move("import", { path: path("out.tar") }));
      rmSync(path("out.tar"));
    },
    SLOW_MS,
  );

  test(
    "that is delivered over docker's API",
    async () => {
      const { result } = await move("export", { image: "big:1", path: path("out.tar"), format: "docker" });
      const received: { bytes: number; sum: string; length: number }[] = [];
      const server: Server = createServer((request, response) => {
        const hash = createHash("sha256");
        let bytes = 0;
        request.on("data", (chunk: Buffer) => {
          // Header, padding and end are what is around the file.
          hash.update(chunk.subarray(Math.max(0, 512 - bytes), Math.max(0, 512 + result.sizeBytes - bytes)));
          bytes += chunk.length;
        });
        request.on("end", () => {
          received.push({ bytes, sum: hash.digest("hex"), length: Number(request.headers["content-length"]) });
          response.end();
        });
      });
      const socketPath = path("docker.sock");
      await new Promise<void>((resolve) => server.listen(socketPath, resolve));
      try {
        const target = { container: "c", path: "/tmp", socketPath };
        expectSmall(await move("deliver", { image: "big:1", ...target }));
      } finally {
        server.close();
      }
      const sizeBytes = 512 + Math.ceil(result.sizeBytes / 512) * 512 + 1024;
      const sum = createHash("sha256");
      for await (const chunk of createReadStream(path("out.tar"))) sum.update(chunk as Buffer);
      expect(received).toEqual([{ bytes: sizeBytes, length: sizeBytes, sum: sum.digest("hex") }]);
    },
    SLOW_MS,
  );
});
