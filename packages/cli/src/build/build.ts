/**
 * `holdfast build`. The steps, in order: read the flags, find what is declared, open the images, build while it is shown,
 * tell what came of it.
 */
import { constants } from "node:os";
import { HoldfastError, type ImageInfo } from "@holdfast/protocol";
import { Image } from "@holdfast/recipe";
import type { BuildSteps, ImageHost } from "../images/image-host.js";
import { checkNewNames, noteBase } from "../images/new-names.js";
import { isServerNamed, openHost } from "../images/open-host.js";
import { nameFlag } from "../run/name-flag.js";
import { coloursFor } from "../text/colours.js";
import { note } from "../text/notes.js";
import { type BuildFlags, parseBuildArgs, parseBuilderFlags } from "./build-flags.js";
import type { BuildView } from "./build-view.js";
import { failureText, isBuildFailure } from "./failure-text.js";
import { type BuildSource, findSource } from "./find-source.js";
import { LiveProgress } from "./live-progress.js";
import { loadImage } from "./load-module.js";
import { PlainProgress } from "./plain-progress.js";
import { StepTracker } from "./step-tracker.js";
import { summaryText } from "./summary-text.js";

const BUILD_FAILED = 1;
/** A step's last lines may come so much later than its end, from a file that is looked at now and then. */
const LATE_MS = 600;
const LOOK_MS = 100;

/** Resolves to what the process shall exit with. */
export async function build(context: string, flags: BuildFlags): Promise<number> {
  const began = performance.now();
  const names = flags.tag ?? [];
  checkNewNames(names, "--tag");
  const builder = parseBuilderFlags(flags);
  const source = findSource(context, flags.file);
  const interrupts = watchInterrupts();
  const shown = new ShownBuild(flags.progress ?? "auto");
  let host: ImageHost | undefined;
  try {
    const isLocal = !isServerNamed(flags, process.env);
    shown.view.status("reading what is declared");
    host = await openHost(flags, { onBaseProgress: (progress) => shown.view.bar(progress) });
    // After everything that is named by a path of ours has been found: those of a module start at its context.
    const { signal } = interrupts;
    // A module may wait for something that never comes.
    const image = await untilAborted(declaredImage(source, flags), signal);
    const again = flags.cache === false;
    const built = await host.build(image, { names, builder, again, signal, ...shown.listeners });
    shown.close();
    const tookMs = Math.round(performance.now() - began);
    writeResult(built, { flags, names, shown, tookMs, isLocal });
    noteBase(names);
    return 0;
  } catch (reason) {
    const error = nameFlag(reason, [[/^image\b/, "--file"]]);
    shown.close(error.details.step);
    return tellFailure(error, { flags, shown, interrupts, began });
  } finally {
    shown.close();
    await host?.close();
    // Last: a signal during the clean-up must not cut it short, unless it is the second.
    interrupts.release();
  }
}

async function declaredImage(source: BuildSource, flags: BuildFlags): Promise<Image> {
  const { path, context } = source;
  const args = parseBuildArgs(flags.buildArg ?? [], process.env);
  if (source.kind === "dockerfile") return Image.fromDockerfile(path, { context, target: flags.target, args });
  if (flags.target !== undefined) {
    throw new HoldfastError("invalid_argument", "--target: is for Dockerfiles; a module says itself what it makes", {
      details: { field: "--target" },
    });
  }
  process.chdir(context);
  return loadImage(path, { args });
}

/** The view, and what it has been told. */
class ShownBuild {
  readonly view: BuildView;
  readonly #tracker: StepTracker;
  readonly #timer: NodeJS.Timeout;
  readonly isLive: boolean;
  #last: BuildSteps | undefined;
  #spokenAt = performance.now();

  constructor(progress: "auto" | "plain") {
    const { stderr } = process;
    this.isLive = progress === "auto" && stderr.isTTY === true && process.env.TERM !== "dumb";
    this.view = this.isLive
      ? new LiveProgress({ terminal: stderr, colours: coloursFor(stderr), waiting: () => this.#tracker.waiting })
      : new PlainProgress((text) => stderr.write(text));
    this.#tracker = new StepTracker(this.view);
    // Where lines stay for good they have to stand in the right order; a terminal is drawn anew anyway.
    const lateMs = this.isLive ? 0 : LATE_MS;
    this.#timer = setInterval(() => {
      if (performance.now() - this.#spokenAt > lateMs) this.#tracker.settle();
    }, LOOK_MS);
  }

  get listeners() {
    return {
      onLog: (line: Parameters<StepTracker["log"]>[0]): void => {
        this.#spokenAt = performance.now();
        this.#tracker.log(line);
      },
      onBuild: (build: BuildSteps): void => {
        if (this.#last === undefined) this.#spokenAt = performance.now();
        this.#last = build;
        this.#tracker.update(build.steps);
      },
    };
  }

  get build(): BuildSteps | undefined {
    return this.#last;
  }

  /** `failed`: the step that it failed in, which may not have been told. */
  close(failed?: unknown): void {
    clearInterval(this.#timer);
    this.#tracker.update(
      this.#tracker.steps.map((status) =>
        status.step === failed && status.state === "running"
          ? { ...status, state: "failed", endedAt: new Date().toISOString() }
          : status,
      ),
    );
    this.#tracker.settle();
    this.view.close();
  }
}

function writeResult(
  image: ImageInfo,
  told: {
    readonly flags: BuildFlags;
    readonly names: readonly string[];
    readonly shown: ShownBuild;
    readonly tookMs: number;
    readonly isLocal: boolean;
  },
): void {
  const { flags, names, tookMs, isLocal } = told;
  const { build } = told.shown;
  if (flags.json === true) {
    process.stdout.write(`${JSON.stringify({ image, build: build ?? null, tookMs })}\n`);
    return;
  }
  const colours = coloursFor(process.stdout);
  const cached = build?.cached ?? false;
  process.stdout.write(summaryText(image, { names, steps: build?.steps ?? [], cached, tookMs, isLocal, colours }));
  if (names.length === 0) note("it has no name, and goes with the next `holdfast image prune --all`; -t gives it one");
}

/** A build that failed is a result. What else went wrong is for the caller's caller. */
function tellFailure(
  error: HoldfastError,
  told: {
    readonly flags: BuildFlags;
    readonly shown: ShownBuild;
    readonly interrupts: ReturnType<typeof watchInterrupts>;
    readonly began: number;
  },
): number {
  const { flags, shown, interrupts } = told;
  const isInterrupted = error.code === "canceled" && interrupts.signal.aborted;
  if (!isBuildFailure(error) && !isInterrupted) throw error;
  if (flags.json === true) {
    const tookMs = Math.round(performance.now() - told.began);
    process.stdout.write(`${JSON.stringify({ error: error.toJSON(), build: shown.build ?? null, tookMs })}\n`);
  }
  if (isInterrupted) {
    note("the build was canceled; the steps that were done are kept");
    return interrupts.exitCode;
  }
  const steps = shown.build?.steps ?? [];
  process.stderr.write(failureText(error, { steps, colours: coloursFor(process.stderr) }));
  return BUILD_FAILED;
}

/** The first signal cancels the build and waits for its sandbox to go; the second does not wait. */
function watchInterrupts(): { readonly signal: AbortSignal; readonly exitCode: number; release(): void } {
  const controller = new AbortController();
  let exitCode = 0;
  const onSignal = (name: NodeJS.Signals): void => {
    exitCode = 128 + constants.signals[name];
    if (controller.signal.aborted) process.exit(exitCode);
    controller.abort(new HoldfastError("canceled", "the build was canceled"));
  };
  const signals = ["SIGINT", "SIGTERM"] as const;
  for (const signal of signals) process.on(signal, onSignal);
  return {
    signal: controller.signal,
    get exitCode() {
      return exitCode;
    },
    release: () => {
      for (const signal of signals) process.off(signal, onSignal);
    },
  };
}

/** The work's result, or the signal's reason as soon as it is aborted; the work itself goes on unheard. */
function untilAborted<T>(work: Promise<T>, signal: AbortSignal): Promise<T> {
  return new Promise((resolve, reject) => {
    const onAbort = (): void => reject(HoldfastError.from(signal.reason));
    signal.addEventListener("abort", onAbort, { once: true });
    work.then(resolve, reject).finally(() => signal.removeEventListener("abort", onAbort));
    if (signal.aborted) onAbort();
  });
}
