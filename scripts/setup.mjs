// Brings a checkout from nothing to ready: system packages, npm packages, the guest, the build. Each step leaves a
// stamp beside what it made (a hash of what it was made from), so a second run does nothing, says nothing and costs
// milliseconds. Plain JavaScript without dependencies: it runs before there are any.
import { createHash } from "node:crypto";
import {
  chmodSync,
  existsSync,
  mkdirSync,
  readdirSync,
  readFileSync,
  readlinkSync,
  rmSync,
  symlinkSync,
  writeFileSync,
} from "node:fs";
import { dirname, join } from "node:path";
import { fileURLToPath } from "node:url";
import { main, root, run, SetupError } from "./run.mjs";
import { ensureSystemPackages } from "./system-packages.mjs";

export const CLI = join(root, "packages/cli/dist/main.js");

/** `build`: also compile the packages (tests run from source). `test`, `fuzz`: also what those need. */
export async function setup({ build = false, test = false, fuzz = false } = {}) {
  requireNode();
  await ensureSystemPackages(["run", ...(test ? ["test"] : []), ...(fuzz ? ["fuzz"] : [])]);
  await ensureNpmPackages();
  await ensureGuest();
  if (build) await ensureBuild();
}

function requireNode() {
  const [major, minor] = process.versions.node.split(".").map(Number);
  if (process.platform !== "linux") {
    throw new SetupError("Holdfast runs on Linux: its sandboxes are made of its kernel.");
  }
  if (major < 20 || (major === 20 && minor < 19)) {
    throw new SetupError(`Holdfast needs Node.js 20.19 or newer; this is ${process.versions.node}.`);
  }
}

async function ensureNpmPackages() {
  // Native modules are built for one machine and one Node: those count as much as the lock file.
  const made = hash(["package-lock.json"], `${process.arch} ${process.versions.modules}`);
  await once(join(root, "node_modules/.holdfast-setup"), made, "npm packages", async () => {
    const npm = process.env.npm_execpath;
    const [command, args] = npm?.endsWith(".js") ? [process.execPath, [npm, "ci"]] : ["npm", ["ci"]];
    await run(command, args, "npm could not install the packages. Check the network, then run `npm ci` by hand.");
  });
}

async function ensureGuest() {
  const names = readdirSync(join(root, "guest")).filter((name) => !["build", "tests", "fuzz"].includes(name));
  const made = hash(names.sort().map((name) => `guest/${name}`));
  await once(join(root, "guest/build/.holdfast-setup"), made, "guest", async () => {
    await run("make", ["-C", "guest"], "The guest did not compile. Run `make -C guest` to see all of it.");
  });
}

async function ensureBuild() {
  const { workspaces } = JSON.parse(readFileSync(join(root, "package.json"), "utf8"));
  const inputs = ["src", "package.json", "tsconfig.json"];
  const sources = workspaces.flatMap((directory) => inputs.map((input) => join(directory, input)));
  const stamp = join(dirname(CLI), ".holdfast-setup");
  // The stamp lies in one of the build's directories and speaks for all of them.
  if (!workspaces.every((directory) => existsSync(join(root, directory, "dist")))) rmSync(stamp, { force: true });
  await once(stamp, hash([...sources, "tsconfig.base.json", "package-lock.json"]), "packages", async () => {
    const tsc = join(root, "node_modules/typescript/bin/tsc");
    await run(
      process.execPath,
      [tsc, "-b", "packages/cli"],
      "TypeScript found errors; `npm run build` shows them all.",
    );
    chmodSync(CLI, 0o755);
  });
  linkCommand();
}

/**
 * npm links a command only if it exists when the packages are installed; ours is built after that. A later `npm ci` takes the
 * link away again and leaves the build, so the build's stamp says nothing about it.
 */
function linkCommand() {
  const link = join(root, "node_modules/.bin/holdfast");
  const target = "../../packages/cli/dist/main.js";
  if (readLink(link) === target) return;
  mkdirSync(dirname(link), { recursive: true });
  rmSync(link, { force: true });
  symlinkSync(target, link);
}

function readLink(path) {
  try {
    return readlinkSync(path);
  } catch {
    return undefined; // there is none
  }
}

/** Does the work unless the stamp says it was done for the same input. */
async function once(stamp, made, what, work) {
  if (readStamp(stamp) === made) return;
  process.stdout.write(`Setting up the ${what} ... `);
  const start = performance.now();
  // Work that fails half-way may leave something broken behind; no earlier stamp may vouch for it.
  rmSync(stamp, { force: true });
  await work();
  mkdirSync(dirname(stamp), { recursive: true });
  writeFileSync(stamp, made);
  console.log(`${((performance.now() - start) / 1000).toFixed(1)} s`);
}

function readStamp(path) {
  try {
    return readFileSync(path, "utf8");
  } catch {
    return undefined; // never made
  }
}

/** One hash over the names and contents of files and directories; tests do not count. */
function hash(paths, salt = "") {
  const digest = createHash("sha256").update(salt);
  for (const path of paths) addToHash(digest, path);
  return digest.digest("hex");
}

function addToHash(digest, path) {
  const full = join(root, path);
  let names;
  try {
    digest.update(`${path}\0`).update(readFileSync(full));
    return;
  } catch (error) {
    if (error.code === "ENOENT") return;
    if (error.code !== "EISDIR") throw error;
    names = readdirSync(full).sort();
  }
  for (const name of names) if (!name.endsWith(".test.ts")) addToHash(digest, join(path, name));
}

if (process.argv[1] === fileURLToPath(import.meta.url)) await main(() => setup({ build: true }));
