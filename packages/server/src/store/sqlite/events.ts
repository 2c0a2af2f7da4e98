import { EVENT_KINDS, HoldfastError, type SandboxId } from "@holdfast/protocol";
import { type Selectable, sql } from "kysely";
import type { EventRow, NewEvent, Store } from "../store.js";
import type { Connection } from "./connection.js";
import { sqliteCode } from "./database-error.js";
import type { EventTable } from "./tables.js";
import { isObject, memberOf, parseJson } from "./values.js";

export type OwnedEvent = NewEvent & { readonly sandboxId: SandboxId; readonly keyId: string };

interface EventBody {
  readonly message: string;
  readonly data: Readonly<Record<string, unknown>>;
}

function isEventBody(value: unknown): value is EventBody {
  return isObject(value) && typeof value.message === "string" && isObject(value.data);
}

function eventFromColumns(columns: Selectable<EventTable>): EventRow {
  const { message, data } = parseJson(columns.body, isEventBody, `event ${columns.seq}`);
  return {
    seq: columns.seq,
    at: new Date(columns.at),
    sandboxId: columns.sandbox_id as SandboxId,
    keyId: columns.key_id,
    kind: memberOf(EVENT_KINDS, columns.kind, `the kind of event ${columns.seq}`),
    message,
    data,
  };
}

export function noSuchSandbox(id: string, cause?: unknown): HoldfastError {
  return new HoldfastError("sandbox_not_found", `no sandbox with id ${JSON.stringify(id)}`, {
    details: { sandboxId: id },
    cause,
  });
}

/** Runs what writes rows that belong to a sandbox. */
export function forSandbox<T>(id: string, write: () => T): T {
  try {
    return write();
  } catch (error) {
    throw sqliteCode(error) === "SQLITE_CONSTRAINT_FOREIGNKEY" ? noSuchSandbox(id, error) : error;
  }
}

/** To be called inside the transaction of the change that it tells of. */
export function appendEvent(connection: Connection, event: OwnedEvent): EventRow {
  const at = Date.now();
  const query = connection.build
    .insertInto("events")
    .values({
      at,
      sandbox_id: event.sandboxId,
      key_id: event.keyId,
      kind: event.kind,
      body: JSON.stringify({ message: event.message, data: event.data }),
    })
    .returning("seq");
  const [row] = forSandbox(event.sandboxId, () => connection.all(query));
  if (row === undefined) throw new HoldfastError("engine_fault", "an event was not stored");
  const { sandboxId, keyId, kind, message, data } = event;
  return { seq: row.seq, at: new Date(at), sandboxId, keyId, kind, message, data };
}

export function createEvents(connection: Connection): Store["events"] {
  return {
    async append(event) {
      return appendEvent(connection, event);
    },

    async list({ keyId, sandboxId, after, newestFirst = false, limit }) {
      let query = connection.build.selectFrom("events").selectAll();
      if (sandboxId !== undefined) query = query.where("sandbox_id", "=", sandboxId);
      // The plus keeps SQLite from going through all events of the key when those of one sandbox are asked for.
      if (keyId !== undefined)
        query = query.where(sandboxId === undefined ? sql.ref("key_id") : sql`+key_id`, "=", keyId);
      if (after !== undefined) query = query.where("seq", ">", after);
      return connection.all(query.orderBy("seq", newestFirst ? "desc" : "asc").limit(limit)).map(eventFromColumns);
    },

    async lastSeq() {
      // The table's own memory of the last number given, which the removal of events does not turn back.
      const [row] = connection.rows("select seq from sqlite_sequence where name = 'events'");
      return row === undefined ? 0 : Number(row.seq);
    },
  };
}
