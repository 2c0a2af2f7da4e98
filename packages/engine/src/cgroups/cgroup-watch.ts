/**
 * Hears of cgroups that run short of memory, the moment they do. The kernel tells only whoever holds a descriptor of a kind
 * that Node has no words for; a small process of ours holds them all (guest/launch/watch.c) and says a line for each.
 */
import { type ChildProcessByStdio, spawn } from "node:child_process";
import { createInterface } from "node:readline";
import type { Readable, Writable } from "node:stream";
import type { Log } from "../host/log.js";

/** What is listened to: a memory cgroup of v1 and how much is near its limit, or a file of v2 that changes. */
export type WatchTarget =
  | { readonly kind: "oom"; readonly path: string; readonly nearBytes: number }
  | { readonly kind: "file"; readonly path: string };

interface Watched {
  readonly target: WatchTarget;
  readonly onEvent: () => void;
}

const lineFor = (id: string, target: WatchTarget): string =>
  target.kind === "oom" ? `oom ${id} ${target.nearBytes} ${target.path}` : `file ${id} ${target.path}`;

/** Should it die again and again, it is not started again and again. */
const RESTART_MS = 1000;

export class CgroupWatch {
  readonly #launcherPath: string;
  readonly #log: Log;
  readonly #watched = new Map<string, Watched>();
  #child: ChildProcessByStdio<Writable, Readable, null> | undefined;
  #restart: NodeJS.Timeout | undefined;
  #closed = false;

  constructor(launcherPath: string, log: Log) {
    this.#launcherPath = launcherPath;
    this.#log = log;
  }

  /**
   * Instead of what was watched under this id. `onEvent` is also called once at the beginning, and may be called although
   * nothing is the matter.
   */
  add(id: string, target: WatchTarget, onEvent: () => void): void {
    this.#watched.set(id, { target, onEvent });
    if (this.#child === undefined) this.#start();
    else this.#say(lineFor(id, target));
  }

  drop(id: string): void {
    if (!this.#watched.delete(id)) return;
    this.#say(`drop ${id}`);
    // Nobody needs it; whoever comes next starts it anew.
    if (this.#watched.size === 0) this.#end();
  }

  close(): void {
    this.#closed = true;
    this.#watched.clear();
    clearTimeout(this.#restart);
    this.#end();
  }

  #end(): void {
    const child = this.#child;
    this.#child = undefined;
    (child?.stdin as Writable | undefined)?.end();
  }

  #start(): void {
    if (this.#closed || this.#child !== undefined) return;
    try {
      this.#spawn();
    } catch (error) {
      this.#startLater(error instanceof Error ? error.message : String(error));
    }
  }

  /** Meanwhile whoever is watched is looked at now and then, by whoever wants to know. */
  #startLater(error: string): void {
    if (this.#closed || this.#watched.size === 0) return;
    this.#log.warn({ watched: this.#watched.size, error }, "the watch over cgroups has ended; starting it again");
    clearTimeout(this.#restart);
    this.#restart = setTimeout(() => this.#start(), RESTART_MS).unref();
  }

  #spawn(): void {
    // In a session of its own: the Ctrl-C of a terminal is for us, who end it when nobody needs it any more.
    const child = spawn(this.#launcherPath, ["watch"], {
      stdio: ["pipe", "pipe", "ignore"],
      cwd: "/",
      env: {},
      detached: true,
    });
    const gone = (why: string) => {
      if (this.#child !== child) return;
      this.#child = undefined;
      this.#startLater(why);
    };
    this.#child = child;
    child.once("exit", (code, signal) => gone(`it ended by ${signal ?? `exit code ${code}`}`));
    child.on("error", ({ message }) => gone(message));
    // Without descriptors to spare there are no streams, and the error comes later.
    if ((child.stdin as Writable | undefined) === undefined) return;
    // It alone keeps no process alive that has nothing else to do.
    child.unref();
    for (const stream of [child.stdin, child.stdout]) (stream as unknown as { unref?: () => void }).unref?.();
    child.stdin.on("error", () => {});
    createInterface({ input: child.stdout }).on("line", (line) => this.#hear(line));
    for (const [id, { target }] of this.#watched) this.#say(lineFor(id, target));
  }

  #say(line: string): void {
    (this.#child?.stdin as Writable | undefined)?.write(`${line}\n`);
  }

  #hear(line: string): void {
    const [what, id = "", ...why] = line.split(" ");
    const watched = this.#watched.get(id);
    if (watched === undefined) return;
    if (what === "failed") this.#log.warn({ sandbox: id, why: why.join(" ") }, "a cgroup cannot be watched");
    else watched.onEvent();
  }
}
