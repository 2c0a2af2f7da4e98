// The parts of the virtual machine that are made once and cached: Debian's
// cloud kernel, a root file system with its packages, an initramfs with the
// disk drivers, and an image with the host's Node.js.
import { createHash, randomBytes } from "node:crypto";
import { constants as fsConstants } from "node:fs";
import fs from "node:fs/promises";
import os from "node:os";
import path from "node:path";
import { fileURLToPath } from "node:url";
import { capture, run, say } from "./process.mjs";

const here = path.dirname(fileURLToPath(import.meta.url));

const SUITE = "bookworm";
/** Part of the cache key: raise it when the recipe below changes what is made. */
const RECIPE = 2;
/** Size of the root disk. The file is sparse; tests may fill it in the VM. */
const DISK_SIZE = "16G";
/** Modules (with what they depend on) that the initramfs loads to reach the root disk. */
const BOOT_MODULES = ["virtio_pci", "virtio_blk"];
/** Libraries that the Node.js binary finds in the root file system itself. */
const BASE_LIBRARIES = /^(linux-vdso|ld-linux|libc|libm|libdl|librt|libpthread|libstdc\+\+|libgcc_s|libatomic)[.-]/;
/** Caches of other keys are removed when unused for this long. */
const STALE_MS = 14 * 24 * 3600 * 1000;

const TOOLS = {
  "qemu-system-x86_64": ["qemu-system-x86", "runs the virtual machine (software emulation)"],
  mksquashfs: ["squashfs-tools", "packs the checkout and Node.js for the machine"],
  setpriv: ["util-linux", "ends QEMU if this script is killed"],
  mmdebstrap: ["mmdebstrap", "makes the root file system from Debian packages"],
  mke2fs: ["e2fsprogs", "makes the root disk image"],
};
const BUILD_TOOLS = ["mmdebstrap", "mke2fs"];

async function exists(file, mode = fsConstants.F_OK) {
  return fs.access(file, mode).then(
    () => true,
    () => false,
  );
}

async function onPath(command) {
  const dirs = [...(process.env.PATH ?? "").split(":"), "/usr/sbin", "/sbin"].filter(Boolean);
  for (const dir of dirs) {
    if (await exists(path.join(dir, command), fsConstants.X_OK)) return true;
  }
  return false;
}

/** Installs the Debian packages of the tools that are missing. */
async function ensureTools(commands) {
  const missing = [];
  for (const command of commands) {
    if (!(await onPath(command))) missing.push(TOOLS[command]);
  }
  const needsKeyring =
    commands.includes("mmdebstrap") && !(await exists("/usr/share/keyrings/debian-archive-keyring.gpg"));
  if (needsKeyring) missing.push(["debian-archive-keyring", "verifies Debian’s packages"]);
  if (missing.length === 0) return;
  for (const [name, why] of missing) say(`installing ${name}: ${why}`);
  const names = missing.map(([name]) => name);
  const hint = `apt-get install --no-install-recommends ${names.join(" ")}`;
  if (process.getuid() !== 0 || !(await onPath("apt-get"))) {
    throw new Error(`cannot install packages here (needs root and apt-get); run: ${hint}`);
  }
  const env = { ...process.env, DEBIAN_FRONTEND: "noninteractive" };
  const quiet = ["-qq", "-o", "DPkg::Lock::Timeout=300", "-o", "Dpkg::Use-Pty=0"];
  // A failing third-party source must not stop us: the installation decides.
  await run("apt-get", [...quiet, "update"], { env }).catch((error) => say(`warning: ${error.message}`));
  await run("apt-get", [...quiet, "install", "-y", "--no-install-recommends", ...names], { env });
}

export function cacheDirectory() {
  if (process.env.HOLDFAST_VM_CACHE) return path.resolve(process.env.HOLDFAST_VM_CACHE);
  const base = process.env.XDG_CACHE_HOME || path.join(os.homedir(), ".cache");
  return path.join(base, "holdfast", "vm");
}

/** Is the process that owns a `NAME-PID-RANDOM` directory gone? */
function ownerIsGone(name) {
  const pid = Number(name.split("-").at(-2));
  if (!Number.isInteger(pid) || pid <= 0) return false;
  try {
    process.kill(pid, 0);
    return false;
  } catch (error) {
    return error.code === "ESRCH";
  }
}

/** A private directory whose name tells its owner, so that sweep() can tell leftovers. */
export async function ownDirectory(parent, prefix) {
  const dir = path.join(parent, `${prefix}-${process.pid}-${randomBytes(4).toString("hex")}`);
  await fs.mkdir(dir, { recursive: true, mode: 0o700 });
  return dir;
}

/** Removes the directories that a killed run of this script left behind. */
export async function sweep(parent, prefix) {
  const names = await fs.readdir(parent).catch(() => []);
  for (const name of names) {
    if (name.startsWith(`${prefix}-`) && ownerIsGone(name)) {
      await fs.rm(path.join(parent, name), { recursive: true, force: true }).catch(() => {}); // the next run tries again
    }
  }
}

/** Writes a cpio archive ("newc") as the kernel unpacks it. Entries: {name, data} or {name} for a directory. */
export function cpio(entries) {
  const parts = [];
  const pad = (length) => Buffer.alloc((4 - (length % 4)) % 4);
  let inode = 1;
  const add = (name, mode, data) => {
    const nameBytes = Buffer.from(`${name}\0`);
    const fields = [inode++, mode, 0, 0, 1, 0, data.length, 0, 0, 0, 0, nameBytes.length, 0];
    const header = Buffer.from(`070701${fields.map((n) => n.toString(16).padStart(8, "0")).join("")}`);
    parts.push(header, nameBytes, pad(header.length + nameBytes.length), data, pad(data.length));
  };
  for (const { name, data } of entries) {
    if (data === undefined) add(name, 0o040755, Buffer.alloc(0));
    else add(name, 0o100755, data);
  }
  inode = 0;
  add("TRAILER!!!", 0, Buffer.alloc(0));
  return Buffer.concat(parts);
}

/** The boot modules and what they depend on, in the order to load them. */
async function bootModules(moduleDir) {
  const needs = new Map();
  const byName = new Map();
  for (const line of (await fs.readFile(path.join(moduleDir, "modules.dep"), "utf8")).split("\n")) {
    const [file, rest] = line.split(":");
    if (rest === undefined) continue;
    needs.set(file, rest.trim().split(/\s+/).filter(Boolean));
    byName.set(
      path
        .basename(file)
        .replace(/\.ko(\..*)?$/, "")
        .replaceAll("-", "_"),
      file,
    );
  }
  const order = [];
  const visit = (file) => {
    if (order.includes(file)) return;
    needs.get(file)?.forEach(visit);
    order.push(file);
  };
  for (const name of BOOT_MODULES) {
    const file = byName.get(name);
    if (file) visit(file); // else it is built into the kernel
  }
  return order;
}

async function buildBase(build, packages) {
  const root = path.join(build, "root");
  const args = [
    "--mode=root",
    "--variant=essential",
    "--quiet",
    "--architectures=amd64",
    // A merged /usr from the start; otherwise the package usrmerge would merge it, and bring all of Perl.
    "--hook-dir=/usr/share/mmdebstrap/hooks/merged-usr",
    `--include=${["usr-is-merged", ...packages].join(",")}`,
    "--dpkgopt=path-exclude=/usr/share/man/*",
    "--dpkgopt=path-exclude=/usr/share/doc/*",
    "--dpkgopt=path-exclude=/usr/share/locale/*",
    `--customize-hook=sh ${JSON.stringify(path.join(here, "install-kernel.sh"))} "$1"`,
    SUITE,
    root,
  ];
  if (process.env.HOLDFAST_VM_MIRROR) args.push(process.env.HOLDFAST_VM_MIRROR);
  await run("mmdebstrap", args, { env: { ...process.env, TMPDIR: build } });

  const [version] = await fs.readdir(path.join(root, "lib/modules"));
  const moduleDir = path.join(root, "lib/modules", version);
  const order = await bootModules(moduleDir);
  const entries = [{ name: "bin" }, { name: "modules" }];
  entries.push({ name: "bin/busybox", data: await fs.readFile(path.join(root, "bin/busybox")) });
  for (const file of order) {
    entries.push({ name: `modules/${path.basename(file)}`, data: await fs.readFile(path.join(moduleDir, file)) });
  }
  entries.push({ name: "modules/order", data: Buffer.from(order.map((f) => `${path.basename(f)}\n`).join("")) });
  await fs.writeFile(path.join(build, "initramfs"), cpio(entries));
  await fs.rename(path.join(root, "boot/vmlinuz"), path.join(build, "vmlinuz"));

  const disk = path.join(build, "root.ext4");
  await fs.writeFile(disk, "");
  await run("mke2fs", [
    "-q",
    "-F",
    "-t",
    "ext4",
    "-O",
    "^has_journal",
    "-m",
    "0",
    "-L",
    "holdfast",
    "-E",
    "lazy_itable_init=1,nodiscard,root_owner=0:0",
    "-d",
    root,
    disk,
    DISK_SIZE,
  ]);
  await fs.rm(root, { recursive: true, force: true });
  await fs.writeFile(path.join(build, "manifest.json"), `${JSON.stringify({ kernel: version, packages }, null, 2)}\n`);
}

/** The shared libraries of a binary that the root file system does not have. */
async function extraLibraries(binary) {
  const text = await capture("ldd", [binary]).catch(() => "");
  if (/not found/.test(text)) throw new Error(`${binary} lacks shared libraries:\n${text}`);
  return [...text.matchAll(/^\s*(\S+) => (\/\S+)/gm)]
    .map(([, name, file]) => ({ name, file }))
    .filter(({ name }) => !BASE_LIBRARIES.test(name));
}

export const PACK = ["-noI", "-noD", "-noF", "-noX", "-no-xattrs", "-all-root", "-no-progress", "-quiet", "-noappend"];

async function ensureNode(cache) {
  const binary = await fs.realpath(process.execPath);
  const { size, mtimeMs } = await fs.stat(binary);
  const key = createHash("sha256")
    .update(JSON.stringify([process.version, size, mtimeMs]))
    .digest("hex")
    .slice(0, 16);
  const image = path.join(cache, `node-${key}.squashfs`);
  if (await exists(image)) return image;
  const build = await ownDirectory(cache, "build");
  try {
    await fs.mkdir(path.join(build, "node/bin"), { recursive: true });
    await fs.mkdir(path.join(build, "node/lib"));
    await fs.copyFile(binary, path.join(build, "node/bin/node"));
    await fs.chmod(path.join(build, "node/bin/node"), 0o755);
    for (const { name, file } of await extraLibraries(binary)) {
      await fs.copyFile(file, path.join(build, "node/lib", name));
    }
    await run("mksquashfs", [path.join(build, "node"), path.join(build, "image"), ...PACK]);
    await fs.rename(path.join(build, "image"), image);
  } finally {
    await fs.rm(build, { recursive: true, force: true });
  }
  return image;
}

async function dropStale(cache, keep) {
  for (const name of await fs.readdir(cache)) {
    if (!/^(base|node)-[0-9a-f]{16}(\.squashfs)?$/.test(name)) continue;
    const file = path.join(cache, name);
    if (keep.includes(file)) {
      await fs.utimes(file, new Date(), new Date());
      continue;
    }
    const { mtimeMs } = await fs.stat(file);
    if (Date.now() - mtimeMs > STALE_MS) await fs.rm(file, { recursive: true, force: true });
  }
}

/** Makes what is not cached yet; gives the paths of all parts. */
export async function ensureImages({ rebuild }) {
  if (process.arch !== "x64" || process.platform !== "linux") {
    throw new Error("the virtual machine needs Linux on x86-64: it runs this host’s Node.js binary");
  }
  const cache = cacheDirectory();
  await fs.mkdir(cache, { recursive: true });
  await sweep(cache, "build");

  const packages = (await fs.readFile(path.join(here, "packages.txt"), "utf8"))
    .split("\n")
    .map((line) => line.replace(/#.*/, "").trim())
    .filter(Boolean)
    .sort();
  const hook = await fs.readFile(path.join(here, "install-kernel.sh"), "utf8");
  const key = createHash("sha256")
    .update(JSON.stringify([RECIPE, SUITE, DISK_SIZE, BOOT_MODULES, packages, hook]))
    .digest("hex")
    .slice(0, 16);
  const base = path.join(cache, `base-${key}`);
  const cached = !rebuild && (await exists(base));
  await ensureTools(Object.keys(TOOLS).filter((tool) => !cached || !BUILD_TOOLS.includes(tool)));

  if (!cached) {
    if (process.getuid() !== 0) throw new Error("making the root file system needs root");
    say(
      `making the root file system (Debian ${SUITE}, ${packages.length} packages and the cloud kernel); cached in ${base}`,
    );
    const start = Date.now();
    const build = await ownDirectory(cache, "build");
    try {
      await buildBase(build, packages);
      if (rebuild) await fs.rm(base, { recursive: true, force: true });
      await fs.rename(build, base).catch(async (error) => {
        // Another run was faster: its image is as good.
        if (error.code !== "ENOTEMPTY" && error.code !== "EEXIST") throw error;
      });
    } finally {
      await fs.rm(build, { recursive: true, force: true });
    }
    say(`root file system made in ${((Date.now() - start) / 1000).toFixed(1)} s`);
  }
  const node = await ensureNode(cache);
  await dropStale(cache, [base, node]);
  return {
    kernel: path.join(base, "vmlinuz"),
    initramfs: path.join(base, "initramfs"),
    disk: path.join(base, "root.ext4"),
    node,
  };
}
