/** What a recipe starts from: an image of this host, one that the operator has mapped the name to, or one of a registry. */
import { existsSync } from "node:fs";
import { isAbsolute } from "node:path";
import { HoldfastError } from "@holdfast/protocol";
import type { BaseResolver, ImagesContext } from "../context.js";
import { importImage } from "../oci/import-image.js";
import { pullImage } from "../registry/pull.js";
import { parseReference } from "../registry/reference.js";
import type { MayReach } from "../registry/transport.js";
import { parseImageReference } from "../store/reference.js";
import type { ImageRecord, Owner } from "../types.js";
import { type BaseProgress, ensureBase } from "./build-base.js";

export const DEFAULT_MIRROR = "http://deb.debian.org/debian";
export const DEFAULT_SECURITY_MIRROR = "http://deb.debian.org/debian-security";

export interface BaseOptions {
  readonly mirror?: string | undefined;
  readonly securityMirror?: string | undefined;
  /**
   * Names that stand for something else here: another name, or the path of an archive or OCI layout, which is imported on
   * first use. `ubuntu:22.04` -> `base`.
   */
  readonly aliases?: Readonly<Record<string, string>> | undefined;
  /** Whether a name that this host does not know is looked for in its registry. Default true. */
  readonly pull?: boolean | undefined;
  /** Which addresses registries are asked at for keys; the operator is free. */
  readonly mayReach?: MayReach | undefined;
  readonly onBaseProgress?: ((progress: BaseProgress) => void) | undefined;
}

type Resolving = Parameters<BaseResolver["resolve"]>[1];

/** The names that E2B's clients start from when they are not told. */
const BASE_ALIASES = ["base", "e2bdev/base", "e2bdev/base:latest"];

export function createBaseResolver(context: ImagesContext, options: BaseOptions = {}): BaseResolver {
  const base = (resolving: Resolving): Promise<ImageRecord> =>
    ensureBase(context, {
      mirror: options.mirror ?? DEFAULT_MIRROR,
      securityMirror: options.securityMirror ?? DEFAULT_SECURITY_MIRROR,
      onLine: resolving.onLine,
      onProgress: options.onBaseProgress,
      signal: resolving.signal,
    });

  async function byName(name: string, resolving: Resolving, followed: readonly string[] = []): Promise<ImageRecord> {
    const alias =
      options.aliases !== undefined && Object.hasOwn(options.aliases, name) ? options.aliases[name] : undefined;
    if (alias !== undefined && alias !== name) {
      if (followed.includes(alias)) {
        throw new HoldfastError("invalid_argument", `the names ${[...followed, alias].join(" -> ")} lead in a circle`, {
          hint: "Mend imageAliases in the server's configuration.",
        });
      }
      if (isAbsolute(alias)) return fromFile(name, alias, resolving);
      return byName(alias, resolving, [...followed, name]);
    }
    const found = context.store.find(name, resolving.owner);
    // Our own base is looked at more closely: it may be of an older make.
    if (BASE_ALIASES.includes(name) && (found === undefined || found.kind === "base")) return base(resolving);
    if (found !== undefined) return context.store.require(name, resolving.owner);
    parseImageReference(name);
    if (options.pull === false) return context.store.require(name, resolving.owner);
    resolving.onLine(`pulling ${name}`);
    return pullImage(context, name, {
      owner: resolving.owner,
      auth: resolving.authFor?.(parseReference(name).registry),
      signal: resolving.signal,
      onProgress: reportTo(resolving.onLine),
      mayReach: resolving.owner === null ? undefined : options.mayReach,
    });
  }

  /** Imported once; the name is the operator's, for everybody. */
  async function fromFile(name: string, path: string, resolving: Resolving): Promise<ImageRecord> {
    const found = context.store.find(name, null);
    if (found !== undefined) return found;
    if (!existsSync(path)) {
      throw new HoldfastError("image_not_found", `${name} stands for ${path} here, and there is nothing`, {
        hint: "Mend imageAliases in the server's configuration.",
      });
    }
    resolving.onLine(`importing ${name} from ${path}`);
    const { name: bare, tag } = parseImageReference(name);
    return importImage(
      context,
      { path },
      {
        owner: null,
        names: [{ owner: null, name: bare, tag: tag ?? "latest" }],
        signal: resolving.signal,
        onProgress: reportTo(resolving.onLine),
      },
    );
  }

  return {
    async resolve(wanted, resolving) {
      switch (wanted.kind) {
        case "base":
          return byName("base", resolving);
        case "image":
          return byName(wanted.name, resolving);
        case "snapshot":
          return requireSnapshot(context, wanted.id, resolving.owner);
      }
    },
  };
}

function requireSnapshot(context: ImagesContext, id: string, owner: Owner): ImageRecord {
  const record = context.store.require(id, owner);
  if (record.below !== null) {
    throw new HoldfastError(
      "image_invalid",
      `${id} is a snapshot on ${record.below.kind === "host" ? "this host's own programs" : "a root file system directory"}, which no image can be built on`,
      {
        hint: "Take the snapshot of a sandbox that was made from an image.",
      },
    );
  }
  return record;
}

/** One line for each step and each tenth of it. */
function reportTo(onLine: (text: string) => void) {
  let last = "";
  return (progress: {
    readonly phase: string;
    readonly doneBytes: number;
    readonly totalBytes: number | null;
  }): void => {
    const tenths =
      progress.totalBytes === null || progress.totalBytes === 0
        ? ""
        : ` ${Math.floor((progress.doneBytes * 10) / progress.totalBytes) * 10} %`;
    const line = `${progress.phase}${tenths}`;
    if (line === last) return;
    last = line;
    onLine(line);
  };
}
