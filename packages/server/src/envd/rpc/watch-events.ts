/** What happens in a watched directory, as E2B's events. */
import type { MessageInitShape } from "@bufbuild/protobuf";
import { Code, ConnectError } from "@connectrpc/connect";
import type { SandboxFiles, WatchEvent } from "@holdfast/engine";
import { HoldfastError } from "@holdfast/protocol";
import { EventType, type FilesystemEventSchema } from "../gen/filesystem.js";
import { joinPath } from "../paths.js";
import { entryInfo } from "./entry-info.js";

export interface WatchOptions {
  readonly path: string;
  readonly user: { readonly user?: string };
  readonly recursive: boolean;
  readonly includeEntry: boolean;
}

export type FilesystemEventInit = MessageInitShape<typeof FilesystemEventSchema>;
/** `lost`: there was more than could be told, and the watch goes on. `caught_up`: the answer to a `catchUp`. */
export type WatchItem =
  | { readonly kind: "event"; readonly event: FilesystemEventInit }
  | { readonly kind: "lost" }
  | { readonly kind: "caught_up" };

export interface OpenWatch {
  readonly items: AsyncIterable<WatchItem>;
  catchUp(): void;
}

const TYPES: Readonly<Record<Exclude<WatchEvent["kind"], "overflow" | "caught_up">, EventType>> = {
  create: EventType.CREATE,
  write: EventType.WRITE,
  remove: EventType.REMOVE,
  rename: EventType.RENAME,
  chmod: EventType.CHMOD,
};
/** After these there is something to describe. */
const WITH_ENTRY: ReadonlySet<WatchEvent["kind"]> = new Set(["create", "write", "chmod"]);

export function eventsWereLost(path: string): ConnectError {
  const message = `more happened in '${path}' than could be told, and events were lost: list the directory again`;
  return new ConnectError(message, Code.DataLoss);
}

async function describe(files: SandboxFiles, path: string, options: WatchOptions) {
  try {
    return { entry: entryInfo(await files.stat(path, options.user)) };
  } catch (error) {
    // It came and went: then there is no entry, and the event for its going follows.
    if (HoldfastError.from(error).code === "file_not_found") return {};
    throw error;
  }
}

/** Resolves when the watch stands. Nothing is missed from then on. */
export async function openWatch(files: SandboxFiles, options: WatchOptions, signal: AbortSignal): Promise<OpenWatch> {
  const root = options.includeEntry ? (await files.stat(options.path, options.user)).path : options.path;
  const watch = await files.watch(root, { ...options.user, recursive: options.recursive, signal });
  async function* items(): AsyncGenerator<WatchItem> {
    for await (const { kind, name } of watch) {
      if (kind === "overflow" || kind === "caught_up") {
        yield { kind: kind === "overflow" ? "lost" : kind };
        continue;
      }
      const entry =
        options.includeEntry && WITH_ENTRY.has(kind) ? await describe(files, joinPath(root, name), options) : {};
      // The directory itself is "." to E2B.
      yield { kind: "event", event: { name: name === "" ? "." : name, type: TYPES[kind], ...entry } };
    }
  }
  return { items: items(), catchUp: () => watch.catchUp() };
}
