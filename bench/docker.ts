/** Docker as a peer: the daemon that runs here, or with `--docker` one of our own that goes at the end. */
import { spawn } from "node:child_process";
import { existsSync, mkdirSync, openSync, readdirSync, rmdirSync, rmSync, symlinkSync } from "node:fs";
import { basename, join } from "node:path";
import { setTimeout as sleep } from "node:timers/promises";
import { type Bench, type Peer, timed } from "./harness.js";
import { capture, exitOf, findProgram, spawnAndWait } from "./processes.js";

const DAEMON_DEADLINE_MS = 20_000;
/** Where a daemon keeps a little whatever directories it is given. */
const SHARED_DIRECTORIES = ["/run/docker", "/run/containerd"];
const IMAGE = "holdfast-bench:latest";

export interface Docker {
  /** `docker`, and where its daemon listens. */
  readonly argv: readonly string[];
}

/** One for all figures of a run; a string says why there is none. */
let found: Promise<Docker | string> | undefined;

const isReachable = async (argv: readonly string[]): Promise<boolean> =>
  (await capture([...argv, "version", "--format", "{{.Server.Version}}"])).code === 0;

/** In every hierarchy; a container's own go with it, this one is the daemon's. */
function removeCgroups(name: string): void {
  for (const hierarchy of ["", ...readdirSync("/sys/fs/cgroup")]) {
    const path = join("/sys/fs/cgroup", hierarchy, name);
    if (existsSync(path)) rmdirSync(path);
  }
}

async function startDaemon(bench: Bench, program: string): Promise<Docker | string> {
  const directory = join(bench.scratchDirectory, "docker");
  mkdirSync(directory);
  const socket = `unix://${join(directory, "docker.sock")}`;
  const log = openSync(join(directory, "log"), "a");
  const cgroup = `${basename(bench.scratchDirectory)}-docker`;
  const fresh = SHARED_DIRECTORIES.filter((path) => !existsSync(path));
  const own = [
    "--cgroup-parent",
    `/${cgroup}`,
    "--data-root",
    join(directory, "data"),
    "--exec-root",
    join(directory, "exec"),
  ];
  // Nothing of the host's network is touched: containers here need none.
  const network = ["--bridge=none", "--iptables=false", "--ip6tables=false"];
  const daemon = spawn(program, ["--host", socket, "--pidfile", join(directory, "pid"), ...own, ...network], {
    stdio: ["ignore", log, log],
    detached: true,
  });
  bench.onEnd(async () => {
    daemon.kill("SIGTERM");
    await exitOf(daemon);
    removeCgroups(cgroup);
    for (const path of fresh) rmSync(path, { recursive: true, force: true });
  });
  const argv = ["docker", "--host", socket];
  const deadline = performance.now() + DAEMON_DEADLINE_MS;
  while (performance.now() < deadline && daemon.exitCode === null) {
    if (await isReachable(argv)) return { argv };
    await sleep(200);
  }
  return "its daemon does not start";
}

async function find(bench: Bench): Promise<Docker | string> {
  if (findProgram("docker") === undefined) return "not installed";
  let docker: Docker | string = { argv: ["docker"] };
  if (!(await isReachable(docker.argv))) {
    const daemon = findProgram("dockerd");
    if (daemon === undefined) return "no daemon (dockerd is not installed)";
    if (!bench.mayStartDocker) return "no daemon (--docker starts one)";
    docker = await startDaemon(bench, daemon);
    if (typeof docker === "string") return docker;
  }
  return (await importImage(bench, docker)) ?? docker;
}

/** An image with nothing in it but the links to the host's /usr, which containers are shown; as the others have it. */
async function importImage(bench: Bench, docker: Docker): Promise<string | undefined> {
  const root = join(bench.scratchDirectory, "docker-image");
  mkdirSync(join(root, "usr"), { recursive: true });
  for (const name of ["bin", "sbin", "lib", "lib64"]) symlinkSync(`usr/${name}`, join(root, name));
  const archive = join(bench.scratchDirectory, "docker-image.tar");
  const packed = await capture(["tar", "-C", root, "-cf", archive, "."]);
  const imported = packed.code === 0 ? await capture([...docker.argv, "import", archive, IMAGE]) : packed;
  if (imported.code !== 0) return `does not work here: ${imported.stderr.slice(0, 60)}`;
  bench.onEnd(async () => {
    await capture([...docker.argv, "rmi", "--force", IMAGE]);
  });
  return undefined;
}

/** A string says why there is none. */
export function findDocker(bench: Bench): Promise<Docker | string> {
  found ??= find(bench);
  return found;
}

const runFlags = ["--network=none", "--volume=/usr:/usr:ro"];

export async function dockerRun(bench: Bench): Promise<Peer> {
  const docker = await findDocker(bench);
  if (typeof docker === "string") return { name: "docker run", absent: docker };
  const argv = [...docker.argv, "run", "--rm", ...runFlags, IMAGE, "/bin/true"];
  return { name: "docker run", measure: () => timed(() => spawnAndWait(argv)), everyNth: 4 };
}

export async function dockerExec(bench: Bench): Promise<Peer> {
  const docker = await findDocker(bench);
  if (typeof docker === "string") return { name: "docker exec", absent: docker };
  const started = await capture([...docker.argv, "run", "--rm", "-d", ...runFlags, IMAGE, "/bin/sleep", "infinity"]);
  const container = started.stdout.trim();
  if (started.code !== 0) return { name: "docker exec", absent: `does not work here: ${started.stderr.slice(0, 60)}` };
  bench.onEnd(async () => {
    await capture([...docker.argv, "rm", "--force", container]);
  });
  const argv = [...docker.argv, "exec", container, "/bin/true"];
  return { name: "docker exec", measure: () => timed(() => spawnAndWait(argv)), everyNth: 10 };
}
