/** What a template's name stands for on this server. */
import type { ImageSource } from "@holdfast/engine";
import { resolveSandboxLimits, type SandboxLimits } from "@holdfast/protocol";
import type { ServerConfig, TemplateLimits } from "../config/schema.js";

const MIB = 1024 * 1024;

export interface Template {
  readonly name: string;
  readonly image: ImageSource;
  /** The image of this host that it stands for, instead of `image`. */
  readonly imageName: string | undefined;
  readonly limits: SandboxLimits;
}

function memoryOf({ startMb, mostMb }: { readonly startMb: number; readonly mostMb: number }) {
  return startMb < mostMb
    ? { memoryBytes: startMb * MIB, memoryMaxBytes: mostMb * MIB }
    : { memoryBytes: mostMb * MIB };
}

export class Templates {
  readonly #config: ServerConfig;

  constructor(config: ServerConfig) {
    this.#config = config;
  }

  names(): string[] {
    return [...new Set(["base", ...Object.keys(this.#config.templates)])];
  }

  find(name: string): Template | undefined {
    const configured = Object.hasOwn(this.#config.templates, name) ? this.#config.templates[name] : undefined;
    if (configured === undefined && name !== "base") return undefined;
    const image: ImageSource =
      configured !== undefined && "rootfs" in configured && configured.rootfs !== undefined
        ? { kind: "rootfs", path: configured.rootfs }
        : { kind: "host" };
    const imageName = configured !== undefined && "image" in configured ? configured.image : undefined;
    return { name, image, imageName, limits: this.defaults(configured) };
  }

  /** What a sandbox gets that does not ask for anything else. */
  defaults(instead: TemplateLimits = {}): SandboxLimits {
    const config = this.#config;
    return resolveSandboxLimits({
      ...memoryOf({
        startMb: instead.memoryStartMb ?? config.sandboxMemoryStartMb,
        mostMb: instead.memoryMb ?? config.sandboxMemoryMb,
      }),
      cpuMillis: Math.round((instead.cpus ?? config.sandboxCpus) * 1000),
      pids: instead.pids ?? config.sandboxPids,
      diskBytes: (instead.diskMb ?? config.sandboxDiskMb) * MIB,
      outputBytes: config.sandboxOutputKb * 1024,
    });
  }
}
