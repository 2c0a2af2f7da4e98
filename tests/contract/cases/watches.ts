import type { FilesystemEvent, Sandbox } from "e2b";
import { expect } from "vitest";
import { type Cases, type Cell, failure } from "../cell.js";

const ENVD_PORT = 49_983;

/** A watch that is asked for its events, which E2B's Python client has instead of a stream. */
async function poll(cell: Cell, sandbox: Sandbox, path: string, recursive: boolean) {
  const token = (sandbox as unknown as { envdAccessToken: string }).envdAccessToken;
  async function call<T>(method: string, body: object): Promise<T> {
    const response = await cell.reach(sandbox, ENVD_PORT, `/filesystem.Filesystem/${method}`, {
      method: "POST",
      headers: { "Content-Type": "application/json", "X-Access-Token": token },
      body: JSON.stringify(body),
    });
    expect(response.status, method).toBe(200);
    return (await response.json()) as T;
  }
  const { watcherId } = await call<{ watcherId: string }>("CreateWatcher", { path, recursive });
  return {
    async news(): Promise<string[]> {
      const { events = [] } = await call<{ events?: { type: string; name: string }[] }>("GetWatcherEvents", {
        watcherId,
      });
      return events.map(({ type, name }) => `${type.replace("EVENT_TYPE_", "").toLowerCase()} ${name}`);
    },
    stop: () => call("RemoveWatcher", { watcherId }),
  };
}

function recorder() {
  const events: FilesystemEvent[] = [];
  return {
    events,
    onEvent: (event: FilesystemEvent) => void events.push(event),
    has: (type: string, name: string) =>
      expect
        .poll(() => events.map((event) => `${event.type} ${event.name}`), { timeout: 5000, interval: 5 })
        .toContain(`${type} ${name}`),
  };
}

export const watchCases: Cases = {
  "a watch tells what happens in its directory": async ({ sandbox }) => {
    await sandbox.files.makeDir("/tmp/watched");
    const seen = recorder();
    const watch = await sandbox.files.watchDir("/tmp/watched", seen.onEvent);
    await sandbox.files.write("/tmp/watched/new.txt", "x");
    await seen.has("create", "new.txt");
    await seen.has("write", "new.txt");
    await sandbox.commands.run("chmod 600 /tmp/watched/new.txt");
    await seen.has("chmod", "new.txt");
    await sandbox.files.rename("/tmp/watched/new.txt", "/tmp/watched/other.txt");
    await seen.has("rename", "new.txt");
    await seen.has("create", "other.txt");
    await sandbox.files.remove("/tmp/watched/other.txt");
    await seen.has("remove", "other.txt");
    await sandbox.files.makeDir("/tmp/watched/sub");
    await seen.has("create", "sub");
    await sandbox.files.write("/tmp/watched/sub/unseen", "x");
    await watch.stop();
    const count = seen.events.length;
    expect(seen.events.map(({ name }) => name)).not.toContain("sub/unseen");
    await sandbox.files.write("/tmp/watched/after", "x");
    await sandbox.commands.run("sleep 0.2");
    expect(seen.events).toHaveLength(count);
  },

  "a recursive watch sees into directories that are made while it runs": async ({ sandbox }) => {
    await sandbox.commands.run("mkdir -p /tmp/deep/old/older");
    const seen = recorder();
    const watch = await sandbox.files.watchDir("/tmp/deep", seen.onEvent, { recursive: true });
    await sandbox.files.write("/tmp/deep/old/older/file", "x");
    await seen.has("write", "old/older/file");
    // All in one breath: the watch on each new directory comes after the files in it.
    await sandbox.commands.run(
      "cd /tmp/deep && mkdir -p new/newer/newest && echo x >new/newer/newest/file && echo x >new/file",
    );
    await seen.has("create", "new/newer/newest/file");
    await seen.has("create", "new/file");
    await sandbox.files.write("/tmp/deep/new/newer/newest/later", "x");
    await seen.has("write", "new/newer/newest/later");
    await watch.stop();
  },

  "an event brings the file's entry if asked": async ({ sandbox }) => {
    await sandbox.files.makeDir("/tmp/entries");
    const seen = recorder();
    const watch = await sandbox.files.watchDir("/tmp/entries", seen.onEvent, { includeEntry: true });
    await sandbox.files.write("/tmp/entries/file", "12345");
    await seen.has("write", "file");
    const written = seen.events.filter(({ type, name }) => type === "write" && name === "file");
    expect(written.at(-1)?.entry).toMatchObject({ name: "file", path: "/tmp/entries/file", type: "file", size: 5 });
    await sandbox.files.remove("/tmp/entries/file");
    await seen.has("remove", "file");
    expect(seen.events.find(({ type }) => type === "remove")?.entry).toBeUndefined();
    await watch.stop();
  },

  "only a directory that is there can be watched": async ({ sandbox, sdk }) => {
    await sandbox.files.write("/tmp/no-directory", "x");
    const watch = (path: string) => sandbox.files.watchDir(path, () => {});
    expect(await failure(watch("/tmp/no-directory"))).toBeInstanceOf(sdk.InvalidArgumentError);
    expect(await failure(watch("/not/there"))).toBeInstanceOf(sdk.NotFoundError);
  },

  "a watch ends when its time is up": async ({ sandbox, sdk }) => {
    const ended = new Promise<Error | undefined>((resolve, reject) => {
      sandbox.files
        .watchDir("/tmp", () => {}, { timeoutMs: 300, onExit: (error) => resolve(error) })
        .catch((error: unknown) => reject(error as Error));
    });
    expect(await ended).toBeInstanceOf(sdk.TimeoutError);
  },

  "whoever asks for events finds all that was done before": async (cell) => {
    const { sandbox } = cell;
    await sandbox.commands.run("mkdir -p /tmp/polled/deep");
    for (let round = 0; round < 10; round++) {
      const watch = await poll(cell, sandbox, "/tmp/polled", true);
      const name = `deep/file-${round}`;
      await sandbox.files.write(`/tmp/polled/${name}`, "new");
      expect(await watch.news()).toEqual([`create ${name}`, `chmod ${name}`, `write ${name}`]);
      await sandbox.files.write(`/tmp/polled/${name}`, "once more");
      expect((await watch.news())[0]).toBe(`write ${name}`);
      await sandbox.files.makeDir(`/tmp/polled/made-${round}`);
      await sandbox.files.write(`/tmp/polled/made-${round}/file`, "x");
      const news = await watch.news();
      expect(news).toContain(`create made-${round}`);
      expect(news).toContain(`create made-${round}/file`);
      expect(news).toContain(`write made-${round}/file`);
      expect(await watch.news()).toEqual([]);
      await watch.stop();
    }
  },
};
