import type { SandboxId } from "@holdfast/protocol";
import type { Selectable } from "kysely";
import type { CommandRow, Store } from "../store.js";
import type { Connection } from "./connection.js";
import { appendEvent, forSandbox } from "./events.js";
import type { CommandTable } from "./tables.js";
import {
  dateOrNull,
  isCommandEnding,
  isObject,
  isStringOrNull,
  isStringRecord,
  millisFromDate,
  millisOrNull,
  parseJson,
} from "./values.js";

type CommandSpecColumns = Pick<CommandRow, "argv" | "env" | "cwd" | "user" | "tag">;

function isSpec(value: unknown): value is CommandSpecColumns {
  return (
    isObject(value) &&
    Array.isArray(value.argv) &&
    value.argv.every((argument) => typeof argument === "string") &&
    isStringRecord(value.env) &&
    isStringOrNull(value.cwd) &&
    isStringOrNull(value.user) &&
    isStringOrNull(value.tag)
  );
}

function columnsFromCommand(row: CommandRow): CommandTable {
  const { argv, env, cwd, user, tag } = row;
  return {
    sandbox_id: row.sandboxId,
    id: row.id,
    pid: row.pid,
    spec: JSON.stringify({ argv, env, cwd, user, tag }),
    pty: Number(row.pty),
    started_at: millisFromDate(row.startedAt),
    ended_at: millisOrNull(row.endedAt),
    ending: row.ending === null ? null : JSON.stringify(row.ending),
  };
}

function commandFromColumns(columns: Selectable<CommandTable>): CommandRow {
  const where = `command ${columns.id} of sandbox ${columns.sandbox_id}`;
  const { argv, env, cwd, user, tag } = parseJson(columns.spec, isSpec, where);
  return {
    sandboxId: columns.sandbox_id as SandboxId,
    id: columns.id,
    pid: columns.pid,
    argv,
    env,
    cwd,
    user,
    tag,
    pty: columns.pty !== 0,
    startedAt: new Date(columns.started_at),
    endedAt: dateOrNull(columns.ended_at),
    ending: columns.ending === null ? null : parseJson(columns.ending, isCommandEnding, `the ending of ${where}`),
  };
}

/** So many of a sandbox's commands are remembered, with their events; a sandbox may run millions. */
const REMEMBERED = 10_000;
/** Looking for what to forget takes longer than a command's own row: not every time. */
const FORGET_EVERY = 512;

export function createCommands(connection: Connection): Store["commands"] {
  const { build } = connection;

  function forgetOld({ sandboxId, id }: CommandRow): void {
    if (id % FORGET_EVERY !== 0 || id <= REMEMBERED) return;
    const oldest = build
      .selectFrom("commands")
      .select("started_at")
      .where("sandbox_id", "=", sandboxId)
      .where("id", "=", id - REMEMBERED);
    connection.run(
      build
        .deleteFrom("events")
        .where("sandbox_id", "=", sandboxId)
        .where("kind", "in", ["command_started", "command_ended"])
        .where("at", "<", oldest),
    );
    connection.run(
      build
        .deleteFrom("commands")
        .where("sandbox_id", "=", sandboxId)
        .where("id", "<", id - REMEMBERED)
        .where("ended_at", "is not", null),
    );
  }

  return {
    async insert(row, event) {
      const columns = columnsFromCommand(row);
      const { sandbox_id: _, id: __, ...rest } = columns;
      // A sandbox that was booted anew counts its commands from one again: the new one takes the old one's place.
      const query = build
        .insertInto("commands")
        .values(columns)
        .onConflict((conflict) => conflict.columns(["sandbox_id", "id"]).doUpdateSet(rest));
      return connection.transaction(() => {
        forSandbox(row.sandboxId, () => connection.run(query));
        forgetOld(row);
        return appendEvent(connection, { ...event, sandboxId: row.sandboxId });
      });
    },

    async end(sandboxId, id, ending, at, event) {
      const query = build
        .updateTable("commands")
        .set({ ended_at: millisFromDate(at), ending: JSON.stringify(ending) })
        .where("sandbox_id", "=", sandboxId)
        .where("id", "=", id)
        .where("ended_at", "is", null);
      return connection.transaction(() =>
        connection.run(query) === 0 ? undefined : appendEvent(connection, { ...event, sandboxId }),
      );
    },

    async list(sandboxId, { limit, unended = false } = {}) {
      let query = build.selectFrom("commands").selectAll().where("sandbox_id", "=", sandboxId);
      if (unended) query = query.where("ended_at", "is", null);
      if (limit !== undefined) query = query.limit(limit);
      return connection.all(query.orderBy("started_at", "desc").orderBy("id", "desc")).map(commandFromColumns);
    },

    async find(sandboxId, id) {
      const query = build.selectFrom("commands").selectAll().where("sandbox_id", "=", sandboxId).where("id", "=", id);
      const columns = connection.first(query);
      return columns === undefined ? undefined : commandFromColumns(columns);
    },
  };
}
