/** What a template's name stands for on this server. */
import type { ImageSource } from "@holdfast/engine";
import { HoldfastError, resolveSandboxLimits, type SandboxLimits } from "@holdfast/protocol";
import type { ServerConfig } from "../config/schema.js";

const MIB = 1024 * 1024;

export interface Template {
  readonly name: string;
  readonly image: ImageSource;
  readonly limits: SandboxLimits;
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
    const config = this.#config;
    const limits = resolveSandboxLimits({
      memoryBytes: (configured?.memoryMb ?? config.sandboxMemoryMb) * MIB,
      cpuMillis: Math.round((configured?.cpus ?? config.sandboxCpus) * 1000),
      pids: configured?.pids ?? config.sandboxPids,
      diskBytes: (configured?.diskMb ?? config.sandboxDiskMb) * MIB,
      outputBytes: config.sandboxOutputKb * 1024,
    });
    const image: ImageSource =
      configured !== undefined && "rootfs" in configured && configured.rootfs !== undefined
        ? { kind: "rootfs", path: configured.rootfs }
        : { kind: "host" };
    return { name, image, limits };
  }

  get(name: string): Template {
    const template = this.find(name);
    if (template === undefined) {
      throw new HoldfastError("image_not_found", `template '${name}' not found`, {
        hint: `This server has: ${this.names().join(", ")}. Others are added under \`templates\` in its configuration.`,
        details: { field: "template" },
      });
    }
    return template;
  }
}
