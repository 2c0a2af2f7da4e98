/** All of this package over one engine: what the server and the command line open. */
import { accessSync, constants, statSync } from "node:fs";
import { isAbsolute, join } from "node:path";
import { fileURLToPath } from "node:url";
import type { Engine, Log } from "@holdfast/engine";
import { HoldfastError, invalidArgument } from "@holdfast/protocol";
import { type BaseOptions, createBaseResolver } from "./base/resolve-base.js";
import { createBuilder } from "./build/builder.js";
import type { BaseResolver, ImagesContext } from "./context.js";
import { openImageStore } from "./store/open-image-store.js";
import type { Builder, ImageStore } from "./types.js";

export interface OpenImagesOptions {
  readonly engine: Engine;
  readonly stateDirectory: string;
  /** Where temporary files go; HOLDFAST_SCRATCH_DIR, else below the state directory. */
  readonly scratchDirectory?: string | undefined;
  readonly bases?: BaseOptions | undefined;
  readonly builds?:
    | {
        /** At once; others wait. */
        readonly parallel?: number | undefined;
        /** Addresses that build steps may or may not reach; see the engine's NetworkSpec. */
        readonly network?: { readonly deny: readonly string[]; readonly allow: readonly string[] } | undefined;
      }
    | undefined;
  readonly log?: Log | undefined;
}

export interface Images {
  readonly context: ImagesContext;
  readonly store: ImageStore;
  readonly builder: Builder;
  readonly bases: BaseResolver;
  close(): Promise<void>;
}

const silentLog: Log = { info: () => {}, warn: () => {} };

export async function openImages(options: OpenImagesOptions): Promise<Images> {
  const { engine, stateDirectory } = options;
  const log = options.log ?? silentLog;
  const scratchDirectory = chooseScratch(options);
  const tarProgram = findTarProgram();
  const store = openImageStore({ stateDirectory, layers: engine.layers, scratchDirectory, log });
  const context: ImagesContext = { engine, store, stateDirectory, scratchDirectory, tarProgram, log };
  const bases = createBaseResolver(context, options.bases);
  const builder = createBuilder(context, bases, options.builds ?? {});
  await store.recover();
  await builder.recover();
  return { context, store, builder, bases, close: () => builder.close() };
}

function chooseScratch(options: OpenImagesOptions): string {
  const chosen = options.scratchDirectory ?? process.env.HOLDFAST_SCRATCH_DIR;
  if (chosen === undefined || chosen === "") return join(options.stateDirectory, "images", "scratch");
  const field = options.scratchDirectory === undefined ? "HOLDFAST_SCRATCH_DIR" : "scratchDirectory";
  if (!isAbsolute(chosen)) throw invalidArgument(field, chosen, "an absolute path");
  if (statSync(chosen, { throwIfNoEntry: false })?.isDirectory() !== true) {
    throw invalidArgument(field, chosen, "a directory that exists");
  }
  try {
    accessSync(chosen, constants.W_OK);
  } catch {
    throw invalidArgument(field, chosen, "a directory that can be written to");
  }
  return chosen;
}

function findTarProgram(): string {
  const path = fileURLToPath(new URL("../../../guest/build/holdfast-tar", import.meta.url));
  if (statSync(path, { throwIfNoEntry: false }) === undefined) {
    throw new HoldfastError("host_unsupported", `${path} is not built`, {
      hint: "Run `npm run setup` (or `make -C guest`) once.",
    });
  }
  return path;
}
