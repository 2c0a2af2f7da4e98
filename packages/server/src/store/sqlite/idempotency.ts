import { HoldfastError, type SandboxId } from "@holdfast/protocol";
import type { Selectable } from "kysely";
import type { IdempotencyRow, Store } from "../store.js";
import type { Connection } from "./connection.js";
import type { IdempotencyTable } from "./tables.js";
import { millisFromDate } from "./values.js";

function rowFromColumns(columns: Selectable<IdempotencyTable>): IdempotencyRow {
  return {
    keyId: columns.key_id,
    token: columns.token,
    requestHash: columns.request_hash,
    sandboxId: columns.sandbox_id as SandboxId,
    createdAt: new Date(columns.created_at),
  };
}

export function createIdempotency(connection: Connection): Store["idempotency"] {
  const { build } = connection;
  return {
    async claim(row) {
      const insert = build
        .insertInto("idempotency")
        .values({
          key_id: row.keyId,
          token: row.token,
          request_hash: row.requestHash,
          sandbox_id: row.sandboxId,
          created_at: millisFromDate(row.createdAt),
        })
        .onConflict((conflict) => conflict.doNothing());
      const select = build
        .selectFrom("idempotency")
        .selectAll()
        .where("key_id", "=", row.keyId)
        .where("token", "=", row.token);
      const standing = connection.transaction(() => {
        connection.run(insert);
        return connection.first(select);
      });
      if (standing === undefined) throw new HoldfastError("engine_fault", "an idempotency token was not stored");
      return rowFromColumns(standing);
    },

    async releaseFor(sandboxId) {
      connection.run(build.deleteFrom("idempotency").where("sandbox_id", "=", sandboxId));
    },

    async removeBefore(time) {
      connection.run(build.deleteFrom("idempotency").where("created_at", "<", millisFromDate(time)));
    },
  };
}
