/** A small image as `docker save` would write it: busybox, and a user. */
import { execFileSync } from "node:child_process";
import { createHash } from "node:crypto";
import { mkdirSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { tinyRootfs } from "../helpers/use-images.js";

/** Writes it to `path`, named `tiny:latest`. */
export function writeTinyArchive(path: string): void {
  const work = mkdtempSync(join(tmpdir(), "holdfast-tiny-"));
  try {
    const root = join(work, "root");
    mkdirSync(root);
    tinyRootfs(root);
    const layer = join(work, "layer.tar");
    execFileSync("tar", ["-C", root, "--sort=name", "--mtime=@0", "-cf", layer, "."]);
    const digest = createHash("sha256").update(readFileSync(layer)).digest("hex");
    const config = {
      architecture: process.arch === "x64" ? "amd64" : process.arch,
      os: "linux",
      config: { Env: ["PATH=/bin", "TINY=yes"], Cmd: ["/bin/echo", "tiny"] },
      rootfs: { type: "layers", diff_ids: [`sha256:${digest}`] },
    };
    writeFileSync(join(work, "config.json"), JSON.stringify(config));
    const manifest = [{ Config: "config.json", RepoTags: ["tiny:latest"], Layers: ["layer.tar"] }];
    writeFileSync(join(work, "manifest.json"), JSON.stringify(manifest));
    execFileSync("tar", ["-C", work, "-cf", path, "manifest.json", "config.json", "layer.tar"]);
  } finally {
    rmSync(work, { recursive: true, force: true });
  }
}
