/**
 * The tables as they are. Times are integer milliseconds since 1970, truth is 0 or 1, and whatever a client may have
 * written freely is JSON: the driver cuts text at a NUL, and JSON has none.
 */
import type { Generated } from "kysely";

export interface KeyTable {
  id: string;
  name: string;
  secret_hash: string;
  hint: string;
  created_at: number;
  revoked_at: number | null;
  max_sandboxes: number | null;
  max_memory_bytes: number | null;
  requests_per_second: number | null;
}

export interface SandboxTable {
  id: string;
  key_id: string;
  template: string;
  status: string;
  created_at: number;
  expires_at: number | null;
  timeout_ms: number;
  on_timeout: string;
  auto_resume: number;
  memory_bytes: number;
  /** Null for a memory limit that does not grow by itself. */
  memory_max_bytes: number | null;
  pids: number;
  cpu_millis: number;
  disk_bytes: number;
  output_bytes: number;
  wall_ms: number | null;
  env: string;
  metadata: string;
  network: string;
  memory_kept: number | null;
  boots: number;
  ended_at: number | null;
  ending: string | null;
  /** What it was made from: `{ imageId, memory, volumes }`. Null in rows of before there were images. */
  origin: string | null;
}

/**
 * The metadata once more, one row a pair, to be searched. A pair is the JSON of `[key, value]`, which is another text for
 * every other pair whatever characters they hold, and is found by its index.
 */
export interface MetadataPairTable {
  sandbox_id: string;
  pair: string;
}

export interface EventTable {
  seq: Generated<number>;
  at: number;
  sandbox_id: string;
  key_id: string;
  kind: string;
  /** `{ message, data }` */
  body: string;
}

export interface CommandTable {
  sandbox_id: string;
  id: number;
  pid: number;
  /** `{ argv, env, cwd, user, tag }` */
  spec: string;
  pty: number;
  started_at: number;
  ended_at: number | null;
  ending: string | null;
}

export interface SampleTable {
  sandbox_id: string;
  at: number;
  cpu_count: number;
  cpu_used_pct: number;
  memory_bytes: number;
  memory_limit_bytes: number;
  memory_cache_bytes: number;
  disk_bytes: number;
  disk_limit_bytes: number;
}

export interface PostmortemTable {
  sandbox_id: string;
  body: string;
}

export interface IdempotencyTable {
  key_id: string;
  token: string;
  request_hash: string;
  sandbox_id: string;
  created_at: number;
}

export interface TemplateTable {
  id: string;
  key_id: string;
  name: string;
  created_at: number;
  updated_at: number;
}

export interface TemplateBuildTable {
  id: string;
  template_id: string;
  state: string;
  tags: string;
  cpu_count: number | null;
  memory_mb: number | null;
  disk_mb: number | null;
  leading_steps: number;
  created_at: number;
  started_at: number | null;
  ended_at: number | null;
  image_id: string | null;
  /** `{ step, message }` */
  failure: string | null;
}

export interface TemplateTagTable {
  template_id: string;
  tag: string;
  build_id: string;
  created_at: number;
}

export interface TemplateFileTable {
  key_id: string;
  hash: string;
  digest: string;
  uploaded_at: number;
}

export interface SettingTable {
  name: string;
  value: string;
}

export interface Tables {
  keys: KeyTable;
  sandboxes: SandboxTable;
  metadata_pairs: MetadataPairTable;
  events: EventTable;
  commands: CommandTable;
  samples: SampleTable;
  postmortems: PostmortemTable;
  idempotency: IdempotencyTable;
  templates: TemplateTable;
  template_builds: TemplateBuildTable;
  template_tags: TemplateTagTable;
  template_files: TemplateFileTable;
  settings: SettingTable;
}
