/**
 * How everything here is measured. The machine is never quiet, so nothing is measured alone: what is ours and what it is
 * compared with take turns (A B A B …), and whatever disturbs one disturbs the other. The ratio is the result; the
 * absolute times only say on what scale.
 */
import { setTimeout as sleep } from "node:timers/promises";
import type { BubblewrapEngine } from "@holdfast/engine";

/** What a figure has to work with. */
export interface Bench {
  readonly engine: BubblewrapEngine;
  /** Ours, removed at the end. */
  readonly scratchDirectory: string;
  readonly stateDirectory: string;
  readonly quick: boolean;
  /** Aborted by Ctrl-C: no further turn is begun. */
  readonly signal: AbortSignal;
  /** Starts a Docker daemon if there is none. */
  readonly mayStartDocker: boolean;
  /** Where CPU profiles of the server go; undefined: none are taken. */
  readonly profileDirectory: string | undefined;
  /** Undone at the end, the last first, also after Ctrl-C. */
  onEnd(undo: () => Promise<void> | void): void;
  /** A line about what is going on, where the table will not be. */
  say(text: string): void;
}

export interface Figure {
  readonly name: string;
  readonly title: string;
  run(bench: Bench): Promise<Row[]>;
}

export const UNITS = ["ms", "bytes", "MB/s"] as const;
export type Unit = (typeof UNITS)[number];

export interface Summary {
  readonly median: number;
  readonly p90: number;
  readonly p95: number;
  readonly min: number;
  readonly max: number;
  readonly count: number;
}

export type Goal =
  /** Ours, as a multiple of the peer's. */
  | { readonly kind: "ratio"; readonly atMost: number }
  | { readonly kind: "ratio"; readonly atLeast: number }
  /** Ours, in the row's unit. */
  | { readonly kind: "value"; readonly atMost: number }
  | { readonly kind: "value"; readonly atLeast: number }
  /** What ours has more than the peer's, in the row's unit. */
  | { readonly kind: "difference"; readonly atMost: number };

export interface Ratio {
  readonly median: number;
  /** Over the rounds. */
  readonly min: number;
  readonly max: number;
}

/** A peer's values by round; or why there are none. */
export type PeerResult = { readonly name: string } & (
  | { readonly rounds: readonly (readonly number[])[] }
  | { readonly absent: string }
);

export interface Row {
  readonly what: string;
  readonly unit: Unit;
  readonly ours: Summary;
  readonly peer?: { readonly name: string; readonly summary?: Summary; readonly absent?: string };
  readonly ratio?: Ratio;
  /** `reached`: what the goal is about, as it came out. */
  readonly goal?: Goal & { readonly reached: number; readonly met: boolean };
  readonly note?: string;
}

/** Something that can be measured again and again; `measure` resolves to one value in the row's unit. */
export interface Subject {
  readonly name: string;
  measure(): Promise<number>;
  /** Takes part in every n-th turn only: slow peers need not be seen as often. */
  readonly everyNth?: number;
}

export interface Turns {
  readonly rounds: number;
  /** Per round, at most. */
  readonly turns: number;
  /** A round that takes longer ends early, but not before it has `LEAST_TURNS`. */
  readonly roundMs: number;
  /** Whether each is done once before, uncounted, so that caches are filled. */
  readonly warmUp?: boolean;
  /** Quiet before each measurement. */
  readonly pauseMs?: number;
  readonly signal: AbortSignal;
}

const LEAST_TURNS = 2;

export async function timed(work: () => Promise<unknown>): Promise<number> {
  const start = performance.now();
  await work();
  return performance.now() - start;
}

/** Values by subject and round. The order of the subjects changes from round to round: who follows whom matters a little. */
export async function takeTurns(subjects: readonly Subject[], options: Turns): Promise<Map<string, number[][]>> {
  const values = new Map(subjects.map((subject) => [subject.name, [] as number[][]]));
  if (options.warmUp !== false) for (const subject of subjects) await subject.measure();
  for (let round = 0; round < options.rounds; round++) {
    for (const rounds of values.values()) rounds.push([]);
    const order = [...subjects.slice(round % subjects.length), ...subjects.slice(0, round % subjects.length)];
    const start = performance.now();
    for (let turn = 0; turn < options.turns; turn++) {
      if (turn >= LEAST_TURNS && performance.now() - start > options.roundMs) break;
      for (const subject of order) {
        if (turn % (subject.everyNth ?? 1) !== 0) continue;
        options.signal.throwIfAborted();
        if (options.pauseMs !== undefined) await sleep(options.pauseMs);
        const value = await subject.measure();
        values.get(subject.name)?.at(-1)?.push(value);
      }
    }
  }
  return values;
}

export function quantile(values: readonly number[], share: number): number {
  const sorted = [...values].sort((a, b) => a - b);
  const position = (sorted.length - 1) * share;
  const below = sorted[Math.floor(position)] ?? Number.NaN;
  const above = sorted[Math.ceil(position)] ?? below;
  return below + (above - below) * (position - Math.floor(position));
}

export function summarize(values: readonly number[]): Summary {
  return {
    median: quantile(values, 0.5),
    p90: quantile(values, 0.9),
    p95: quantile(values, 0.95),
    min: quantile(values, 0),
    max: quantile(values, 1),
    count: values.length,
  };
}

export function compareRounds(ours: readonly (readonly number[])[], theirs: readonly (readonly number[])[]): Ratio {
  const byRound = ours.map((values, round) => quantile(values, 0.5) / quantile(theirs[round] ?? [], 0.5));
  return {
    median: quantile(ours.flat(), 0.5) / quantile(theirs.flat(), 0.5),
    min: Math.min(...byRound),
    max: Math.max(...byRound),
  };
}

export function createRow(
  what: string,
  unit: Unit,
  rounds: readonly (readonly number[])[],
  options: { readonly peer?: PeerResult; readonly goal?: Goal; readonly note?: string } = {},
): Row {
  const { peer, goal, note } = options;
  const ours = summarize(rounds.flat());
  const compared = peer !== undefined && "rounds" in peer ? compareRounds(rounds, peer.rounds) : undefined;
  // What is the difference of two readings of the host may come out below nothing; a ratio of that is nonsense.
  const ratio = compared !== undefined && compared.min > 0 ? compared : undefined;
  const theirs = peer === undefined ? undefined : summarizePeer(peer);
  const reached = goal === undefined ? undefined : reachedFor(goal, ours, theirs?.summary, ratio);
  return {
    what,
    unit,
    ours,
    ...(theirs === undefined ? {} : { peer: theirs }),
    ...(ratio === undefined ? {} : { ratio }),
    ...(goal === undefined || reached === undefined ? {} : { goal: { ...goal, reached, met: isMet(goal, reached) } }),
    ...(note === undefined ? {} : { note }),
  };
}

function reachedFor(
  goal: Goal,
  ours: Summary,
  theirs: Summary | undefined,
  ratio: Ratio | undefined,
): number | undefined {
  switch (goal.kind) {
    case "value":
      return ours.median;
    case "ratio":
      return ratio?.median;
    case "difference":
      return theirs === undefined ? undefined : ours.median - theirs.median;
  }
}

function isMet(goal: Goal, reached: number): boolean {
  return "atMost" in goal ? reached <= goal.atMost : reached >= goal.atLeast;
}

function summarizePeer(peer: PeerResult): NonNullable<Row["peer"]> {
  return "rounds" in peer
    ? { name: peer.name, summary: summarize(peer.rounds.flat()) }
    : { name: peer.name, absent: peer.absent };
}

/** A peer as it is before it is measured: there, or not and why. */
export type Peer = Subject | { readonly name: string; readonly absent: string };

/**
 * One thing of ours against all its peers, in turns: a row for each peer. The goals are by the peer's name.
 */
export async function compareInTurns(
  what: string,
  ours: Subject,
  peers: readonly Peer[],
  options: Turns & {
    readonly goals?: Readonly<Record<string, Goal>>;
    readonly note?: string;
    readonly unit?: Unit;
  },
): Promise<Row[]> {
  const present = peers.flatMap((peer) => ("absent" in peer ? [] : [peer]));
  const values = await takeTurns([ours, ...present], options);
  const rounds = values.get(ours.name) ?? [];
  return peers.map((peer, index) => {
    const goal = options.goals?.[peer.name];
    return createRow(what, options.unit ?? "ms", rounds, {
      peer: "absent" in peer ? peer : { name: peer.name, rounds: values.get(peer.name) ?? [] },
      ...(goal === undefined ? {} : { goal }),
      ...(options.note === undefined || index > 0 ? {} : { note: options.note }),
    });
  });
}
