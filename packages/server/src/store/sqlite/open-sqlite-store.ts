/** The store in one SQLite file, which one server and any number of short-lived programs may have open at a time. */
import { chmod, open, stat } from "node:fs/promises";
import { HoldfastError } from "@holdfast/protocol";
import type { Store } from "../store.js";
import { createCommands } from "./commands.js";
import { Connection } from "./connection.js";
import { createEvents } from "./events.js";
import { createIdempotency } from "./idempotency.js";
import { createKeys } from "./keys.js";
import { migrate } from "./migrate.js";
import { migrations } from "./migrations/list.js";
import { createPostmortems } from "./postmortems.js";
import { createSamples } from "./samples.js";
import { createSandboxes } from "./sandboxes.js";
import { createSettings } from "./settings.js";
import { createTemplates } from "./templates.js";

/** Environment variables of sandboxes are in there, and the secret that tokens are derived from. */
const OWNER_ONLY = 0o600;

function codeOf(error: unknown): unknown {
  return error instanceof Error && "code" in error ? error.code : undefined;
}

function cannotOpen(path: string, error: unknown): HoldfastError {
  const said = error instanceof Error ? error.message : String(error);
  return new HoldfastError("engine_fault", `the database ${path} cannot be opened: ${said}`, {
    hint: "Its directory must exist and belong to the user the server runs as.",
    details: { path },
    cause: error,
  });
}

/**
 * SQLite gives its side files the mode of the main one, so that is made first, and before anything is in it. A file that
 * is there is not opened: closing it again would let go of the locks that this process may hold on it.
 */
async function prepareFile(path: string): Promise<void> {
  try {
    await (await open(path, "wx", OWNER_ONLY)).close();
  } catch (error) {
    if (codeOf(error) !== "EEXIST") throw cannotOpen(path, error);
    if (!(await stat(path)).isFile()) throw cannotOpen(path, "it is not a file");
  }
  for (const ending of ["", "-wal", "-shm"]) {
    try {
      await chmod(path + ending, OWNER_ONLY);
    } catch (error) {
      if (codeOf(error) !== "ENOENT") throw cannotOpen(path, error);
    }
  }
}

export async function openSqliteStore(path: string): Promise<Store> {
  await prepareFile(path);
  const connection = new Connection(path);
  try {
    await migrate(connection, path, migrations);
  } catch (error) {
    connection.close();
    throw error;
  }
  return {
    keys: createKeys(connection),
    sandboxes: createSandboxes(connection),
    events: createEvents(connection),
    commands: createCommands(connection),
    samples: createSamples(connection),
    postmortems: createPostmortems(connection),
    idempotency: createIdempotency(connection),
    templates: createTemplates(connection),
    settings: createSettings(connection),
    async close() {
      connection.close();
    },
  };
}
