/** Bytes out of a sandbox and into it. */
import { spawn } from "node:child_process";
import { createReadStream, createWriteStream, existsSync, mkdirSync, rmSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { pipeline } from "node:stream/promises";
import type { Sandbox } from "@holdfast/engine";
import { type Bench, compareInTurns, type Figure, type Row, timed } from "./harness.js";
import { spawnAndWait } from "./processes.js";
import { ALL_CPUS, limitsWith } from "./sandboxes.js";

const MIB = 1024 * 1024;
const GIB = 1024 * MIB;

const withRate = (rows: readonly Row[], bytes: number): Row[] =>
  rows.map((row) => {
    const rate = (ms: number) => `${(bytes / MIB / (ms / 1000)).toFixed(0)} MiB/s`;
    const theirs = row.peer?.summary === undefined ? "" : ` against ${rate(row.peer.summary.median)}`;
    return { ...row, note: `${rate(row.ours.median)}${theirs}` };
  });

async function readOutput(sandbox: Sandbox, bytes: number): Promise<void> {
  const argv = ["head", "-c", String(bytes), "/dev/zero"];
  const command = await sandbox.start({ argv, whenReaderIsSlow: "block" });
  let seen = 0;
  for await (const event of command.output()) if (event.kind === "data") seen += event.bytes.length;
  await command.ended;
  if (seen !== bytes) throw new Error(`${seen} of ${bytes} bytes of output arrived`);
}

async function readPipe(bytes: number): Promise<void> {
  const child = spawn("head", ["-c", String(bytes), "/dev/zero"], { stdio: ["ignore", "pipe", "pipe"] });
  child.stderr.resume();
  let seen = 0;
  for await (const chunk of child.stdout) seen += (chunk as Buffer).length;
  if (seen !== bytes) throw new Error(`${seen} of ${bytes} bytes came through the pipe`);
}

/** `cp` copies to and from the file system that the sandbox's files are on. */
function poolDirectory(bench: Bench): string {
  const pool = ["pool", "disks"].map((name) => join(bench.stateDirectory, name)).find((path) => existsSync(path));
  if (pool === undefined) throw new Error("the pool of the state directory is not to be found");
  const directory = join(pool, "bench");
  mkdirSync(directory, { recursive: true });
  bench.onEnd(() => rmSync(directory, { recursive: true, force: true }));
  return directory;
}

async function files(bench: Bench, sandbox: Sandbox, bytes: number): Promise<Row[]> {
  const source = join(bench.scratchDirectory, "source");
  const target = join(bench.scratchDirectory, "target");
  const pooled = join(poolDirectory(bench), "file");
  writeFileSync(source, Buffer.alloc(bytes, "holdfast "));
  writeFileSync(pooled, Buffer.alloc(bytes, "holdfast "));
  const turns = { rounds: bench.quick ? 1 : 3, turns: bench.quick ? 1 : 2, roundMs: 1, signal: bench.signal };
  const size = `${bytes / MIB} MiB`;
  // A new file each time, in both: to replace one costs its removal as well.
  const writeOurs = async () => {
    const spent = await timed(() => sandbox.files.write("/tmp/written", createReadStream(source)));
    await sandbox.files.remove("/tmp/written");
    return spent;
  };
  const copyTo = async (from: string, to: string) => {
    const spent = await timed(() => spawnAndWait(["cp", "--reflink=never", from, to]));
    rmSync(to);
    return spent;
  };
  /** What cp's kernel work costs when this process carries the bytes: no sandbox could do better. */
  const pipeTo = async (from: string, to: string) => {
    const spent = await timed(() => pipeline(createReadStream(from), createWriteStream(to)));
    rmSync(to);
    return spent;
  };
  const readOurs = async () => {
    const spent = await timed(async () => {
      const { content } = await sandbox.files.read("/tmp/kept");
      await pipeline(content, createWriteStream(target));
    });
    rmSync(target);
    return spent;
  };
  await sandbox.files.write("/tmp/kept", createReadStream(source));
  const writes = await compareInTurns(
    `${size} from a file into a sandbox`,
    { name: "ours", measure: writeOurs },
    [
      { name: "cp", measure: () => copyTo(source, `${pooled}.copy`) },
      { name: "Node's pipeline", measure: () => pipeTo(source, `${pooled}.copy`) },
    ],
    turns,
  );
  const reads = await compareInTurns(
    `${size} from a sandbox into a file`,
    { name: "ours", measure: readOurs },
    [
      { name: "cp", measure: () => copyTo(pooled, target) },
      { name: "Node's pipeline", measure: () => pipeTo(pooled, target) },
    ],
    turns,
  );
  return [...withRate(writes, bytes), ...withRate(reads, bytes)];
}

export const throughput: Figure = {
  name: "throughput",
  title: "Bytes out of a sandbox and into it",
  async run(bench): Promise<Row[]> {
    const limits = limitsWith({ cpuMillis: ALL_CPUS, diskBytes: 8 * GIB });
    const sandbox = await bench.engine.create({ limits });
    try {
      const bytes = bench.quick ? GIB / 8 : GIB;
      const output = await compareInTurns(
        `${bytes / MIB} MiB of a command's output`,
        { name: "ours", measure: () => timed(() => readOutput(sandbox, bytes)) },
        [{ name: "pipe from a spawn", measure: () => timed(() => readPipe(bytes)) }],
        { rounds: bench.quick ? 1 : 3, turns: 1, roundMs: 1, signal: bench.signal, warmUp: false },
      );
      return [...withRate(output, bytes), ...(await files(bench, sandbox, bench.quick ? 32 * MIB : 256 * MIB))];
    } finally {
      await sandbox.kill("the benchmark");
    }
  },
};
