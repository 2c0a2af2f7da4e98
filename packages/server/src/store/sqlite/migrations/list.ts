/** Every change of the tables, in the order of their names. What has been released is never edited; a new one is added. */
import type { Migration } from "kysely";
import { firstTables } from "./0001-first-tables.js";

export const migrations: Readonly<Record<string, Migration>> = {
  "0001-first-tables": firstTables,
};
