/** `holdfast top`: what sandboxes use, look after look. */
import { setTimeout as sleep } from "node:timers/promises";
import type { SandboxInfo, SandboxUsage } from "@holdfast/protocol";
import type { Sandbox } from "@holdfast/sdk";
import { coloursFor } from "../text/colours.js";
import { visibleWidth } from "../text/table.js";
import type { ServerFlags } from "./find-server.js";
import { hostLine } from "./host-text.js";
import { inParallel } from "./in-parallel.js";
import { untilInterrupted } from "./interrupt.js";
import { ServerClient } from "./server-client.js";
import { type UsageRow, usageTable } from "./usage-table.js";

export interface TopFlags extends ServerFlags {
  readonly once?: boolean;
  readonly json?: boolean;
}

const EVERY_MS = 1000;
const QUIT_KEYS = ["q", "Q", "\u0003", "\u0004"];
const CLEAR = "\u001b[H\u001b[2J";

/** The share of a CPU between two looks; the server's own figure is about a time of its choice. */
function cpuMillisBetween(before: SandboxUsage | null | undefined, now: SandboxUsage): number | null {
  if (before === null || before === undefined) return now.cpuMillis;
  const elapsedMs = Date.parse(now.at) - Date.parse(before.at);
  return elapsedMs <= 0 ? now.cpuMillis : Math.max(0, Math.round(((now.cpuMs - before.cpuMs) / elapsedMs) * 1000));
}

class Looks {
  readonly #server: ServerClient;
  readonly #known = new Map<string, Sandbox>();
  #before = new Map<string, SandboxUsage | null>();

  constructor(server: ServerClient) {
    this.#server = server;
  }

  async next(): Promise<UsageRow[]> {
    const sandboxes = await this.#server.list({ ended: false });
    const rows = await inParallel(sandboxes, async (sandbox) => ({ sandbox, usage: await this.#usageOf(sandbox) }));
    this.#before = new Map(rows.map(({ sandbox, usage }) => [sandbox.id, usage]));
    for (const id of this.#known.keys()) if (!this.#before.has(id)) this.#known.delete(id);
    return rows;
  }

  async #usageOf(sandbox: SandboxInfo): Promise<SandboxUsage | null> {
    if (sandbox.status !== "running") return null;
    try {
      const handle = this.#known.get(sandbox.id) ?? (await this.#server.connect(sandbox.id));
      this.#known.set(sandbox.id, handle);
      const usage = await handle.usage();
      return { ...usage, cpuMillis: cpuMillisBetween(this.#before.get(sandbox.id), usage) };
    } catch {
      // It was paused or ended between the list and the question; the next look will tell.
      return null;
    }
  }
}

export async function top(flags: TopFlags): Promise<void> {
  const server = await ServerClient.open(flags);
  const looks = new Looks(server);
  const interrupt = untilInterrupted();
  const quit = flags.once === true ? () => {} : quitOnKey();
  try {
    if (flags.once === true) {
      await looks.next();
      await sleep(EVERY_MS, undefined, { signal: interrupt.signal });
      await show(server, await looks.next(), flags);
      return;
    }
    while (!interrupt.signal.aborted) {
      await show(server, await looks.next(), flags);
      await sleep(EVERY_MS, undefined, { signal: interrupt.signal });
    }
  } catch (error) {
    if (!interrupt.signal.aborted) throw error;
  } finally {
    quit();
    interrupt.release();
  }
}

async function show(server: ServerClient, rows: readonly UsageRow[], flags: TopFlags): Promise<void> {
  if (flags.json === true) {
    const shown = rows.map(({ sandbox: { id, status, pressure }, usage }) => ({ id, status, pressure, usage }));
    process.stdout.write(`${JSON.stringify({ at: new Date().toISOString(), sandboxes: shown })}\n`);
    return;
  }
  const colours = coloursFor(process.stdout);
  const text = `${hostLine(await server.host())}\n\n${usageTable(rows, Date.now(), colours)}`;
  const live = process.stdout.isTTY && flags.once !== true;
  process.stdout.write(live ? CLEAR + fit(text, process.stdout.columns, process.stdout.rows) : text);
}

/** What does not fit would scroll the head away. */
function fit(text: string, columns: number, rows: number): string {
  const lines = text.trimEnd().split("\n");
  const shown = lines.length < rows ? lines : [...lines.slice(0, rows - 2), `and ${lines.length - rows + 2} more`];
  return `${shown.map((line) => (visibleWidth(line) > columns ? line.slice(0, columns) : line)).join("\n")}\n`;
}

/** Returns what gives the terminal back. */
function quitOnKey(): () => void {
  const { stdin } = process;
  if (!stdin.isTTY) return () => {};
  const onKey = (key: Buffer): void => {
    if (QUIT_KEYS.includes(key.toString())) process.emit("SIGINT");
  };
  const restore = (): void => void stdin.setRawMode(false);
  stdin.setRawMode(true);
  process.once("exit", restore);
  stdin.on("data", onKey);
  return () => {
    stdin.off("data", onKey);
    process.off("exit", restore);
    restore();
    stdin.pause();
  };
}
