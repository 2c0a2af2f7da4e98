import type { Selectable } from "kysely";
import type { ApiKey, KeyLimits, Store } from "../store.js";
import type { Connection } from "./connection.js";
import type { KeyTable } from "./tables.js";
import { dateOrNull, millisFromDate, millisOrNull } from "./values.js";

function limitColumns(limits: KeyLimits): Pick<KeyTable, "max_sandboxes" | "max_memory_bytes" | "requests_per_second"> {
  return {
    max_sandboxes: limits.sandboxes,
    max_memory_bytes: limits.memoryBytes,
    requests_per_second: limits.requestsPerSecond,
  };
}

function keyFromColumns(columns: Selectable<KeyTable>): ApiKey {
  return {
    id: columns.id,
    name: columns.name,
    secretHash: columns.secret_hash,
    hint: columns.hint,
    createdAt: new Date(columns.created_at),
    revokedAt: dateOrNull(columns.revoked_at),
    limits: {
      sandboxes: columns.max_sandboxes,
      memoryBytes: columns.max_memory_bytes,
      requestsPerSecond: columns.requests_per_second,
    },
  };
}

export function createKeys(connection: Connection): Store["keys"] {
  const { build } = connection;

  async function findBy(column: "id" | "secret_hash", value: string): Promise<ApiKey | undefined> {
    const columns = connection.first(build.selectFrom("keys").selectAll().where(column, "=", value));
    return columns === undefined ? undefined : keyFromColumns(columns);
  }

  return {
    async insert(key) {
      connection.run(
        build.insertInto("keys").values({
          id: key.id,
          name: key.name,
          secret_hash: key.secretHash,
          hint: key.hint,
          created_at: millisFromDate(key.createdAt),
          revoked_at: millisOrNull(key.revokedAt),
          ...limitColumns(key.limits),
        }),
      );
    },

    async list() {
      return connection
        .all(build.selectFrom("keys").selectAll().orderBy("created_at").orderBy("id"))
        .map(keyFromColumns);
    },

    async findByHash(secretHash) {
      return findBy("secret_hash", secretHash);
    },

    async find(id) {
      return findBy("id", id);
    },

    async revoke(id, at) {
      const query = build.updateTable("keys").set({ revoked_at: millisFromDate(at) });
      return connection.run(query.where("id", "=", id).where("revoked_at", "is", null)) > 0;
    },

    async setLimits(id, limits) {
      return connection.run(build.updateTable("keys").set(limitColumns(limits)).where("id", "=", id)) > 0;
    },
  };
}
