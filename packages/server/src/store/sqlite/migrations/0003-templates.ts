import { type Kysely, type Migration, sql } from "kysely";

const STATEMENTS = [
  `create table templates (
    id text primary key,
    key_id text not null,
    name text not null,
    created_at integer not null,
    updated_at integer not null,
    unique (key_id, name)
  ) strict, without rowid`,

  `create table template_builds (
    id text primary key,
    template_id text not null references templates (id) on delete cascade,
    state text not null,
    tags text not null,
    cpu_count integer,
    memory_mb integer,
    disk_mb integer,
    leading_steps integer not null,
    created_at integer not null,
    started_at integer,
    ended_at integer,
    image_id text,
    failure text
  ) strict, without rowid`,
  "create index template_builds_by_time on template_builds (template_id, created_at, id)",
  "create index template_builds_unended on template_builds (id) where state = 'building'",

  `create table template_tags (
    template_id text not null references templates (id) on delete cascade,
    tag text not null,
    build_id text not null references template_builds (id) on delete cascade,
    created_at integer not null,
    primary key (template_id, tag)
  ) strict, without rowid`,
  "create index template_tags_by_build on template_tags (build_id)",

  `create table template_files (
    key_id text not null,
    hash text not null,
    digest text not null,
    uploaded_at integer not null,
    primary key (key_id, hash)
  ) strict, without rowid`,
];

/** What clients of E2B build. */
export const templates: Migration = {
  async up(database: Kysely<unknown>): Promise<void> {
    for (const statement of STATEMENTS) await sql.raw(statement).execute(database);
  },
};
