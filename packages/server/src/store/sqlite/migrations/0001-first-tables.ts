import { type Kysely, type Migration, sql } from "kysely";

const STATEMENTS = [
  // "Hold": tells our file from somebody else's.
  "pragma application_id = 0x486f6c64",

  `create table keys (
    id text primary key,
    name text not null,
    secret_hash text not null unique,
    hint text not null,
    created_at integer not null,
    revoked_at integer,
    max_sandboxes integer,
    max_memory_bytes integer,
    requests_per_second real
  ) strict`,

  `create table sandboxes (
    id text primary key,
    key_id text not null,
    template text not null,
    status text not null,
    created_at integer not null,
    expires_at integer,
    timeout_ms integer not null,
    on_timeout text not null,
    auto_resume integer not null,
    memory_bytes integer not null,
    pids integer not null,
    cpu_millis integer not null,
    disk_bytes integer not null,
    output_bytes integer not null,
    wall_ms integer,
    env text not null,
    metadata text not null,
    network text not null,
    memory_kept integer,
    boots integer not null,
    ended_at integer,
    ending text
  ) strict`,
  "create index sandboxes_by_time on sandboxes (created_at, id)",
  "create index sandboxes_by_key on sandboxes (key_id, created_at, id)",
  // Most rows have ended, most questions are about those that live. The last columns let a count with its sum, which is
  // made for every create, be answered from the index alone.
  `create index sandboxes_alive_by_time on sandboxes (created_at, id, status, memory_bytes)
    where status <> 'ended'`,
  `create index sandboxes_alive_by_key on sandboxes (key_id, created_at, id, status, memory_bytes)
    where status <> 'ended'`,
  "create index sandboxes_by_end on sandboxes (ended_at) where ended_at is not null",

  `create table metadata_pairs (
    sandbox_id text not null references sandboxes (id) on delete cascade,
    pair text not null,
    primary key (sandbox_id, pair)
  ) strict, without rowid`,
  "create index metadata_pairs_by_pair on metadata_pairs (pair, sandbox_id)",

  // Autoincrement: a number is never given twice, even after the last events are removed. Clients keep it as a cursor.
  `create table events (
    seq integer primary key autoincrement,
    at integer not null,
    sandbox_id text not null references sandboxes (id) on delete cascade,
    key_id text not null,
    kind text not null,
    body text not null
  ) strict`,
  "create index events_by_sandbox on events (sandbox_id, seq)",
  "create index events_by_key on events (key_id, seq)",

  `create table commands (
    sandbox_id text not null references sandboxes (id) on delete cascade,
    id integer not null,
    pid integer not null,
    spec text not null,
    pty integer not null,
    started_at integer not null,
    ended_at integer,
    ending text,
    primary key (sandbox_id, id)
  ) strict`,
  "create index commands_by_start on commands (sandbox_id, started_at, id)",
  "create index commands_without_end on commands (sandbox_id, started_at, id) where ended_at is null",

  // No reference to sandboxes: samples are taken in one batch, and one sandbox that has just gone must not cost the rest.
  `create table samples (
    sandbox_id text not null,
    at integer not null,
    cpu_count real not null,
    cpu_used_pct real not null,
    memory_bytes integer not null,
    memory_limit_bytes integer not null,
    memory_cache_bytes integer not null,
    disk_bytes integer not null,
    disk_limit_bytes integer not null,
    primary key (sandbox_id, at)
  ) strict, without rowid`,
  "create index samples_by_time on samples (at)",

  `create table postmortems (
    sandbox_id text primary key references sandboxes (id) on delete cascade,
    body text not null
  ) strict`,

  // No reference to sandboxes: a token is claimed before the sandbox is made.
  `create table idempotency (
    key_id text not null,
    token text not null,
    request_hash text not null,
    sandbox_id text not null,
    created_at integer not null,
    primary key (key_id, token)
  ) strict, without rowid`,
  "create index idempotency_by_sandbox on idempotency (sandbox_id)",
  "create index idempotency_by_time on idempotency (created_at)",

  `create table settings (
    name text primary key,
    value text not null
  ) strict, without rowid`,
];

export const firstTables: Migration = {
  async up(db: Kysely<unknown>): Promise<void> {
    for (const statement of STATEMENTS) await sql.raw(statement).execute(db);
  },
};
