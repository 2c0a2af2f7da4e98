/**
 * What is counted of one server. Each has a registry of its own, never the library's global one: several servers may live
 * in one process. No label ever holds what comes from outside: all their values are of lists that are closed.
 */
import { LEFTOVERS, type LogFacts, WAIT_OUTCOMES, type Waited, type WarmStats } from "@holdfast/engine";
import {
  COMMAND_CAUSES,
  type CommandEnding,
  errorSpecs,
  HoldfastError,
  INCIDENTS,
  SANDBOX_CAUSES,
  type SandboxEnding,
} from "@holdfast/protocol";
import { Counter, Gauge, Histogram, Registry } from "prom-client";
import { REFUSAL_CODES, REFUSAL_SCOPES, REFUSED_WORK, type Refusal } from "../pressure/refusals.js";

export const CREATION_WAYS = ["cold", "warm", "fork", "resume"] as const;
export type CreationWay = (typeof CREATION_WAYS)[number];
export const BUILD_OUTCOMES = ["ready", "cached", "failed", "canceled"] as const;
export type BuildOutcome = (typeof BUILD_OUTCOMES)[number];

const START_SECONDS = [0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30];
const COMMAND_SECONDS = [0.01, 0.05, 0.1, 0.5, 1, 5, 15, 60, 300, 900, 3600];
const WAIT_SECONDS = [0.1, 0.5, 1, 2.5, 5, 10, 30, 60, 300, 900];

export interface CountedRequest {
  readonly plane: "api" | "envd";
  readonly method: string;
  /** Its pattern, never the path that was asked for. */
  readonly route: string;
  readonly status: number;
}

export class Metrics {
  readonly registry = new Registry();
  readonly #sandboxEndings = this.#counter("holdfast_sandbox_endings_total", "Sandboxes that ended, by cause", {
    cause: SANDBOX_CAUSES,
  });
  readonly #commandEndings = this.#counter("holdfast_command_endings_total", "Commands that ended, by cause", {
    cause: COMMAND_CAUSES,
  });
  readonly #incidents = this.#counter(
    "holdfast_command_incidents_total",
    "What happened to commands on their way: a process killed for memory, a refused fork, a full disk",
    { kind: INCIDENTS },
  );
  readonly #unknownCauses = this.#counter(
    "holdfast_unknown_causes_total",
    "Endings whose cause is none of those there are; must stay 0",
  );
  readonly #creates = this.#histogram(
    "holdfast_create_seconds",
    "From the request until the sandbox runs, the wait for room on the host not counted",
    { buckets: START_SECONDS, labels: { how: CREATION_WAYS } },
  );
  readonly #createFailures = this.#counter(
    "holdfast_create_failures_total",
    "Sandboxes that could not be made or resumed",
    {
      code: Object.keys(errorSpecs),
    },
  );
  readonly #kills = this.#histogram("holdfast_kill_seconds", "From the request until nothing of the sandbox is left", {
    buckets: START_SECONDS,
  });
  readonly #commands = this.#histogram("holdfast_command_seconds", "How long commands ran", {
    buckets: COMMAND_SECONDS,
  });
  readonly #waits = this.#histogram(
    "holdfast_queue_wait_seconds",
    "How long those waited who had to wait for room on the host, by what came of it",
    { buckets: WAIT_SECONDS, labels: { outcome: WAIT_OUTCOMES } },
  );
  readonly #cleanUpFailures = this.#counter(
    "holdfast_clean_up_failures_total",
    "Something could not be removed from the host and is left there for now",
    { what: LEFTOVERS },
  );
  readonly #builds = this.#counter("holdfast_builds_total", "Builds of images that ended, by outcome", {
    outcome: BUILD_OUTCOMES,
  });
  readonly #buildsUnderWay = this.#gauge("holdfast_builds_under_way", "Builds of images that were asked for here");
  readonly #requests = new Counter({
    name: "holdfast_http_requests_total",
    help: "Requests to the API and to envd, by the route's pattern",
    labelNames: ["plane", "method", "route", "code"],
    registers: [this.registry],
  });
  readonly #holds = this.#counter("holdfast_holds_total", "Sandboxes held still because their memory was all but used");
  readonly #grows = this.#counter("holdfast_grows_total", "Sandboxes given more memory while they ran");
  readonly #shrinks = this.#counter("holdfast_shrinks_total", "Sandboxes that gave memory back while they ran");
  readonly #averted = this.#counter(
    "holdfast_kills_averted_total",
    "Commands that were held, given more memory, and finished",
  );
  readonly #poolHits = this.#counter("holdfast_pool_hits_total", "Sandboxes that were taken from the warm pool");
  readonly #poolMisses = this.#counter(
    "holdfast_pool_misses_total",
    "Sandboxes that the warm pool could have had and did not",
  );
  readonly #poolWaste = this.#counter("holdfast_pool_wasted_total", "Warm sandboxes that nobody ever took");
  #poolBefore = { hits: 0, misses: 0, wasted: 0 };
  readonly #poolSize = this.#gauge("holdfast_pool_size", "Warm sandboxes that are ready now");
  readonly #orphans = this.#counter(
    "holdfast_orphans_reaped_total",
    "Processes and sandboxes that nobody answered for any more and that were ended",
  );
  readonly #zombies = this.#counter("holdfast_zombies_reaped_total", "Dead processes that were waited for in time");
  readonly #frozen = this.#counter(
    "holdfast_pressure_frozen_total",
    "Sandboxes that were made to stand still because the host was short of memory",
  );
  readonly #thawed = this.#counter(
    "holdfast_pressure_thawed_total",
    "Sandboxes that were let go on after that: they were used, or the host had memory again",
  );
  readonly #refused = this.#counter(
    "holdfast_pressure_refused_total",
    "What was not begun because the host, or the sandbox that it was for, was short of memory or processes",
    { work: REFUSED_WORK, code: REFUSAL_CODES, scope: REFUSAL_SCOPES },
  );
  readonly #stage = this.#gauge(
    "holdfast_pressure_stage",
    "How far the host's pressure has driven us: 0 is none, higher is worse",
  );

  sandboxEnded({ cause }: Pick<SandboxEnding, "cause">): void {
    if (SANDBOX_CAUSES.includes(cause.kind)) this.#sandboxEndings.inc({ cause: cause.kind });
    else this.#unknownCauses.inc();
  }

  commandEnded({ cause, incidents, usage }: Pick<CommandEnding, "cause" | "incidents" | "usage">): void {
    if (COMMAND_CAUSES.includes(cause.kind)) this.#commandEndings.inc({ cause: cause.kind });
    else this.#unknownCauses.inc();
    for (const { kind } of incidents) if (INCIDENTS.includes(kind)) this.#incidents.inc({ kind });
    this.#commands.observe(usage.wallMs / 1000);
  }

  created(how: CreationWay, tookMs: number): void {
    this.#creates.observe({ how }, tookMs / 1000);
  }

  createFailed(error: unknown): void {
    this.#createFailures.inc({ code: HoldfastError.from(error).code });
  }

  /** `work` says how long it has waited for room, which is not part of the time that it took. */
  async creating<T>(how: CreationWay, work: (onWaited: (waited: Waited) => void) => Promise<T>): Promise<T> {
    const since = performance.now();
    let waitedMs = 0;
    try {
      const result = await work((waited) => {
        waitedMs += waited.waitedMs;
      });
      this.created(how, performance.now() - since - waitedMs);
      return result;
    } catch (error) {
      this.createFailed(error);
      throw error;
    }
  }

  async killing<T>(work: () => Promise<T>): Promise<T> {
    const since = performance.now();
    const result = await work();
    this.#kills.observe((performance.now() - since) / 1000);
    return result;
  }

  waited({ waitedMs, outcome }: Waited): void {
    this.#waits.observe({ outcome }, waitedMs / 1000);
  }

  cleanUpFailed(what: NonNullable<LogFacts["left"]>, count = 1): void {
    this.#cleanUpFailures.inc({ what }, count);
  }

  buildBegan(): void {
    this.#buildsUnderWay.inc();
  }

  buildEnded(outcome: BuildOutcome): void {
    this.#buildsUnderWay.dec();
    this.#builds.inc({ outcome });
  }

  answered({ plane, method, route, status }: CountedRequest): void {
    this.#requests.inc({ plane, method, route, code: status });
  }

  /** A sandbox stands still because its memory is all but used. */
  held(): void {
    this.#holds.inc();
  }

  grew(): void {
    this.#grows.inc();
  }

  shrank(): void {
    this.#shrinks.inc();
  }

  /** A command was held, was given more memory, and finished. */
  averted(): void {
    this.#averted.inc();
  }

  /** The pool counts for itself; what has come since the last time is added. */
  pool({ ready, hits, misses, waste }: Pick<WarmStats, "ready" | "hits" | "misses" | "waste">): void {
    const wasted = Object.values(waste).reduce((sum, count) => sum + count, 0);
    this.#poolHits.inc(hits - this.#poolBefore.hits);
    this.#poolMisses.inc(misses - this.#poolBefore.misses);
    this.#poolWaste.inc(wasted - this.#poolBefore.wasted);
    this.#poolSize.set(ready);
    this.#poolBefore = { hits, misses, wasted };
  }

  orphansReaped(count: number): void {
    this.#orphans.inc(count);
  }

  zombiesReaped(count: number): void {
    this.#zombies.inc(count);
  }

  frozen(count: number): void {
    this.#frozen.inc(count);
  }

  thawed(count: number): void {
    this.#thawed.inc(count);
  }

  /** A sandbox that is refused before it is begun has failed like any other. */
  refused({ code, scope, work }: Refusal): void {
    this.#refused.inc({ code, scope, work });
    if (work === "create" || work === "resume") this.#createFailures.inc({ code });
  }

  pressureStage(stage: number): void {
    this.#stage.set(stage);
  }

  /** With a series for every value of its label from the start: an alert sees the first one, not only the second. */
  #counter<Label extends string = never>(
    name: string,
    help: string,
    labels?: Readonly<Record<Label, readonly string[]>>,
  ): Counter<Label> {
    const counter = new Counter<Label>({ name, help, labelNames: labelsOf(labels), registers: [this.registry] });
    for (const each of combinations(labels)) counter.inc(each, 0);
    return counter;
  }

  #gauge(name: string, help: string): Gauge {
    return new Gauge({ name, help, registers: [this.registry] });
  }

  #histogram<Label extends string = never>(
    name: string,
    help: string,
    options: { readonly buckets: readonly number[]; readonly labels?: Readonly<Record<Label, readonly string[]>> },
  ): Histogram<Label> {
    const labelNames = labelsOf(options.labels);
    const buckets = [...options.buckets];
    const histogram = new Histogram<Label>({ name, help, labelNames, buckets, registers: [this.registry] });
    for (const each of combinations(options.labels)) histogram.zero(each);
    return histogram;
  }
}

function labelsOf<Label extends string>(labels: Readonly<Record<Label, readonly string[]>> | undefined): Label[] {
  return Object.keys(labels ?? {}) as Label[];
}

/** Of all values of all labels; none if there are no labels. */
function combinations<Label extends string>(
  labels: Readonly<Record<Label, readonly string[]>> | undefined,
): Record<Label, string>[] {
  let all: Partial<Record<Label, string>>[] = labels === undefined ? [] : [{}];
  for (const label of labelsOf(labels)) {
    all = all.flatMap((each) => (labels?.[label] ?? []).map((value) => ({ ...each, [label]: value })));
  }
  return all as Record<Label, string>[];
}
