/** Many sandboxes with many streams at once: no byte is lost, doubled or out of order, and the server stays its size. */
import { readFileSync } from "node:fs";
import { setTimeout as sleep } from "node:timers/promises";
import { type CommandHandle, E2B, type Sandbox } from "e2b";
import { expect, test } from "vitest";
import { fitting } from "../helpers/needs-host.js";
import { scaled } from "../helpers/scale.js";
import { useServer } from "../helpers/use-server.js";

const MIB = 1024 * 1024;
const LIMITS = { memoryBytes: 64 * MIB, pids: 32 };
const SANDBOXES = fitting(scaled(50, 5), LIMITS);
const STREAMS_EACH = 4;
const SECONDS = Number(process.env.HOLDFAST_STREAM_SECONDS ?? 8);

// The SDK has 200 connections to one address unless told otherwise, and each stream holds one.
process.env.E2B_ENVD_RPC_CONNECTIONS = "400";

const LINES_AT_ONCE = 2000;
/**
 * 360 to 380 with 200 streams, in all runs: buffers of both sides of each, and what the garbage collector lets lie. A short run
 * spends its second third getting there, the slower the later: there this bound is what tells, not how the thirds compare.
 */
const MAX_SERVER_MIB = SECONDS < 30 ? 480 : 700;

/**
 * Numbered lines at full speed, so many for each word it is given; the last line says how many there were. Without that
 * word a program would be ahead of its reader by all that a sandbox keeps for it, and reading that takes minutes.
 */
const producer = (padding: string) =>
  `i=0; while read word && [ $word != end ]; do seq -f '%012.0f ${padding}' $i $((i + ${LINES_AT_ONCE - 1})); i=$((i + ${LINES_AT_ONCE})); done; echo "end $i"`;

class LineChecker {
  readonly #padding: string;
  #rest = "";
  #next = 0;
  bytes = 0;
  /** What the last line said; undefined before it. */
  total: number | undefined;
  problem: string | undefined;

  constructor(padding: string) {
    this.#padding = padding;
  }

  take(text: string): void {
    this.bytes += text.length;
    const lines = (this.#rest + text).split("\n");
    this.#rest = lines.pop() ?? "";
    for (const line of lines) this.#check(line);
  }

  #check(line: string): void {
    if (this.problem !== undefined) return;
    const expected = `${String(this.#next).padStart(12, "0")} ${this.#padding}`;
    if (line === expected) this.#next++;
    else if (line.startsWith("end ") && this.total === undefined) this.total = Number(line.slice(4));
    else this.problem = `line ${this.#next} is ${JSON.stringify(line.slice(0, 100))}`;
  }

  get received(): number {
    return this.#next;
  }
  get complete(): boolean {
    return this.problem === undefined && this.total === this.#next && this.#rest === "";
  }
}

/** Reads one command to its end, and keeps it busy until the time is up. */
class Stream {
  readonly #sandbox: Sandbox;
  readonly #padding: string;
  readonly checker: LineChecker;
  readonly #deadline: () => number;
  #command: CommandHandle | undefined;
  #asked = 0;
  #told = false;

  constructor(sandbox: Sandbox, padding: string, deadline: () => number) {
    this.#sandbox = sandbox;
    this.#padding = padding;
    this.checker = new LineChecker(padding);
    this.#deadline = deadline;
  }

  async start(): Promise<void> {
    this.#command = await this.#sandbox.commands.run(producer(this.#padding), {
      background: true,
      stdin: true,
      timeoutMs: 0,
      requestTimeoutMs: 0,
      onStdout: (text) => {
        this.checker.take(text);
        this.askForMore();
      },
    });
  }

  /** Always one word ahead: the program never waits for us. */
  askForMore(): void {
    while (!this.#told && this.#asked - this.checker.received < 2 * LINES_AT_ONCE) {
      this.#told = Date.now() >= this.#deadline();
      this.#asked += LINES_AT_ONCE;
      this.#command?.sendStdin(this.#told ? "end\n" : "more\n", { requestTimeoutMs: 0 }).catch((error: unknown) => {
        this.checker.problem ??= String(error);
      });
    }
  }

  /** The SDK keeps all that a command said; over a minute, nobody has the memory for it. */
  forget(): void {
    (this.#command as unknown as { _stdout: string })._stdout = "";
  }

  async ended(): Promise<number | undefined> {
    return (await this.#command?.wait())?.exitCode;
  }
}

function rssMib(pid: number): number {
  const kib = /^VmRSS:\s+(\d+) kB/m.exec(readFileSync(`/proc/${pid}/status`, "utf8"))?.[1];
  return Number(kib) / 1024;
}

function median(values: readonly number[]): number {
  return values.toSorted((a, b) => a - b)[Math.floor(values.length / 2)] ?? Number.NaN;
}

const server = useServer();

test(
  `${SANDBOXES} sandboxes with ${STREAMS_EACH} streams each for ${SECONDS} s lose nothing, and the server stays flat`,
  async () => {
    const client = new E2B({ apiKey: server.apiKey, apiUrl: server.url, sandboxUrl: server.url });
    const sandboxes: Sandbox[] = [];
    for (let i = 0; i < SANDBOXES; i++) {
      const { status, body } = await server.call<{ id: string }>("POST", "/v1/sandboxes", {
        limits: LIMITS,
        timeoutMs: 600_000,
      });
      expect(status, JSON.stringify(body)).toBe(201);
      sandboxes.push(await client.Sandbox.connect(body.id));
    }

    let deadline = Number.POSITIVE_INFINITY;
    const streams = sandboxes.flatMap((sandbox, s) =>
      Array.from(
        { length: STREAMS_EACH },
        (_, n) => new Stream(sandbox, `${s}.${n} ${"x".repeat(80)}`, () => deadline),
      ),
    );
    await Promise.all(streams.map((stream) => stream.start()));
    const started = Date.now();
    deadline = started + SECONDS * 1000;
    for (const stream of streams) stream.askForMore();
    const ended = Promise.all(streams.map((stream) => stream.ended()));
    let over = false;
    const stopSampling = () => {
      over = true;
    };
    ended.then(stopSampling, stopSampling);
    const samples: number[] = [];
    while (!over) {
      samples.push(rssMib(server.pid));
      for (const stream of streams) stream.forget();
      await sleep(100);
    }
    expect(new Set(await ended)).toEqual(new Set([0]));
    const seconds = (Date.now() - started) / 1000;

    const bad = streams.map(({ checker }) => checker).filter((checker) => !checker.complete);
    expect(bad.map((checker) => checker.problem ?? `${checker.received} of ${checker.total} lines`)).toEqual([]);
    const bytes = streams.map(({ checker }) => checker.bytes);
    const totalMib = bytes.reduce((sum, count) => sum + count, 0) / MIB;
    // At first it takes what it needs for so many streams, then it may not grow. A short run is mostly that beginning.
    const third = Math.floor(samples.length / 3);
    const [middle, last] = [median(samples.slice(third, 2 * third)), median(samples.slice(-third))];
    console.log(
      `${streams.length} streams, ${totalMib.toFixed(0)} MiB in ${seconds.toFixed(1)} s (${(totalMib / seconds).toFixed(1)} MiB/s), ` +
        `each ${(Math.min(...bytes) / MIB).toFixed(2)} to ${(Math.max(...bytes) / MIB).toFixed(2)} MiB; the server's memory: ` +
        `${middle.toFixed(0)} MiB in the second third, ${last.toFixed(0)} MiB in the last, ${Math.max(...samples).toFixed(0)} MiB at most`,
    );
    expect(Math.min(...bytes)).toBeGreaterThan(0);
    expect(last).toBeLessThan(SECONDS < 30 ? middle * 1.5 + 192 : middle * 1.2 + 32);
    expect(Math.max(...samples)).toBeLessThan(MAX_SERVER_MIB);
    await Promise.all(sandboxes.map((sandbox) => sandbox.kill()));
  },
  (SECONDS + 120) * 1000,
);
