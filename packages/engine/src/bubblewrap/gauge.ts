/** One sandbox looked at from outside: how short it is of memory and of processes, and what can be done about the latter. */
import { readdirSync, readFileSync } from "node:fs";
import { ceilingBytesOf, HoldfastError, RESERVED_PIDS } from "@holdfast/protocol";
import { CgroupFigures } from "../cgroups/index.js";
import type { CleanUpReport, PressureReading, ProcessCounts, ReadOptions, SandboxGauge } from "../governor/pressure.js";
import { hasEndedUnreaped } from "../host/processes.js";
import type { CommandContext } from "./command.js";
import { listCommands } from "./command-list.js";
import { tellPressure, toldPressure } from "./inside.js";

/** Of very many processes not all are looked at. */
const MOST_PARENTS = 512;
const MOST_THREADS = 64;
/** How long those who were reminded of their dead children may take to bury them. */
const BURIAL_MS = 200;
const LOOK_MS = 10;

/** Children belong to the thread that forked them. */
function hasDeadChildren(pid: number): boolean {
  return readdirSync(`/proc/${pid}/task`)
    .slice(0, MOST_THREADS)
    .flatMap((thread) => readFileSync(`/proc/${pid}/task/${thread}/children`, "utf8").trim().split(" "))
    .some((child) => child !== "" && hasEndedUnreaped(Number(child)));
}

type GaugeContext = Pick<CommandContext, "cgroup" | "connection" | "leaders" | "limits" | "nextCommandId">;

export class Gauge implements SandboxGauge {
  readonly #context: GaugeContext;
  readonly #directory: string;
  readonly #figures: CgroupFigures;
  /** Streams that are open as long as the sandbox runs. */
  readonly #lastingStreams: number;
  #told: string | undefined;

  /** `directory` is the sandbox's own on the host. */
  constructor(context: GaugeContext, directory: string) {
    this.#context = context;
    this.#directory = directory;
    this.#figures = new CgroupFigures(context.cgroup.paths);
    this.#lastingStreams = context.connection.openStreams;
  }

  read({ usage = false, exactFromPercent = 0 }: ReadOptions = {}): PressureReading {
    const limits = this.#context.limits();
    const stall = this.#figures.readStall();
    // A limit that grows is not short of memory before it has come to its ceiling.
    const limitBytes = ceilingBytesOf(limits);
    const exactFromBytes = (limitBytes * exactFromPercent) / 100;
    const usedBytes = usage || stall === undefined ? this.#figures.readUsedBytes(exactFromBytes) : 0;
    return {
      memory: { stall, usedBytes, limitBytes },
      processes: { used: this.#figures.readTasks(), limit: Math.max(1, limits.pids - RESERVED_PIDS) },
    };
  }

  countProcesses(): ProcessCounts {
    const { byCommand, counted } = this.#figures.countTasks();
    let live = 0;
    let orphans = 0;
    for (const [command, count] of byCommand) {
      // A process that waits in the place of the next command is nobody's orphan.
      if (command === null || this.#context.leaders.has(command) || this.#isToCome(command)) live += count;
      else orphans += count;
    }
    return { live, orphans, zombies: Math.max(0, counted - live - orphans) };
  }

  #isToCome(command: number): boolean {
    return command >= this.#context.nextCommandId();
  }

  get isBusy(): boolean {
    return this.#context.connection.openStreams > this.#lastingStreams;
  }

  async cleanUp(): Promise<CleanUpReport> {
    const { cgroup, connection, leaders } = this.#context;
    if (cgroup.isFrozen()) throw new HoldfastError("sandbox_frozen", `sandbox ${cgroup.id} is frozen`);
    const before = this.countProcesses();
    // The places first: a command that is started while the guest is asked is not among them.
    const { byCommand } = this.#figures.countTasks();
    const summaries = await listCommands(connection);
    const running = new Set(summaries.flatMap(({ id, running }) => (running ? [id] : [])));
    let orphansEnded = 0;
    let failed = 0;
    for (const [command, count] of byCommand) {
      if (command === null || running.has(command) || leaders.has(command) || this.#isToCome(command)) continue;
      const { survivors } = await cgroup.killCommand(command);
      cgroup.removeCommand(command);
      orphansEnded += Math.max(0, count - survivors.length);
      failed += survivors.length;
    }
    this.#remindParents();
    const deadline = performance.now() + BURIAL_MS;
    while (this.countProcesses().zombies > 0 && performance.now() < deadline) {
      await new Promise((resolve) => setTimeout(resolve, LOOK_MS));
    }
    const zombiesReaped = Math.max(0, before.zombies - this.countProcesses().zombies);
    return { zombiesReaped, orphansEnded, failed };
  }

  /** The signal says what is true, and who does not care for it is not changed by it. */
  #remindParents(): void {
    for (const pid of this.#context.cgroup.processes().slice(0, MOST_PARENTS)) {
      try {
        if (hasDeadChildren(pid)) process.kill(pid, "SIGCHLD");
      } catch {
        // It has ended meanwhile.
      }
    }
  }

  tell(text: string): void {
    if (text === this.#told) return;
    try {
      // The first time it may say so already: to read it costs a tenth of writing it.
      this.#told ??= toldPressure(this.#directory);
      if (text === this.#told) return;
      this.#told = text;
      tellPressure(this.#directory, text);
    } catch (error) {
      const { code } = error as NodeJS.ErrnoException;
      // It has ended, or was started before there was such a place.
      if (code !== "ENOENT") throw HoldfastError.from(error);
    }
  }
}
