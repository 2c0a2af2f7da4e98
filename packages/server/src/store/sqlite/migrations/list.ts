/** Every change of the tables, in the order of their names. What has been released is never edited; a new one is added. */
import type { Migration } from "kysely";
import { firstTables } from "./0001-first-tables.js";
import { origins } from "./0002-origins.js";
import { templates } from "./0003-templates.js";
import { memoryCeilings } from "./0004-memory-ceilings.js";

export const migrations: Readonly<Record<string, Migration>> = {
  "0001-first-tables": firstTables,
  "0002-origins": origins,
  "0003-templates": templates,
  "0004-memory-ceilings": memoryCeilings,
};
