import { HoldfastError, type SandboxId } from "@holdfast/protocol";
import { sql } from "kysely";
import type { SandboxQuery, Store, StoredStatus } from "../store.js";
import type { Connection } from "./connection.js";
import { sqliteCode } from "./database-error.js";
import { appendEvent, noSuchSandbox } from "./events.js";
import { columnsFromChange, columnsFromSandbox, sandboxFromColumns } from "./sandbox-rows.js";
import { millisFromDate } from "./values.js";

function pairsOf(metadata: Readonly<Record<string, string>>): string[] {
  return Object.entries(metadata).map((pair) => JSON.stringify(pair));
}

function insertPairs(connection: Connection, id: SandboxId, metadata: Readonly<Record<string, string>>): void {
  for (const pair of pairsOf(metadata))
    connection.run(connection.build.insertInto("metadata_pairs").values({ sandbox_id: id, pair }));
}

/** Written out, not bound: only then does SQLite see that the indexes of living sandboxes serve. */
const ALIVE = sql<boolean>`status <> 'ended'`;

function asksForLiving(statuses: readonly StoredStatus[] | undefined): boolean {
  return statuses !== undefined && !statuses.includes("ended");
}

function listQuery({ build }: Connection, wanted: SandboxQuery) {
  let query = build.selectFrom("sandboxes").selectAll();
  if (wanted.keyId !== undefined) query = query.where("key_id", "=", wanted.keyId);
  if (wanted.statuses !== undefined) query = query.where("status", "in", wanted.statuses);
  if (asksForLiving(wanted.statuses)) query = query.where(ALIVE);
  if (wanted.template !== undefined) query = query.where("template", "=", wanted.template);
  const { templateName } = wanted;
  if (templateName !== undefined) {
    query = query.where(({ eb, or, and }) =>
      or([
        eb("template", "=", templateName),
        // What begins with the name and a colon; the semicolon is the next character.
        and([eb("template", ">=", `${templateName}:`), eb("template", "<", `${templateName};`)]),
      ]),
    );
  }
  if (wanted.startedAfter !== undefined) query = query.where("created_at", ">=", millisFromDate(wanted.startedAfter));
  for (const pair of pairsOf(wanted.metadata ?? {})) {
    const having = build.selectFrom("metadata_pairs").select("sandbox_id").where("pair", "=", pair);
    query = query.where("id", "in", having);
  }
  const order = wanted.order ?? "desc";
  const { after } = wanted;
  if (after !== undefined) {
    const createdAt = millisFromDate(after.createdAt);
    query = query.where(({ eb, refTuple, tuple }) =>
      eb(refTuple("created_at", "id"), order === "asc" ? ">" : "<", tuple(createdAt, after.id as string)),
    );
  }
  return query.orderBy("created_at", order).orderBy("id", order).limit(wanted.limit);
}

export function createSandboxes(connection: Connection): Store["sandboxes"] {
  const { build } = connection;

  /** Changes the row; resolves to whose it is. */
  function update(id: SandboxId, change: Parameters<typeof columnsFromChange>[0]): string {
    const columns = columnsFromChange(change);
    const query =
      Object.keys(columns).length === 0
        ? build.selectFrom("sandboxes").select("key_id").where("id", "=", id)
        : build.updateTable("sandboxes").set(columns).where("id", "=", id).returning("key_id");
    const row = connection.first<{ key_id: string }>(query);
    if (row === undefined) throw noSuchSandbox(id);
    if (change.metadata !== undefined) {
      connection.run(build.deleteFrom("metadata_pairs").where("sandbox_id", "=", id));
      insertPairs(connection, id, change.metadata);
    }
    return row.key_id;
  }

  return {
    async insert(row) {
      const columns = columnsFromSandbox(row);
      connection.transaction(() => {
        try {
          connection.run(build.insertInto("sandboxes").values(columns));
        } catch (error) {
          if (sqliteCode(error) !== "SQLITE_CONSTRAINT_PRIMARYKEY") throw error;
          throw new HoldfastError("sandbox_exists", `a sandbox with id "${row.id}" exists already`, { cause: error });
        }
        insertPairs(connection, row.id, row.metadata);
      });
    },

    async find(id) {
      const columns = connection.first(build.selectFrom("sandboxes").selectAll().where("id", "=", id));
      return columns === undefined ? undefined : sandboxFromColumns(columns);
    },

    async apply(id, change, event) {
      return connection.transaction(() => {
        const keyId = update(id, change);
        return appendEvent(connection, { ...event, sandboxId: id, keyId });
      });
    },

    async list(query) {
      return connection.all(listQuery(connection, query)).map(sandboxFromColumns);
    },

    async count({ keyId, statuses }) {
      let query = build
        .selectFrom("sandboxes")
        .select(({ fn }) => [fn.countAll<number>().as("count"), fn.sum<number | null>("memory_bytes").as("memory")]);
      if (keyId !== undefined) query = query.where("key_id", "=", keyId);
      if (statuses !== undefined) query = query.where("status", "in", statuses);
      if (asksForLiving(statuses)) query = query.where(ALIVE);
      const row = connection.first(query);
      return { count: row?.count ?? 0, memoryBytes: row?.memory ?? 0 };
    },

    async remove(id) {
      connection.transaction(() => {
        // What refers to the row goes with it; these two do not.
        connection.run(build.deleteFrom("sandboxes").where("id", "=", id));
        connection.run(build.deleteFrom("samples").where("sandbox_id", "=", id));
        connection.run(build.deleteFrom("idempotency").where("sandbox_id", "=", id));
      });
    },

    async endedBefore(time, limit) {
      const query = build.selectFrom("sandboxes").select("id").where("ended_at", "<", millisFromDate(time));
      return connection.all(query.orderBy("ended_at").limit(limit)).map(({ id }) => id as SandboxId);
    },
  };
}
