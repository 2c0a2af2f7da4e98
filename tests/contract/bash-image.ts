/** An image to build templates on without a network: busybox and bash, root and nobody else, as `docker save` writes it. */
import { execFileSync } from "node:child_process";
import { createHash } from "node:crypto";
import { copyFileSync, mkdirSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { dirname, join } from "node:path";
import { afterAll } from "vitest";
import { tinyRootfs } from "../helpers/use-images.js";

/** What the server calls it. */
export const BASH_IMAGE = "contract/bash:1";

/** With the libraries that it needs, where it looks for them. */
function addBash(root: string): void {
  const libraries = execFileSync("ldd", ["/bin/bash"], { encoding: "utf8" }).match(/\/[^\s()]+/g) ?? [];
  for (const path of ["/bin/bash", ...libraries]) {
    const to = join(root, path);
    mkdirSync(dirname(to), { recursive: true });
    copyFileSync(path, to);
  }
}

function writeArchive(root: string, archive: string): void {
  const parts = mkdtempSync(join(tmpdir(), "holdfast-archive-"));
  try {
    const layer = join(parts, "layer.tar");
    execFileSync("tar", ["--numeric-owner", "-C", root, "-cf", layer, "."]);
    const diffId = `sha256:${createHash("sha256").update(readFileSync(layer)).digest("hex")}`;
    const config = {
      architecture: process.arch === "x64" ? "amd64" : process.arch,
      os: "linux",
      config: { Env: ["PATH=/usr/local/bin:/usr/bin:/bin", "FROM_IMAGE=yes"] },
      rootfs: { type: "layers", diff_ids: [diffId] },
    };
    writeFileSync(join(parts, "config.json"), JSON.stringify(config));
    writeFileSync(
      join(parts, "manifest.json"),
      JSON.stringify([{ Config: "config.json", RepoTags: [BASH_IMAGE], Layers: ["layer.tar"] }]),
    );
    execFileSync("tar", ["-C", parts, "-cf", archive, "manifest.json", "config.json", "layer.tar"]);
  } finally {
    rmSync(parts, { recursive: true, force: true });
  }
}

/** The server's settings that lead to it. Call it at the top of a file. */
export function useBashImage(): Record<string, string> {
  const directory = mkdtempSync(join(tmpdir(), "holdfast-bash-image-"));
  const root = tinyRootfs(mkdtempSync(join(directory, "root-")));
  rmSync(join(root, "home/user"), { recursive: true });
  writeFileSync(join(root, "etc/passwd"), "root:x:0:0:root:/root:/bin/bash\n");
  writeFileSync(join(root, "etc/group"), "root:x:0:\n");
  addBash(root);
  const archive = join(directory, "image.tar");
  writeArchive(root, archive);
  afterAll(() => rmSync(directory, { recursive: true, force: true }));
  return {
    HOLDFAST_SERVE_IMAGE_ALIASES: JSON.stringify({ [BASH_IMAGE]: archive, base: BASH_IMAGE }),
    HOLDFAST_SERVE_IMAGE_PULL: "false",
  };
}
