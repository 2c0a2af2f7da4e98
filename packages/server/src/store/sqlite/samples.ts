import { setImmediate } from "node:timers/promises";
import type { SandboxId } from "@holdfast/protocol";
import { type Selectable, sql } from "kysely";
import type { SampleRow, Store } from "../store.js";
import type { Connection } from "./connection.js";
import type { SampleTable } from "./tables.js";
import { millisFromDate } from "./values.js";

const COLUMNS = [
  "sandbox_id",
  "at",
  "cpu_count",
  "cpu_used_pct",
  "memory_bytes",
  "memory_limit_bytes",
  "memory_cache_bytes",
  "disk_bytes",
  "disk_limit_bytes",
] as const satisfies (keyof SampleTable)[];

/** Each sandbox's samples lie together, so every row of a batch is a page of its own: this many take about a millisecond. */
const ROWS_AT_A_TIME = 100;

/** The rows as one JSON parameter: one statement whatever their number. Two looks in one millisecond: the first stands. */
const INSERT = `insert into samples (${COLUMNS.join(", ")})
  select ${COLUMNS.map((_, index) => `value ->> ${index}`).join(", ")} from json_each(?) where true
  on conflict do nothing`;

function columnsFromSample(row: SampleRow): SampleTable {
  return {
    sandbox_id: row.sandboxId,
    at: millisFromDate(row.at),
    cpu_count: row.cpuCount,
    cpu_used_pct: row.cpuUsedPct,
    memory_bytes: row.memoryBytes,
    memory_limit_bytes: row.memoryLimitBytes,
    memory_cache_bytes: row.memoryCacheBytes,
    disk_bytes: row.diskBytes,
    disk_limit_bytes: row.diskLimitBytes,
  };
}

function sampleFromColumns(columns: Selectable<SampleTable>): SampleRow {
  return {
    sandboxId: columns.sandbox_id as SandboxId,
    at: new Date(columns.at),
    cpuCount: columns.cpu_count,
    cpuUsedPct: columns.cpu_used_pct,
    memoryBytes: columns.memory_bytes,
    memoryLimitBytes: columns.memory_limit_bytes,
    memoryCacheBytes: columns.memory_cache_bytes,
    diskBytes: columns.disk_bytes,
    diskLimitBytes: columns.disk_limit_bytes,
  };
}

export function createSamples(connection: Connection): Store["samples"] {
  const { build } = connection;
  return {
    async insert(rows) {
      const values = rows.map((row) => {
        const columns = columnsFromSample(row);
        return COLUMNS.map((column) => columns[column]);
      });
      for (let start = 0; start < values.length; start += ROWS_AT_A_TIME) {
        if (start > 0) await setImmediate();
        connection.rows(INSERT, [JSON.stringify(values.slice(start, start + ROWS_AT_A_TIME))]);
      }
    },

    async list(sandboxId, { from, to, limit }) {
      let query = build.selectFrom("samples").selectAll().where("sandbox_id", "=", sandboxId);
      if (from !== undefined) query = query.where("at", ">=", millisFromDate(from));
      if (to !== undefined) query = query.where("at", "<=", millisFromDate(to));
      return connection.all(query.orderBy("at").limit(limit)).map(sampleFromColumns);
    },

    async latest(sandboxIds) {
      // One step into the index for each, however many samples it has.
      const query = sql<Selectable<SampleTable>>`
        select s.* from json_each(${JSON.stringify([...new Set(sandboxIds)])}) wanted
        join samples s on s.sandbox_id = wanted.value
          and s.at = (select max(at) from samples where sandbox_id = wanted.value)`;
      return connection.all({ compile: () => query.compile(build) }).map(sampleFromColumns);
    },

    async removeBefore(time) {
      connection.run(build.deleteFrom("samples").where("at", "<", millisFromDate(time)));
    },
  };
}
