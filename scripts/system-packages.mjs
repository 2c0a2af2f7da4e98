// The system packages Holdfast needs, what each one brings and why. A package counts as installed if what it brings is
// there, whoever put it there.
import { existsSync, readdirSync } from "node:fs";
import { capture, excerpt, findProgram, isRoot, SetupError } from "./run.mjs";

/** `for`: "run" is needed by everything, "test" by the tests, "fuzz" by `npm run fuzz` alone. Names are Debian's. */
export const systemPackages = [
  { name: "bubblewrap", program: "bwrap", for: "run", why: "isolates every sandbox" },
  { name: "btrfs-progs", program: "mkfs.btrfs", for: "run", why: "storage with instant snapshots and disk quotas" },
  { name: "util-linux", program: "losetup", for: "run", why: "attaches the storage pool's file" },
  { name: "mount", program: "mount", for: "run", why: "mounts the storage pool" },
  { name: "gcc", program: "gcc", for: "run", why: "compiles the guest, PID 1 of every sandbox" },
  { name: "libc6-dev", file: "/usr/include/stdio.h", for: "run", why: "the C headers the launcher is compiled with" },
  { name: "make", program: "make", for: "run", why: "builds the guest" },
  { name: "musl-tools", program: "musl-gcc", for: "run", why: "links the guest statically, so it runs in any image" },
  { name: "python3", program: "python3", for: "run", why: "a program that code in sandboxes expects to find" },
  { name: "git", program: "git", for: "run", why: "a program that code in sandboxes expects to find" },
  { name: "curl", program: "curl", for: "run", why: "a program that code in sandboxes expects to find" },
  { name: "iproute2", program: "ss", for: "run", why: "tells code in sandboxes which ports are open" },
  { name: "procps", program: "ps", for: "run", why: "programs that code in sandboxes expects to find" },
  { name: "mmdebstrap", program: "mmdebstrap", for: "run", why: "builds the base image, on first use" },
  {
    name: "debian-archive-keyring",
    file: "/usr/share/keyrings/debian-archive-keyring.gpg",
    for: "run",
    why: "proves that the base image's packages are Debian's",
  },
  { name: "zstd", program: "zstd", for: "run", why: "reads and writes images' layers compressed with zstd" },
  { name: "busybox-static", has: hasStaticBusybox, for: "test", why: "the smallest image that runs" },
  { name: "skopeo", program: "skopeo", for: "test", why: "makes and reads images, to compare with" },
  { name: "buildah", program: "buildah", for: "test", why: "makes images, to import" },
  { name: "docker.io", program: "dockerd", for: "test", why: "makes images and loads ours" },
  { name: "docker-registry", program: "docker-registry", for: "test", why: "a registry to pull from and push to" },
  { name: "prometheus", program: "promtool", for: "test", why: "checks the metrics, the alerts and the dashboard" },
  { name: "clang", program: "clang", for: "fuzz", why: "compiles the fuzz targets" },
  { name: "libclang-rt-14-dev", has: hasFuzzerRuntime, for: "fuzz", why: "the fuzzing engine itself" },
];

/** Installs what is missing for these uses; says so in one line each, and nothing if nothing is missing. */
export async function ensureSystemPackages(uses) {
  const missing = systemPackages.filter((entry) => uses.includes(entry.for) && !isInstalled(entry));
  if (missing.length === 0) return;

  const names = missing.map((entry) => entry.name);
  const byHand = `apt-get install ${names.join(" ")}`;
  if (findProgram("apt-get") === undefined) {
    throw new SetupError(
      `Holdfast needs these programs, and this system has no apt-get to install them with:\n${describe(missing)}\n` +
        "Install them with your package manager (the names are Debian's), then run this again.",
    );
  }
  if (!isRoot && findProgram("sudo") === undefined) {
    throw new SetupError(
      `Holdfast needs these packages, and installing them takes root:\n${describe(missing)}\n` +
        `Run this as root, then try again:  ${byHand}`,
    );
  }

  console.log(`Installing ${missing.length === 1 ? "a system package" : "system packages"}:\n${describe(missing)}`);
  // A stale index of one foreign repository need not matter: only a failed install does.
  const update = await aptGet(["update"]);
  const install = await aptGet(["install", "--yes", "--no-install-recommends", ...names]);
  if (install.code !== 0) {
    // Without a network `update` merely warns and succeeds; its warnings explain what `install` cannot find.
    const warnings = update.output.split("\n").filter((line) => /^[EW]:/.test(line));
    throw new SetupError(
      `apt-get could not install what Holdfast needs. Try by hand, as root:  apt-get update && ${byHand}`,
      excerpt([...warnings, install.output].join("\n")),
    );
  }
  const still = missing.filter((entry) => !isInstalled(entry));
  if (still.length > 0) {
    throw new SetupError(`apt-get succeeded, but these are still not to be found:\n${describe(still)}`);
  }
}

function aptGet(args) {
  const command = ["DEBIAN_FRONTEND=noninteractive", "apt-get", "-q", "-o", "DPkg::Lock::Timeout=120", ...args];
  return isRoot ? capture("env", command) : capture("sudo", ["env", ...command]);
}

function isInstalled(entry) {
  if (entry.program !== undefined) return findProgram(entry.program) !== undefined;
  if (entry.file !== undefined) return existsSync(entry.file);
  return entry.has();
}

function describe(entries) {
  const width = Math.max(...entries.map((entry) => entry.name.length));
  return entries.map((entry) => `  ${entry.name.padEnd(width)}  ${entry.why}`).join("\n");
}

/** The plain busybox has the same name, but runs nowhere else. */
function hasStaticBusybox() {
  return existsSync("/var/lib/dpkg/info/busybox-static.list");
}

/** Debian splits libFuzzer from clang, under a directory named after the exact compiler version. */
function hasFuzzerRuntime() {
  const base = "/usr/lib/llvm-14/lib/clang";
  if (!existsSync(base)) return false;
  return readdirSync(base).some((version) => {
    const libraries = `${base}/${version}/lib/linux`;
    return existsSync(libraries) && readdirSync(libraries).some((name) => name.startsWith("libclang_rt.fuzzer"));
  });
}
