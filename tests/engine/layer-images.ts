/** Small images of layers for tests: programs of busybox, and what a test adds. */
import { execFileSync } from "node:child_process";
import { copyFileSync, mkdirSync, readdirSync, symlinkSync } from "node:fs";
import { join } from "node:path";
import { createLayerId, type Engine, type LayerId, type Sandbox, type SandboxSpec } from "@holdfast/engine";
import { onTestFinished } from "vitest";
import { SMALL_LIMITS, shell } from "../helpers/use-engine.js";

const PROGRAMS = [
  "sh",
  "cat",
  "ls",
  "pwd",
  "id",
  "echo",
  "sleep",
  "touch",
  "rm",
  "mkdir",
  "stat",
  "find",
  "ln",
  "true",
];

/** Removed when the test is done, unless it is gone by then. */
export function removeAfterTest(engine: () => Engine, id: LayerId): LayerId {
  onTestFinished(() => engine().layers.remove(id));
  return id;
}

/** A layer whose files are what `fill` puts there. */
export async function makeLayer(engine: Engine, fill: (directory: string) => void): Promise<LayerId> {
  const draft = await engine.layers.draft(createLayerId());
  fill(draft.directory);
  await draft.commit();
  return draft.id;
}

export function addBusybox(directory: string, bin = "bin"): void {
  mkdirSync(join(directory, bin), { recursive: true });
  copyFileSync("/bin/busybox", join(directory, bin, "busybox"));
  for (const name of PROGRAMS) symlinkSync("busybox", join(directory, bin, name));
}

/** Everything there is to say of the files below a directory, with the overlay's own attributes. */
export function listingOf(directory: string): string {
  return execFileSync("python3", ["-c", LISTING], { cwd: directory, encoding: "utf8" });
}

const LISTING = `
import hashlib, os, stat
for directory, names, files in os.walk("."):
  names.sort()
  for name in [""] + sorted(names + files):
    path = os.path.join(directory, name)
    if name in names: continue
    info = os.lstat(path)
    content = os.readlink(path) if stat.S_ISLNK(info.st_mode) else ""
    if stat.S_ISREG(info.st_mode): content = hashlib.sha256(open(path, "rb").read()).hexdigest()
    # An origin says which file of a lower layer it was copied from: a hint, by inode number.
    marks = {mark: os.getxattr(path, mark, follow_symlinks=False) for mark in os.listxattr(path, follow_symlinks=False)}
    marks.pop("trusted.overlay.origin", None)
    isdir = stat.S_ISDIR(info.st_mode)
    print(path, oct(info.st_mode), info.st_uid, info.st_gid, info.st_rdev, info.st_mtime_ns, "" if isdir else (info.st_size, info.st_nlink), content, marks)
`;

/** Runs a script as root on these layers, uppermost first, and makes what it wrote a layer. */
export async function runStep(engine: Engine, layers: readonly LayerId[], script: string): Promise<LayerId> {
  const sandbox = await engine.create({ limits: SMALL_LIMITS, image: { kind: "layers", layers } });
  const result = await shell(sandbox, script, { user: "0" });
  if (result.exitCode !== 0) throw new Error(`the step failed: ${result.message} ${result.stderr}`);
  return layerOf(engine, sandbox);
}

export async function layerOf(engine: Engine, sandbox: Sandbox): Promise<LayerId> {
  await sandbox.stop("the test");
  const id = createLayerId();
  await engine.layers.fromStopped(sandbox.id, id);
  return id;
}

export const onLayers = (...layers: LayerId[]): Pick<SandboxSpec, "image"> => ({ image: { kind: "layers", layers } });

/** Everything there is of layers, half made ones too. */
export function layersLeftIn(stateDirectory: string): string[] {
  return ["pool", "disks"].flatMap((pool) => {
    try {
      return readdirSync(join(stateDirectory, pool, "layers"));
    } catch {
      return [];
    }
  });
}
