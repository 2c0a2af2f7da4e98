/**
 * One connection to the database file. Kysely writes the SQL; it is run here.
 *
 * The driver is synchronous, and so is a transaction: a function that runs from its `begin` to its `commit` without
 * giving up the thread. Two of them in this process cannot interleave. Other processes are kept out by `begin immediate`,
 * which takes the write lock at once and waits for it; a plain `begin` would take it at the first write and fail, without
 * waiting, if somebody had written in between.
 */
import { HoldfastError } from "@holdfast/protocol";
import {
  type Compilable,
  DummyDriver,
  Kysely,
  SqliteAdapter,
  SqliteDialect,
  SqliteIntrospector,
  SqliteQueryCompiler,
} from "kysely";
import Libsql from "libsql";
import { databaseError } from "./database-error.js";
import type { Tables } from "./tables.js";

type Statement = ReturnType<InstanceType<typeof Libsql>["prepare"]>;

/** More than the server has queries; filters of many pairs make queries of many shapes, and those come and go. */
const MAX_STATEMENTS = 256;

/** How long to wait for another process's transaction. */
const BUSY_TIMEOUT_MS = 5000;

const HALF_PAIR = /\p{Surrogate}/u;

/**
 * The driver ends the whole process on a boolean, binds an object as null and cuts text at a NUL when it is read back.
 * Nothing of the kind gets as far as that.
 */
function checkParameter(value: unknown): void {
  if (value === null) return;
  if (typeof value === "number" && Number.isFinite(value)) return;
  if (typeof value === "string") {
    if (!value.includes("\0") && !HALF_PAIR.test(value)) return;
    throw new HoldfastError(
      "invalid_argument",
      `${JSON.stringify(value.slice(0, 100))} is not text that can be stored`,
      {
        hint: "It must hold no NUL character and no half of a surrogate pair.",
      },
    );
  }
  throw new HoldfastError(
    "engine_fault",
    `a value of type ${typeof value} (${String(value)}) was given to the database`,
  );
}

/** SQLite can undo changes of tables, which Kysely does not assume: a migration is whole or not there. */
class TransactionalAdapter extends SqliteAdapter {
  override get supportsTransactionalDdl(): boolean {
    return true;
  }
}

class MigrationDialect extends SqliteDialect {
  override createAdapter(): TransactionalAdapter {
    return new TransactionalAdapter();
  }
}

export class Connection {
  /** Builds queries. It runs none: see `all` and `run`. */
  readonly build = new Kysely<Tables>({
    dialect: {
      createAdapter: () => new SqliteAdapter(),
      createDriver: () => new DummyDriver(),
      createIntrospector: (db) => new SqliteIntrospector(db),
      createQueryCompiler: () => new SqliteQueryCompiler(),
    },
  });
  readonly #path: string;
  readonly #database: InstanceType<typeof Libsql>;
  /** The oldest first; a used one moves to the end. */
  readonly #statements = new Map<string, Statement>();
  #open = true;

  constructor(path: string) {
    this.#path = path;
    this.#database = this.#attempt(() => new Libsql(path));
    try {
      this.rows(`pragma busy_timeout = ${BUSY_TIMEOUT_MS}`);
      this.rows("pragma foreign_keys = on");
    } catch (error) {
      this.#database.close();
      throw error;
    }
  }

  /** Changes the file: to be called when it is known to be ours. */
  useWriteAheadLog(): void {
    const mode = this.rows("pragma journal_mode = wal")[0]?.journal_mode;
    if (mode !== "wal") {
      throw new HoldfastError("engine_fault", `the database ${this.#path} cannot be used with a write-ahead log`, {
        hint: "Keep the state directory on a local file system.",
      });
    }
    // With a write-ahead log this survives the death of the process at any instant, and keeps the file whole when the
    // machine loses power; the very last changes may be missing then, and so are the sandboxes.
    this.rows("pragma synchronous = normal");
  }

  /** For migrations only: Kysely with a driver. */
  withDriver(): Kysely<Record<string, never>> {
    const prepare = (sql: string) => {
      const text = sql === "begin" ? "begin immediate" : sql;
      return {
        reader: this.#prepare(text).reader,
        all: (parameters: readonly unknown[]) => this.rows(text, parameters),
        run: (parameters: readonly unknown[]) => ({ changes: this.#change(text, parameters), lastInsertRowid: 0 }),
        iterate: (parameters: readonly unknown[]) => this.rows(text, parameters)[Symbol.iterator](),
      };
    };
    // It is closed with the connection.
    return new Kysely({ dialect: new MigrationDialect({ database: { prepare, close: () => undefined } }) });
  }

  all<Row>(query: Compilable<Row>): Row[] {
    const { sql, parameters } = query.compile();
    return this.rows(sql, parameters) as Row[];
  }

  first<Row>(query: Compilable<Row>): Row | undefined {
    return this.all(query)[0];
  }

  /** Resolves to how many rows changed. For queries that return rows there is `all`. */
  run(query: Compilable): number {
    const { sql, parameters } = query.compile();
    return this.#change(sql, parameters);
  }

  rows(sql: string, parameters: readonly unknown[] = []): Record<string, unknown>[] {
    const statement = this.#prepare(sql);
    for (const parameter of parameters) checkParameter(parameter);
    if (!statement.reader) {
      this.#attempt(() => statement.run(parameters));
      return [];
    }
    // Reading to the end is what resets a statement; `get` and `run` may leave one open, and its transaction with it.
    return this.#attempt(() => statement.all(parameters)) as Record<string, unknown>[];
  }

  transaction<T>(change: () => T): T {
    this.#change("begin immediate", []);
    try {
      const result = change();
      this.#change("commit", []);
      return result;
    } catch (error) {
      // Some failures, a full disk among them, have ended the transaction already.
      if (this.#database.inTransaction) this.#change("rollback", []);
      throw error;
    }
  }

  close(): void {
    if (!this.#open) return;
    try {
      // The driver closes the file when the last statement is collected, which is too late to tidy up after itself.
      this.rows("pragma wal_checkpoint(passive)");
    } finally {
      this.#open = false;
      this.#statements.clear();
      this.#database.close();
    }
  }

  #change(sql: string, parameters: readonly unknown[]): number {
    const statement = this.#prepare(sql);
    for (const parameter of parameters) checkParameter(parameter);
    if (statement.reader) throw new HoldfastError("engine_fault", `this query returns rows: ${sql}`);
    return this.#attempt(() => statement.run(parameters)).changes;
  }

  #prepare(sql: string): Statement {
    if (!this.#open) throw new HoldfastError("engine_fault", `the database ${this.#path} is closed`);
    const statement = this.#statements.get(sql) ?? this.#attempt(() => this.#database.prepare(sql));
    this.#statements.delete(sql);
    this.#statements.set(sql, statement);
    if (this.#statements.size > MAX_STATEMENTS) {
      const oldest = this.#statements.keys().next();
      if (oldest.done !== true) this.#statements.delete(oldest.value);
    }
    return statement;
  }

  #attempt<T>(action: () => T): T {
    try {
      return action();
    } catch (error) {
      throw databaseError(this.#path, error);
    }
  }
}
