// A cgroup with limits around a whole test run, and what it came to in there: peaks, kills for memory, what was left.
// cgroup v1 and hybrid hosts (a directory in each hierarchy) and pure v2.
import { randomBytes } from "node:crypto";
import {
  closeSync,
  constants,
  existsSync,
  mkdirSync,
  openSync,
  readdirSync,
  readFileSync,
  readSync,
  rmdirSync,
  writeFileSync,
} from "node:fs";
import { join } from "node:path";

const ROOT = "/sys/fs/cgroup";
const SAMPLE_MS = 250;
/** Where the runner goes: the last limits nothing, but tells how long everybody together waits for memory. */
const V1_PLACES = ["memory", "pids", "unified"];

const isV2 = () => existsSync(join(ROOT, "cgroup.controllers"));

export class EnclosingCgroup {
  /** Below the root of each hierarchy, for HOLDFAST_TEST_CGROUP. */
  name = `small-host-${randomBytes(4).toString("hex")}`;
  #memory;
  #pids;
  #places;
  #peaks = { heldBytes: 0, pids: 0 };
  /** Kills for memory by the cgroup of the victim, none of them a sandbox's: a cgroup takes its count along when it goes. */
  #killed = new Map();
  /** Forks for want of processes, the same way. */
  #refused = new Map();
  #log = new KernelLog(this.name);
  #timer;

  constructor({ memoryBytes, pids }) {
    const hierarchies = isV2() ? [ROOT] : V1_PLACES.map((name) => join(ROOT, name)).filter((path) => existsSync(path));
    this.#places = hierarchies.map((path) => join(path, this.name));
    this.#memory = isV2() ? this.#places[0] : join(ROOT, "memory", this.name);
    this.#pids = isV2() ? this.#places[0] : join(ROOT, "pids", this.name);
    if (isV2()) writeFileSync(join(ROOT, "cgroup.subtree_control"), "+memory +pids +cpu");
    // On v2 a cgroup with children that are limited holds no processes: the runner has a place of its own.
    for (const place of this.#places) mkdirSync(join(place, "runner"), { recursive: true });
    // The engine is in more hierarchies than those. Whoever of it is killed leaves no parent behind that was there before.
    for (const path of this.#tops()) mkdirSync(path, { recursive: true });
    if (isV2()) writeFileSync(join(this.#memory, "cgroup.subtree_control"), "+memory +pids +cpu");
    writeFileSync(join(this.#memory, isV2() ? "memory.max" : "memory.limit_in_bytes"), String(memoryBytes));
    // Nobody is let off by swapping.
    for (const file of ["memory.swap.max", "memory.memsw.limit_in_bytes"]) {
      const path = join(this.#memory, file);
      if (existsSync(path)) writeFileSync(path, String(file === "memory.swap.max" ? 0 : memoryBytes));
    }
    writeFileSync(join(this.#pids, "pids.max"), String(pids));
    this.#timer = setInterval(() => this.#sample(), SAMPLE_MS);
  }

  /** A command that runs the one behind it in here, with all that it starts. */
  get entering() {
    const files = this.#places.map((place) => join(place, "runner/cgroup.procs"));
    return ["sh", "-c", `for file in ${files.join(" ")}; do echo 0 >"$file" || exit; done; exec "$@"`, "sh"];
  }

  #sample() {
    const stat = read(join(this.#memory, "memory.stat"));
    const bytes = (...names) => names.reduce((total, name) => total + keyed(stat, name), 0);
    // What cannot be dropped; page cache fills whatever there is.
    const held = isV2() ? bytes("anon", "shmem") : bytes("total_rss", "total_shmem");
    this.#peaks.heldBytes = Math.max(this.#peaks.heldBytes, held);
    this.#peaks.pids = Math.max(this.#peaks.pids, Number(read(join(this.#pids, "pids.current"))));
    this.#countKills(this.#memory);
    this.#countRefusals(this.#pids);
    this.#log.read();
  }

  #countKills(directory) {
    // The victim's own cgroup counts, on v1 always, on v2 in this file.
    const count = keyed(read(join(directory, isV2() ? "memory.events.local" : "memory.oom_control")), "oom_kill");
    // As the kernel's log writes it.
    if (count > 0) this.#killed.set(directory.slice(directory.indexOf(`/${this.name}`)), count);
    for (const name of children(directory)) {
      if (!isSandbox(join(directory, name))) this.#countKills(join(directory, name));
    }
  }

  #countRefusals(directory) {
    // Newer v2 counts at the limit, the others where the fork was tried; this file has its own in any case.
    const local = read(join(directory, "pids.events.local")) || read(join(directory, "pids.events"));
    const count = keyed(local, "max");
    if (count > 0) this.#refused.set(directory, count);
    for (const name of children(directory)) {
      if (!isSandbox(join(directory, name))) this.#countRefusals(join(directory, name));
    }
  }

  /** After the last process has gone, or should have. */
  finish() {
    clearInterval(this.#timer);
    this.#sample();
    this.#log.close();
    const total = (counts) => [...counts.values()].reduce((sum, count) => sum + count, 0);
    return {
      // Of all, page cache too.
      peakBytes: Number(read(join(this.#memory, isV2() ? "memory.peak" : "memory.max_usage_in_bytes"))),
      peakHeldBytes: this.#peaks.heldBytes,
      // The kernel keeps it since 6.11.
      peakPids: Number(read(join(this.#pids, "pids.peak"))) || this.#peaks.pids,
      refusedForks: total(this.#refused),
      killsOutside: Math.max(total(this.#killed), this.#log.outside.length),
      victimsOutside: [...new Set([...this.#killed.keys(), ...this.#log.outside])],
      killsInSandboxes: this.#log.inSandboxes,
      ranOut: this.#log.ranOut,
      ...this.left(),
    };
  }

  left() {
    return {
      processes: [...new Set(this.#places.flatMap((place) => processesIn(place)))],
      cgroups: this.#allCgroups().filter((path) => !this.#isOwn(path)),
    };
  }

  #isOwn(path) {
    return this.#tops().includes(path) || this.#places.some((place) => path === join(place, "runner"));
  }

  /** Its place in every hierarchy. */
  #tops() {
    return (isV2() ? [ROOT] : children(ROOT).map((name) => join(ROOT, name))).map((path) => join(path, this.name));
  }

  /** Parents first. */
  #allCgroups() {
    return this.#tops().flatMap((path) => (existsSync(path) ? [path, ...below(path)] : []));
  }

  remove() {
    for (const path of this.#allCgroups().reverse()) {
      try {
        rmdirSync(path);
      } catch (error) {
        console.error(`${path} could not be removed: ${error.code}`);
      }
    }
  }
}

/** Whom the kernel killed for memory in a cgroup of a name that nobody else has. Some lines are left out when there are many. */
class KernelLog {
  outside = [];
  inSandboxes = 0;
  /** How often it was the limit of the whole that was reached. */
  ranOut = 0;
  #name;
  #fd;
  #buffer = Buffer.alloc(16 * 1024);

  constructor(name) {
    this.#name = name;
    try {
      this.#fd = openSync("/dev/kmsg", constants.O_RDONLY | constants.O_NONBLOCK);
      this.read();
    } catch {
      this.#fd = undefined; // not for us; the counters are
    }
  }

  read() {
    while (this.#fd !== undefined) {
      try {
        this.#take(this.#buffer.toString("latin1", 0, readSync(this.#fd, this.#buffer, 0, this.#buffer.length, null)));
      } catch (error) {
        // Overwritten before we came, or too long: the next is there all the same.
        if (error.code !== "EPIPE" && error.code !== "EINVAL") return;
      }
    }
  }

  #take(record) {
    const match = /;oom-kill:.*?,oom_memcg=([^,\n]*),task_memcg=([^,\n]*),/.exec(record);
    if (match === null || !match[2].startsWith(`/${this.#name}/`)) return;
    if (match[1] === `/${this.#name}`) this.ranOut++;
    if (isSandbox(match[2])) this.inSandboxes++;
    else this.outside.push(match[2]);
  }

  close() {
    if (this.#fd !== undefined) closeSync(this.#fd);
    this.#fd = undefined;
  }
}

/** A sandbox's cgroup or one below it. */
function isSandbox(path) {
  return /\/holdfast\/[a-z0-9]+(\/|$)/.test(path);
}

function read(path) {
  try {
    return readFileSync(path, "utf8");
  } catch {
    return ""; // it went while we looked, or this kernel has none
  }
}

function keyed(text, name) {
  return Number(new RegExp(`^${name} (\\d+)$`, "m").exec(text)?.[1] ?? 0);
}

function children(directory) {
  try {
    const entries = readdirSync(directory, { withFileTypes: true });
    return entries.filter((entry) => entry.isDirectory()).map(({ name }) => name);
  } catch {
    return []; // it went while we looked
  }
}

function below(directory) {
  return children(directory).flatMap((name) => [join(directory, name), ...below(join(directory, name))]);
}

function processesIn(place) {
  return [place, ...below(place)].flatMap((path) => {
    const pids = read(join(path, "cgroup.procs"))
      .split("\n")
      .filter((line) => line !== "");
    return pids.map((pid) => `${pid} ${read(`/proc/${pid}/comm`).trim()}`);
  });
}
