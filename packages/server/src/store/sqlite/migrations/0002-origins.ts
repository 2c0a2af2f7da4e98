import { type Kysely, type Migration, sql } from "kysely";

/** What a sandbox was made from. */
export const origins: Migration = {
  async up(database: Kysely<unknown>): Promise<void> {
    await sql.raw("alter table sandboxes add column origin text").execute(database);
  },
};
