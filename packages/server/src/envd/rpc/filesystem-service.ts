/** filesystem.Filesystem: what is in a sandbox's directories, not in its files. */
import type { MessageInitShape } from "@bufbuild/protobuf";
import type { ServiceImpl } from "@connectrpc/connect";
import type { FileEntry } from "@holdfast/engine";
import { HoldfastError } from "@holdfast/protocol";
import type { CreateWatcherRequest, Filesystem, WatchDirRequest, WatchDirResponseSchema } from "../gen/filesystem.js";
import { checkPath, checkPathOrHome } from "../paths.js";
import { Call, isDeadline } from "./call.js";
import { entryInfo } from "./entry-info.js";
import { PatientReader } from "./patient-reader.js";
import { ResponseBudget } from "./response-budget.js";
import { eventsWereLost, openWatch, type WatchOptions } from "./watch-events.js";
import { Watchers } from "./watchers.js";

async function listDirectory(call: Call, path: string, depth: number) {
  const budget = new ResponseBudget(`the list of '${path}'`, "List it in parts, or with less depth.");
  const entries: ReturnType<typeof entryInfo>[] = [];
  for await (const entry of call.live.sandbox.files.list(path, { ...call.asUser, depth })) {
    const info = entryInfo(entry);
    const metadata = Object.entries(info.metadata ?? {}).flat();
    budget.spend(entry.name, entry.path, info.symlinkTarget ?? "", entry.owner, entry.group, ...metadata);
    entries.push(info);
  }
  return entries;
}

async function makeDirectory(call: Call, path: string): Promise<FileEntry> {
  try {
    const { entry, created } = await call.live.sandbox.files.makeDirectory(path, call.asUser);
    if (created) return entry;
    throw new HoldfastError("file_exists", `directory already exists: ${entry.path}`);
  } catch (error) {
    const reason = HoldfastError.from(error);
    // A directory that is there is no failure to the engine: what stands in the way then is something else.
    if (reason.code !== "file_exists" || reason.details.errno === undefined) throw reason;
    throw new HoldfastError("file_wrong_type", `path already exists but it is not a directory: ${path}`);
  }
}

function watchOptions(request: WatchDirRequest | CreateWatcherRequest, call: Call): WatchOptions {
  return {
    path: checkPathOrHome("path", request.path),
    user: call.asUser,
    recursive: request.recursive,
    includeEntry: request.includeEntry,
  };
}

async function* watchDirectory(
  request: WatchDirRequest,
  call: Call,
): AsyncGenerator<MessageInitShape<typeof WatchDirResponseSchema>> {
  const options = watchOptions(request, call);
  const { keepaliveMs, live } = call;
  const stop = new AbortController();
  const { items } = await openWatch(live.sandbox.files, options, stop.signal);
  const reader = new PatientReader(items, {
    idleMs: keepaliveMs,
    stops: [live.gone, call.signal],
    release: () => stop.abort(),
  });
  try {
    yield { event: { case: "start", value: {} } };
    for (;;) {
      const turn = await reader.next();
      if (turn.kind === "end") return;
      if (turn.kind === "stopped") {
        if (live.gone.aborted) call.cut();
        else if (isDeadline(call.signal.reason)) throw call.signal.reason;
        return;
      }
      if (turn.kind === "idle") yield { event: { case: "keepalive", value: {} } };
      else if (turn.item.kind === "lost") throw eventsWereLost(options.path);
      else if (turn.item.kind === "event") yield { event: { case: "filesystem", value: turn.item.event } };
    }
  } finally {
    reader.close();
  }
}

export function createFilesystemService(): ServiceImpl<typeof Filesystem> {
  const watchers = new Watchers();
  return {
    async stat(request, context) {
      const call = new Call(context);
      const path = checkPathOrHome("path", request.path);
      return { entry: entryInfo(await call.live.sandbox.files.stat(path, call.asUser)) };
    },

    async makeDir(request, context) {
      return { entry: entryInfo(await makeDirectory(new Call(context), checkPath("path", request.path))) };
    },

    async move(request, context) {
      const call = new Call(context);
      const source = checkPath("source", request.source);
      const destination = checkPath("destination", request.destination);
      return { entry: entryInfo(await call.live.sandbox.files.move(source, destination, call.asUser)) };
    },

    async listDir(request, context) {
      const path = checkPathOrHome("path", request.path);
      return { entries: await listDirectory(new Call(context), path, Math.max(1, request.depth)) };
    },

    async remove(request, context) {
      const call = new Call(context);
      await call.live.sandbox.files.remove(checkPath("path", request.path), { ...call.asUser, recursive: true });
      return {};
    },

    watchDir(request, context) {
      return watchDirectory(request, new Call(context));
    },

    async createWatcher(request, context) {
      const call = new Call(context);
      return { watcherId: await watchers.create(call.live, watchOptions(request, call)) };
    },

    async getWatcherEvents(request, context) {
      return { events: await watchers.take(new Call(context).live, request.watcherId) };
    },

    removeWatcher(request, context) {
      watchers.remove(new Call(context).live, request.watcherId);
      return {};
    },
  };
}
