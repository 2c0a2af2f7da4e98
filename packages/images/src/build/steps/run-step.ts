/** Steps that are programs of the image: a command line, a program, and the three package managers. */
import type { CommandSpec } from "@holdfast/engine";
import { type CommandEnding, HoldfastError } from "@holdfast/protocol";
import type { RecipeStep } from "@holdfast/recipe";
import { userInside } from "../../runtime/image-user.js";
import type { ImageConfig } from "../../types.js";
import { runCommand } from "../run-command.js";
import { failureOf, StepError } from "../step-failure.js";
import { ROOT, type StepJob } from "./step-job.js";

export type ProgramStep = Extract<RecipeStep, { kind: "run" | "exec" | "apt" | "pip" | "npm" }>;

/** Names are the script's arguments and never part of its text. */
const APT = `set -eu
apt-get update
apt-get install -y --no-install-recommends -- "$@"
apt-get clean
rm -rf /var/lib/apt/lists/*`;

const NPM_CACHE = "/tmp/.holdfast-npm-cache";

export function programOf(step: ProgramStep, config: ImageConfig): CommandSpec {
  switch (step.kind) {
    case "run":
      return asUser(step, config, [...(step.shell ?? ["/bin/sh", "-c"]), step.command]);
    case "exec":
      return asUser(step, config, step.argv);
    case "apt":
      return asRoot(["/bin/sh", "-c", APT, "apt", ...step.packages], { DEBIAN_FRONTEND: "noninteractive" });
    case "pip":
      return asRoot(
        ["python3", "-m", "pip", "install", "--no-cache-dir", ...indexOptions(step.indexUrl), "--", ...step.packages],
        // Where Debian guards its own packages, root of an image is who may do so.
        {
          PIP_BREAK_SYSTEM_PACKAGES: "1",
          PIP_DISABLE_PIP_VERSION_CHECK: "1",
          PIP_ROOT_USER_ACTION: "ignore",
          PIP_NO_INPUT: "1",
        },
      );
    case "npm": {
      const registry = step.registryUrl === undefined ? [] : [`--registry=${step.registryUrl}`];
      return asRoot(
        [
          "npm",
          "install",
          "-g",
          "--no-fund",
          "--no-audit",
          "--no-update-notifier",
          ...registry,
          "--",
          ...step.packages,
        ],
        { npm_config_cache: NPM_CACHE },
      );
    }
  }
}

/** An index without TLS was named by whoever wrote the recipe; pip wants to hear it twice. */
function indexOptions(indexUrl: string | undefined): string[] {
  if (indexUrl === undefined) return [];
  const { protocol, hostname } = new URL(indexUrl);
  return [`--index-url=${indexUrl}`, ...(protocol === "http:" ? [`--trusted-host=${hostname}`] : [])];
}

function asUser(
  step: Extract<ProgramStep, { kind: "run" | "exec" }>,
  config: ImageConfig,
  argv: readonly string[],
): CommandSpec {
  const own = Object.entries(step.env ?? {}).filter(([name]) => !Object.hasOwn(config.env, name));
  return {
    argv,
    user: step.user ?? config.user ?? ROOT,
    cwd: config.workdir ?? "/",
    env: Object.fromEntries(own),
  };
}

function asRoot(argv: readonly string[], env: Readonly<Record<string, string>>): CommandSpec {
  return { argv, user: ROOT, cwd: "/", env };
}

export async function runProgramStep(job: StepJob, step: ProgramStep): Promise<void> {
  const ending = await started(job, async () => {
    const spec = programOf(step, job.config);
    const user = await userInside(job.sandbox, spec.user ?? ROOT);
    return runCommand(job.sandbox, { ...spec, user }, job.run);
  });
  const failure = failureOf(ending, job.failing);
  if (failure !== undefined) throw failure;
  job.onEnding(ending);
  if (step.kind === "npm")
    await job.sandbox.files.remove(NPM_CACHE, { user: "root", recursive: true }).catch(ifMissing);
}

/** A program that cannot be started has failed as one that exits with the shell's number for it. */
async function started(job: StepJob, run: () => Promise<CommandEnding>): Promise<CommandEnding> {
  try {
    return await run();
  } catch (reason) {
    const error = HoldfastError.from(reason);
    if (error.code === "user_not_found") {
      throw noSuchUser(job, error);
    }
    const { exitCode } = error.details;
    if (error.code !== "command_failed_to_start" || typeof exitCode !== "number") throw error;
    throw new StepError(
      {
        message: `${job.failing.what} failed: ${error.message}`,
        hint:
          error.hint ?? "The image has no such program: install it in an earlier step, or begin with another image.",
        cause: { kind: "exited", code: exitCode },
      },
      { cause: error },
    );
  }
}

/** The engine says it in E2B's words, which are for E2B's clients. */
function noSuchUser(job: StepJob, error: HoldfastError): StepError {
  const name = /^invalid username: '(.*)'$/s.exec(error.message)?.[1];
  const why = name === undefined ? error.message : `the image has no user ${JSON.stringify(name)}`;
  return new StepError(
    {
      message: `${job.failing.what} failed: ${why}`,
      hint:
        name === undefined
          ? (error.hint ?? null)
          : `Make it in an earlier step (RUN useradd -m ${name}, or user(${JSON.stringify(name)}, { create: true })), or name one that the image knows.`,
    },
    { cause: error },
  );
}

function ifMissing(reason: unknown): void {
  if (HoldfastError.from(reason).code !== "file_not_found") throw reason;
}
