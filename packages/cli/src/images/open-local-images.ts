/** The images of this machine, opened without a server. They lie in files that are safe for several processes at once. */
import type { BubblewrapEngine, Log } from "@holdfast/engine";
import type { BaseProgress, Images, OpenImagesOptions } from "@holdfast/images";
import { type EngineFlags, parseEngineFlags } from "../engine-options.js";
import { note } from "../text/notes.js";

export interface LocalImagesOptions {
  /** Absolute. */
  readonly scratchDirectory?: string | undefined;
  readonly onBaseProgress?: ((progress: BaseProgress) => void) | undefined;
}

export interface LocalImages {
  readonly engine: BubblewrapEngine;
  readonly images: Images;
  close(): Promise<void>;
}

type Environment = Readonly<Record<string, string | undefined>>;

export const noteWarnings: Log = {
  info: () => {},
  warn: ({ sandbox, layer, error }, message) => {
    const about = sandbox ?? layer;
    note(`${message}${about === undefined ? "" : ` (${String(about)})`}: ${String(error)}`);
  },
};

export async function openLocalImages(flags: EngineFlags, options: LocalImagesOptions = {}): Promise<LocalImages> {
  const { BubblewrapEngine, DEFAULT_STATE_DIRECTORY } = await import("@holdfast/engine");
  const given = parseEngineFlags(flags);
  const stateDirectory = given.stateDirectory ?? process.env.HOLDFAST_STATE_DIR ?? DEFAULT_STATE_DIRECTORY;
  const engine = await BubblewrapEngine.open({ ...given, log: noteWarnings });
  try {
    const images = await openImagesOver(engine, stateDirectory, options);
    return {
      engine,
      images,
      close: async () => {
        await images.close();
        await engine.close({ sandboxes: "kill" });
      },
    };
  } catch (error) {
    await engine.close({ sandboxes: "kill" });
    throw error;
  }
}

/** With the operator's own settings, as far as they can be known here. */
export async function openImagesOver(
  engine: BubblewrapEngine,
  stateDirectory: string,
  options: LocalImagesOptions,
): Promise<Images> {
  const { openImages } = await import("@holdfast/images");
  const settings = await imageSettings(process.env);
  return openImages({
    engine,
    stateDirectory,
    scratchDirectory: options.scratchDirectory ?? settings.scratchDirectory,
    bases: { ...settings.bases, onBaseProgress: options.onBaseProgress },
    builds: settings.builds,
    log: noteWarnings,
  });
}

/**
 * What `holdfast serve` would go by: its file and its variables. Its flags are only its own. Nobody waits for the server's
 * code where nothing is set.
 */
async function imageSettings(
  env: Environment,
): Promise<Pick<OpenImagesOptions, "scratchDirectory" | "bases" | "builds">> {
  const isConfigured = Object.entries(env).some(
    ([name, value]) => (name === "HOLDFAST_CONFIG" || name.startsWith("HOLDFAST_SERVE_")) && (value ?? "") !== "",
  );
  if (!isConfigured) return {};
  const { loadConfig } = await import("@holdfast/server");
  const config = loadConfig({ env });
  return {
    scratchDirectory: config.scratchDirectory ?? undefined,
    bases: {
      mirror: config.debianMirror,
      securityMirror: config.debianSecurityMirror,
      aliases: config.imageAliases,
      pull: config.imagePull,
    },
    builds: { parallel: config.buildParallel, network: { deny: config.buildDeny, allow: config.buildAllow } },
  };
}
