/** An image by its name, for `holdfast run`: found, or built if it is the base, and what the sandbox gets of it. */

import { statSync } from "node:fs";
import type { BubblewrapEngine, CommandSpec, Sandbox, SandboxSpec } from "@holdfast/engine";
import type { EffectiveMemory, ImageRecord, Images } from "@holdfast/images";
import { HoldfastError } from "@holdfast/protocol";
import { openImagesOver } from "../images/open-local-images.js";
import { note } from "../text/notes.js";
import { bar, ProgressLine } from "../text/progress-line.js";
import type { NamedImage, RunPlan } from "./plan.js";

export interface FoundImage {
  readonly image: { readonly id: string; readonly digest: string };
  readonly memory: EffectiveMemory;
  readonly spec: Partial<SandboxSpec>;
  /** The command to run in it. What the image is there to run is started first, unless that is the command itself. */
  prepare(sandbox: Sandbox, signal: AbortSignal): Promise<CommandSpec>;
  close(): Promise<void>;
}

const BASE = ["base", "base:latest"];

export async function findNamedImage(
  engine: BubblewrapEngine,
  plan: RunPlan,
  named: NamedImage,
  signal: AbortSignal,
): Promise<FoundImage> {
  const { DEFAULT_STATE_DIRECTORY, defaultLimitsFor } = await import("@holdfast/engine");
  const { planSandbox, startImage } = await import("@holdfast/images");
  const stateDirectory = plan.engine.stateDirectory ?? process.env.HOLDFAST_STATE_DIR ?? DEFAULT_STATE_DIRECTORY;
  const progress = new BaseNotes();
  const images = await openImagesOver(engine, stateDirectory, { onBaseProgress: (told) => progress.tell(told) });
  try {
    const record = await findRecord(images, named.reference, signal).finally(() => progress.close());
    const { spec, memory } = planSandbox(record, {
      limits: plan.asked,
      defaults: defaultLimitsFor(await engine.capacity()),
      strict: named.strict,
    });
    const { command } = plan;
    const start = named.start ? record.config.start : null;
    const argv = command.argv.length > 0 || start !== null ? command.argv : ownWords(record, named);
    return {
      image: { id: record.id, digest: record.digest },
      memory,
      spec,
      prepare: async (sandbox, early) => {
        if (start === null) return { ...command, argv };
        if (argv.length === 0) return { ...command, argv: [...(await findShell(sandbox)), start.command] };
        const untilListening = record.floor?.listens === false ? "never" : true;
        await startImage(sandbox, start, { signal: early, untilListening });
        return command;
      },
      close: () => images.close(),
    };
  } catch (error) {
    await images.close();
    throw error;
  }
}

async function findRecord(images: Images, reference: string, signal: AbortSignal): Promise<ImageRecord> {
  const { store, bases } = images;
  if (BASE.includes(reference)) return bases.resolve({ kind: "base" }, { owner: null, onLine: () => {}, signal });
  try {
    const { requireForOperator } = await import("@holdfast/images");
    return requireForOperator(store, reference);
  } catch (reason) {
    const error = HoldfastError.from(reason);
    const isDirectory = statSync(reference, { throwIfNoEntry: false })?.isDirectory() === true;
    if (error.code !== "image_not_found" || !isDirectory) throw error;
    throw new HoldfastError(error.code, error.message, {
      hint: `To start from the directory of that name: --image ./${reference}`,
      details: error.details,
      cause: error,
    });
  }
}

/** As start commands are run anywhere. */
async function findShell(sandbox: Sandbox): Promise<readonly string[]> {
  try {
    await sandbox.files.stat("/bin/bash", { user: "root" });
    return ["/bin/bash", "-l", "-c"];
  } catch {
    // An image without bash has sh.
    return ["/bin/sh", "-c"];
  }
}

function ownWords({ id, config }: ImageRecord, { reference }: NamedImage): readonly string[] {
  const words = [...(config.entrypoint ?? []), ...(config.cmd ?? [])];
  if (words.length > 0) return words;
  throw new HoldfastError(
    "invalid_argument",
    `the command is missing: image ${reference} (${id}) does not say what to run`,
    {
      hint: `Name it: holdfast run --image ${reference} -- COMMAND`,
      details: { field: "the command" },
    },
  );
}

/** The base is built once, which takes minutes: a bar on a terminal, a line for each phase elsewhere. */
class BaseNotes {
  readonly #line = new ProgressLine();
  #last = "";

  tell({ phase, share }: { readonly phase: string; readonly share: number }): void {
    if (this.#line.isVisible) {
      this.#line.show(`building the base image, once: ${bar(share)} ${phase}`);
      return;
    }
    const text = `building the base image, once: ${Math.round(share * 100)} % ${phase}`;
    if (text !== this.#last) note(text);
    this.#last = text;
  }

  close(): void {
    this.#line.clear();
  }
}
