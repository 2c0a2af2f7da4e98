/** Brings the tables up to date, or says why that cannot be. */
import { HoldfastError } from "@holdfast/protocol";
import { type Migration, Migrator } from "kysely";
import type { Connection } from "./connection.js";
import { databaseError } from "./database-error.js";

/** "Hold", as the first migration writes it into the file. */
const APPLICATION_ID = 0x486f6c64;

function requireOurs(connection: Connection, path: string): void {
  const id = Number(connection.rows("pragma application_id")[0]?.application_id ?? 0);
  if (id === APPLICATION_ID) return;
  // The bookkeeping tables of a first start that was cut short are no reason to refuse it.
  const [foreign] = connection.rows(
    "select name from sqlite_schema where type = 'table' and name not like 'kysely^_%' escape '^' limit 1",
  );
  if (id === 0 && foreign === undefined) return;
  throw new HoldfastError("engine_fault", `${path} is a database of another program`, {
    hint: "Move it away, or choose another state directory.",
    details: { path, applicationId: id },
  });
}

function requireKnown(connection: Connection, path: string, known: readonly string[]): void {
  const [table] = connection.rows("select name from sqlite_schema where name = 'kysely_migration'");
  if (table === undefined) return;
  const names = connection.rows("select name from kysely_migration order by name").map((row) => String(row.name));
  const unknown = names.filter((name) => !known.includes(name));
  if (unknown.length === 0) return;
  throw new HoldfastError(
    "host_unsupported",
    `the database ${path} was made by a newer version of Holdfast (it has ${unknown.join(", ")})`,
    {
      hint: "Start that version or a later one, or choose another state directory. Nothing was changed.",
      details: { path, unknown },
    },
  );
}

export async function migrate(
  connection: Connection,
  path: string,
  migrations: Readonly<Record<string, Migration>>,
): Promise<void> {
  requireOurs(connection, path);
  requireKnown(connection, path, Object.keys(migrations));
  connection.useWriteAheadLog();
  const db = connection.withDriver();
  const migrator = new Migrator({ db, provider: { getMigrations: async () => ({ ...migrations }) } });
  const { error } = await migrator.migrateToLatest();
  await db.destroy();
  if (error !== undefined) throw databaseError(path, error);
}
