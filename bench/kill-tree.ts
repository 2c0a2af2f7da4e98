/** The end of five hundred processes: from the order until nothing of them is left. */
import { spawn } from "node:child_process";
import { setTimeout as sleep } from "node:timers/promises";
import type { Command, Sandbox } from "@holdfast/engine";
import { type Bench, compareInTurns, type Figure, type Row, timed } from "./harness.js";
import { ALL_CPUS, limitsWith } from "./sandboxes.js";

const PROCESSES = 500;
const LIMITS = limitsWith({ pids: 600, cpuMillis: ALL_CPUS });
const GOAL_MS = 100;
/** The shell and its sleepers; says so when all are there. */
const PROGRAM = [
  "/bin/sh",
  "-c",
  `i=1; while [ $i -lt ${PROCESSES} ]; do sleep 3600 & i=$((i+1)); done; echo all there; wait`,
];
const REAP_DEADLINE_MS = 3000;

/** Grown, and its output still read: as it is for whoever runs something and then wants it gone. */
async function startTree(sandbox: Sandbox): Promise<{ command: Command; outputEnd: Promise<void> }> {
  const command = await sandbox.start({ argv: PROGRAM });
  const output = command.output()[Symbol.asyncIterator]();
  if ((await output.next()).done) throw new Error(`the tree did not grow: ${(await command.ended).message}`);
  const readOn = async () => {
    while (!(await output.next()).done);
  };
  return { command, outputEnd: readOn() };
}

async function killSandbox(bench: Bench): Promise<number> {
  const sandbox = await bench.engine.create({ limits: LIMITS });
  await startTree(sandbox);
  return timed(() => sandbox.kill("the benchmark"));
}

async function cancelCommand(sandbox: Sandbox): Promise<number> {
  const { command, outputEnd } = await startTree(sandbox);
  const spent = await timed(() => command.cancel("the benchmark", { graceMs: 0 }));
  await outputEnd;
  return spent;
}

function isGroupAlive(group: number): boolean {
  try {
    process.kill(-group, 0);
    return true;
  } catch {
    return false;
  }
}

/**
 * A process group dies as one only because nobody in it has left it; a sandbox's processes may. All of them hold the
 * pipe: when that closes, none is left. That the host's PID 1 then reaps them is not counted, but waited for.
 */
async function killGroup(): Promise<number> {
  const [program = "", ...args] = PROGRAM;
  const child = spawn(program, args, { stdio: ["ignore", "pipe", "ignore"], detached: true });
  const group = child.pid ?? 0;
  const closed = new Promise((resolve) => child.once("close", resolve));
  await new Promise((resolve) => child.stdout.once("data", resolve));
  const spent = await timed(async () => {
    process.kill(-group, "SIGKILL");
    await closed;
  });
  const deadline = performance.now() + REAP_DEADLINE_MS;
  while (isGroupAlive(group) && performance.now() < deadline) await sleep(10);
  return spent;
}

export const killTree: Figure = {
  name: "kill-tree",
  title: `The end of ${PROCESSES} processes, until none is left`,
  async run(bench): Promise<Row[]> {
    const { signal, quick } = bench;
    const turns = { rounds: quick ? 1 : 3, turns: quick ? 1 : 2, roundMs: 5000, signal };
    const goals = { "kill of a group": { kind: "value", atMost: GOAL_MS } } as const;
    const peer = { name: "kill of a group", measure: killGroup };
    const whole = { name: "ours", measure: () => killSandbox(bench) };
    const rows = await compareInTurns("kill the sandbox, until all of it is gone", whole, [peer], { ...turns, goals });
    const sandbox = await bench.engine.create({ limits: LIMITS });
    try {
      const one = { name: "ours", measure: () => cancelCommand(sandbox) };
      rows.push(...(await compareInTurns("cancel the command, sandbox lives on", one, [peer], { ...turns, goals })));
    } finally {
      await sandbox.kill("the benchmark");
    }
    return rows;
  },
};
