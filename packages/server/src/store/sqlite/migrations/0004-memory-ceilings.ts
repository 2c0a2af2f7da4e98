import { type Kysely, type Migration, sql } from "kysely";

/** How far a memory limit may grow by itself. */
export const memoryCeilings: Migration = {
  async up(database: Kysely<unknown>): Promise<void> {
    await sql.raw("alter table sandboxes add column memory_max_bytes integer").execute(database);
  },
};
