/** What sandboxes are compared with: the same work done by other means, each with the defaults it comes with. */
import { mkdirSync, readFileSync, symlinkSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { type Bench, type Peer, timed } from "./harness.js";
import { capture, findProgram, guestPidOf, spawnAndWait } from "./processes.js";

const NOT_INSTALLED = "not installed";
/** Merged-/usr links, as Debian has them. */
const ROOT_LINKS = ["bin", "sbin", "lib", "lib64"];

export const plainSpawn: Peer = { name: "plain spawn", measure: () => timed(() => spawnAndWait(["/bin/true"])) };

/** The namespaces and the view that our sandboxes have, and nothing else of them: no limits, no guest, no record. */
export function bubblewrapArguments(command: readonly string[]): string[] {
  const links = ROOT_LINKS.flatMap((name) => ["--symlink", `usr/${name}`, `/${name}`]);
  const view = ["--ro-bind", "/usr", "/usr", ...links, "--dev", "/dev", "--proc", "/proc", "--tmpfs", "/tmp"];
  return ["bwrap", "--unshare-all", "--unshare-user", ...view, ...command];
}

export const bubblewrap: Peer = {
  name: "bwrap",
  measure: () => timed(() => spawnAndWait(bubblewrapArguments(["/bin/true"]))),
};

/** Into a sandbox of ours. It joins namespaces only: no cgroup of its own, no user, no confinement. */
export function nsenterInto(sandboxId: string): Peer {
  if (findProgram("nsenter") === undefined) return { name: "nsenter", absent: NOT_INSTALLED };
  const target = String(guestPidOf(sandboxId));
  return {
    name: "nsenter",
    measure: () => timed(() => spawnAndWait(["nsenter", "-t", target, "-a", "--", "/bin/true"])),
  };
}

interface OciSpec {
  process: { terminal: boolean; args: string[] };
  root: { path: string; readonly: boolean };
  mounts: { destination: string; type: string; source: string; options: string[] }[];
}

function makeRootDirectory(path: string): void {
  for (const name of ["usr", "dev", "proc", "sys", "tmp"]) mkdirSync(join(path, name), { recursive: true });
  for (const name of ROOT_LINKS) symlinkSync(`usr/${name}`, join(path, name));
}

/** A bundle that shows the host's /usr, made by the runtime's own `spec` and changed as little as that takes. */
async function makeBundle(runtime: string, directory: string, args: readonly string[]): Promise<void> {
  makeRootDirectory(join(directory, "rootfs"));
  const made = await capture([runtime, "spec"], { cwd: directory });
  if (made.code !== 0) throw new Error(`${runtime} spec failed: ${made.stderr}`);
  const path = join(directory, "config.json");
  const spec = JSON.parse(readFileSync(path, "utf8")) as OciSpec;
  spec.process = { ...spec.process, terminal: false, args: [...args] };
  spec.root = { path: "rootfs", readonly: true };
  spec.mounts.push({ destination: "/usr", type: "bind", source: "/usr", options: ["rbind", "ro"] });
  writeFileSync(path, JSON.stringify(spec));
}

/** Beside what every user of the runtime has, so that nothing of ours is left in the places that are everybody's. */
function runtimeArguments(bench: Bench, runtime: Runtime): string[] {
  const { program, flags } = RUNTIMES[runtime];
  return [program, ...flags, "--root", join(bench.scratchDirectory, runtime)];
}

const RUNTIMES = {
  runc: { program: "runc", flags: [] as string[] },
  // Without KVM; its own cgroup code knows neither hybrid hierarchies nor hosts without systemd.
  runsc: { program: "runsc", flags: ["--platform=ptrace", "--network=none", "--ignore-cgroups"] },
} as const;
type Runtime = keyof typeof RUNTIMES;

let containers = 0;
const nextContainer = () => `holdfast-bench-${process.pid}-${containers++}`;

/** A peer that cannot be brought up says why, in the table, instead of ending everything. */
async function orAbsent(name: string, prepare: () => Promise<Peer>): Promise<Peer> {
  try {
    const peer = await prepare();
    if (!("absent" in peer)) await peer.measure();
    return peer;
  } catch (error) {
    const why = (error as Error).message.split("\n")[0] ?? "";
    return { name, absent: `does not work here: ${why.slice(0, 60)}` };
  }
}

export async function ociRun(bench: Bench, runtime: Runtime): Promise<Peer> {
  const name = `${runtime} run`;
  const { program } = RUNTIMES[runtime];
  const argv = runtimeArguments(bench, runtime);
  if (findProgram(program) === undefined) return { name, absent: NOT_INSTALLED };
  return orAbsent(name, async () => {
    const directory = join(bench.scratchDirectory, nextContainer());
    await makeBundle(program, directory, ["/bin/true"]);
    const measure = () => {
      const id = nextContainer();
      return timed(() => spawnAndWait([...argv, "run", "--bundle", directory, id]));
    };
    return { name, measure, everyNth: runtime === "runsc" ? 4 : 2 };
  });
}

export async function ociExec(bench: Bench, runtime: Runtime): Promise<Peer> {
  const name = `${runtime} exec`;
  const { program } = RUNTIMES[runtime];
  const argv = runtimeArguments(bench, runtime);
  if (findProgram(program) === undefined) return { name, absent: NOT_INSTALLED };
  return orAbsent(name, async () => {
    const id = nextContainer();
    const directory = join(bench.scratchDirectory, id);
    await makeBundle(program, directory, ["/bin/sleep", "infinity"]);
    bench.onEnd(async () => {
      await capture([...argv, "delete", "--force", id]);
    });
    // By a shell that lets go of our pipes: a detached container keeps what it was given.
    const start = `exec "$@" </dev/null >/dev/null 2>"$0"`;
    const log = join(directory, "log");
    await spawnAndWait(["sh", "-c", start, log, ...argv, "run", "--detach", "--bundle", directory, id]);
    const measure = () => timed(() => spawnAndWait([...argv, "exec", id, "/bin/true"]));
    return { name, measure, everyNth: 10 };
  });
}
