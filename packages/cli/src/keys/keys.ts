/** `holdfast key …`: on the server's database itself, whether the server runs or not. */
import { existsSync, mkdirSync } from "node:fs";
import { resolve } from "node:path";
import { HoldfastError, printable } from "@holdfast/protocol";
import {
  type ApiKey,
  createKeyRing,
  databasePath,
  defaultKeyLimits,
  type KeyRing,
  loadConfig,
  openSqliteStore,
  serverDirectory,
} from "@holdfast/server";
import { coloursFor } from "../text/colours.js";
import { note } from "../text/notes.js";
import { shortSize } from "../text/sizes.js";
import { formatTable } from "../text/table.js";
import { localTime } from "../text/times.js";
import { type KeyLimitFlags, parseKeyLimits } from "./key-limits.js";

export interface KeyFlags {
  readonly stateDir?: string;
  readonly json?: boolean;
}
export type KeyCreateFlags = KeyFlags & KeyLimitFlags;

const OLDEST_FIRST = (a: ApiKey, b: ApiKey): number => a.createdAt.getTime() - b.createdAt.getTime();

async function withKeys<T>(stateDirectory: string, work: (keys: KeyRing) => Promise<T>): Promise<T> {
  const store = await openSqliteStore(databasePath(stateDirectory));
  try {
    return await work(createKeyRing(store));
  } finally {
    await store.close();
  }
}

function requireRoot(stateDirectory: string): void {
  if (process.getuid?.() === 0) return;
  throw new HoldfastError("access_denied", `the keys in ${stateDirectory} are root's`, { hint: "Use sudo." });
}

/** Listing and revoking make no database where there is none. */
function requireDatabase(stateDirectory: string): void {
  requireRoot(stateDirectory);
  if (existsSync(databasePath(stateDirectory))) return;
  throw new HoldfastError("invalid_argument", `there are no keys in ${stateDirectory}: no server has run there`, {
    hint: "Name its directory with --state-dir or HOLDFAST_STATE_DIR, or start it with `holdfast serve`.",
    details: { field: "--state-dir" },
  });
}

async function readConfig(flags: KeyFlags) {
  return loadConfig({
    flags: flags.stateDir === undefined ? {} : { stateDirectory: resolve(flags.stateDir) },
    env: process.env,
  });
}

export async function createKey(name: string, flags: KeyCreateFlags): Promise<void> {
  const config = await readConfig(flags);
  const limits = parseKeyLimits(flags, defaultKeyLimits(config));
  requireRoot(config.stateDirectory);
  mkdirSync(serverDirectory(config.stateDirectory), { recursive: true, mode: 0o700 });
  const { key, secret } = await withKeys(config.stateDirectory, (keys) => keys.create(name, limits));
  if (flags.json === true) {
    process.stdout.write(`${JSON.stringify({ id: key.id, name: key.name, key: secret, limits: key.limits })}\n`);
    return;
  }
  process.stdout.write(`${secret}\n`);
  note(`made key ${key.id} (${printable(key.name)}). It is shown only now: keep it.`);
}

export async function listKeys(flags: KeyFlags): Promise<void> {
  const { stateDirectory } = await readConfig(flags);
  requireDatabase(stateDirectory);
  const keys = (await withKeys(stateDirectory, (ring) => ring.list())).sort(OLDEST_FIRST);
  if (flags.json === true) {
    const shown = keys.map(({ id, name, hint, createdAt, revokedAt, limits }) => ({
      id,
      name,
      hint,
      createdAt,
      revokedAt,
      limits,
    }));
    process.stdout.write(`${JSON.stringify(shown)}\n`);
    return;
  }
  if (keys.length === 0) note("there are no keys; `holdfast key create NAME` makes one");
  else process.stdout.write(keyTable(keys));
}

function keyTable(keys: readonly ApiKey[]): string {
  const { bold, dim } = coloursFor(process.stdout);
  const shown = (value: number | null, format: (value: number) => string = String): string =>
    value === null ? "-" : format(value);
  const rows = keys.map(({ id, name, hint, createdAt, revokedAt, limits }) => [
    id,
    printable(hint),
    localTime(createdAt.toISOString()).slice(0, 10),
    shown(limits.sandboxes),
    shown(limits.memoryBytes, shortSize),
    shown(limits.requestsPerSecond, (rate) => `${rate}/s`),
    `${printable(name)}${revokedAt === null ? "" : dim(` (revoked ${localTime(revokedAt.toISOString())})`)}`,
  ]);
  return formatTable([["ID", "KEY", "MADE", "SANDBOXES", "MEMORY", "RATE", "NAME"].map(bold), ...rows]);
}

export async function revokeKey(id: string, flags: KeyFlags): Promise<void> {
  const { stateDirectory } = await readConfig(flags);
  requireDatabase(stateDirectory);
  const revoked = await withKeys(stateDirectory, (keys) => keys.revoke(id));
  if (!revoked) {
    throw new HoldfastError("invalid_argument", `ID: there is no key ${printable(id)} to revoke`, {
      hint: "`holdfast key list` shows those there are. A key is named by its id, not by its secret.",
      details: { field: "ID" },
    });
  }
  note(`revoked key ${id}. Its sandboxes live on until their time is up.`);
}
