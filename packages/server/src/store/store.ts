/**
 * What the server remembers. One interface: SQLite implements it now, PostgreSQL can join. Everything is a promise for
 * its sake, and nothing here says how rows are stored.
 *
 * The event log is the truth about a sandbox's life. Each change of state is one event with its cause, and the sandbox's
 * row is what the events so far amount to: `sandboxes.apply` writes both in one transaction, so that neither is ever seen
 * without the other, whenever the process dies.
 */
import type { CommandEnding, EventKind, Postmortem, SandboxEnding, SandboxId, SandboxLimits } from "@holdfast/protocol";

export interface ApiKey {
  /** `k` and 12 hex digits: names the key, opens nothing. */
  readonly id: string;
  readonly name: string;
  /** SHA-256 of the secret, hex. The secret itself (`e2b_` and 40 hex digits) is shown once and kept nowhere. */
  readonly secretHash: string;
  /** The first and last digits, for a person to recognise it by. */
  readonly hint: string;
  readonly createdAt: Date;
  readonly revokedAt: Date | null;
  readonly limits: KeyLimits;
}

export interface KeyLimits {
  /** Sandboxes alive at once, paused ones included. Null: no limit. */
  readonly sandboxes: number | null;
  /** The sum of their memory limits. */
  readonly memoryBytes: number | null;
  /** Requests to the API a second, and how many may come at once after a quiet time. */
  readonly requestsPerSecond: number | null;
}

/** E2B's network settings, kept as given. */
export interface NetworkSettings {
  readonly allowInternetAccess: boolean | null;
  readonly allowPublicTraffic: boolean;
  /** The whole object as the client sent it, to be returned as it was. */
  readonly settings: Readonly<Record<string, unknown>> | null;
}

export type StoredStatus = "creating" | "running" | "paused" | "ended";

export interface SandboxRow {
  readonly id: SandboxId;
  readonly keyId: string;
  readonly template: string;
  readonly status: StoredStatus;
  readonly createdAt: Date;
  /** When its time is up; a paused one has no end. */
  readonly expiresAt: Date | null;
  /** What was last asked for, which an auto-resume grants again. */
  readonly timeoutMs: number;
  readonly onTimeout: "kill" | "pause" | "stop";
  readonly autoResume: boolean;
  readonly limits: SandboxLimits;
  readonly env: Readonly<Record<string, string>>;
  readonly metadata: Readonly<Record<string, string>>;
  readonly network: NetworkSettings;
  readonly memoryKept: boolean | null;
  readonly boots: number;
  readonly endedAt: Date | null;
  /** How it ended; of one that has not, how it was about to end when this was written. */
  readonly ending: SandboxEnding | null;
}

export interface NewEvent {
  readonly kind: EventKind;
  readonly message: string;
  readonly data: Readonly<Record<string, unknown>>;
}

export interface EventRow extends NewEvent {
  readonly seq: number;
  readonly at: Date;
  readonly sandboxId: SandboxId;
  readonly keyId: string;
}

export interface CommandRow {
  readonly sandboxId: SandboxId;
  readonly id: number;
  readonly pid: number;
  readonly argv: readonly string[];
  readonly env: Readonly<Record<string, string>>;
  readonly cwd: string | null;
  readonly user: string | null;
  readonly tag: string | null;
  readonly pty: boolean;
  readonly startedAt: Date;
  readonly endedAt: Date | null;
  readonly ending: CommandEnding | null;
}

/** A look at a sandbox's counters. */
export interface SampleRow {
  readonly sandboxId: SandboxId;
  readonly at: Date;
  readonly cpuCount: number;
  readonly cpuUsedPct: number;
  readonly memoryBytes: number;
  readonly memoryLimitBytes: number;
  readonly memoryCacheBytes: number;
  readonly diskBytes: number;
  readonly diskLimitBytes: number;
}

export interface SandboxQuery {
  /** Undefined: everybody's. */
  readonly keyId?: string | undefined;
  readonly statuses?: readonly StoredStatus[] | undefined;
  /** All of these pairs. */
  readonly metadata?: Readonly<Record<string, string>> | undefined;
  readonly template?: string | undefined;
  /** Inclusive. */
  readonly startedAfter?: Date | undefined;
  /** By creation, then id; newest first unless `asc`. */
  readonly order?: "asc" | "desc" | undefined;
  readonly limit: number;
  /** The creation time and id of the last row of the page before. */
  readonly after?: { readonly createdAt: Date; readonly id: SandboxId } | undefined;
}

export interface IdempotencyRow {
  readonly keyId: string;
  readonly token: string;
  /** SHA-256 of the request it was first used for. */
  readonly requestHash: string;
  readonly sandboxId: SandboxId;
  readonly createdAt: Date;
}

export interface Store {
  readonly keys: {
    insert(key: ApiKey): Promise<void>;
    list(): Promise<ApiKey[]>;
    findByHash(secretHash: string): Promise<ApiKey | undefined>;
    find(id: string): Promise<ApiKey | undefined>;
    /** False if there is no such key or it was revoked before. */
    revoke(id: string, at: Date): Promise<boolean>;
    setLimits(id: string, limits: KeyLimits): Promise<boolean>;
  };
  readonly sandboxes: {
    insert(row: SandboxRow): Promise<void>;
    find(id: SandboxId): Promise<SandboxRow | undefined>;
    /** One transaction: changes the row and appends the event. Resolves to the new event. */
    apply(id: SandboxId, change: Partial<Omit<SandboxRow, "id" | "keyId">>, event: NewEvent): Promise<EventRow>;
    list(query: SandboxQuery): Promise<SandboxRow[]>;
    count(query: Pick<SandboxQuery, "keyId" | "statuses">): Promise<{ count: number; memoryBytes: number }>;
    /** Takes the row and everything about it away. */
    remove(id: SandboxId): Promise<void>;
    /** Rows that ended before then, to be removed. */
    endedBefore(time: Date, limit: number): Promise<SandboxId[]>;
  };
  readonly events: {
    append(event: NewEvent & { readonly sandboxId: SandboxId; readonly keyId: string }): Promise<EventRow>;
    /** In order of `seq`, those after `after`. */
    list(query: {
      readonly keyId?: string | undefined;
      readonly sandboxId?: SandboxId | undefined;
      readonly after?: number | undefined;
      readonly newestFirst?: boolean | undefined;
      readonly limit: number;
    }): Promise<EventRow[]>;
    lastSeq(): Promise<number>;
  };
  readonly commands: {
    /** The row and its `command_started` event, in one transaction. */
    insert(row: CommandRow, event: NewEvent & { readonly keyId: string }): Promise<EventRow>;
    /** The ending and its `command_ended` event. Undefined if the ending was known already. */
    end(
      sandboxId: SandboxId,
      id: number,
      ending: CommandEnding,
      at: Date,
      event: NewEvent & { readonly keyId: string },
    ): Promise<EventRow | undefined>;
    /** Newest first; all of them without a limit. `unended`: only those whose end is not known. */
    list(
      sandboxId: SandboxId,
      options?: { readonly limit?: number | undefined; readonly unended?: boolean | undefined },
    ): Promise<CommandRow[]>;
    find(sandboxId: SandboxId, id: number): Promise<CommandRow | undefined>;
  };
  readonly samples: {
    insert(rows: readonly SampleRow[]): Promise<void>;
    list(
      sandboxId: SandboxId,
      range: { readonly from?: Date | undefined; readonly to?: Date | undefined; readonly limit: number },
    ): Promise<SampleRow[]>;
    latest(sandboxIds: readonly SandboxId[]): Promise<SampleRow[]>;
    removeBefore(time: Date): Promise<void>;
  };
  readonly postmortems: {
    put(sandboxId: SandboxId, postmortem: Omit<Postmortem, "sandbox" | "events">): Promise<void>;
    find(sandboxId: SandboxId): Promise<Omit<Postmortem, "sandbox" | "events"> | undefined>;
  };
  readonly idempotency: {
    /** Resolves to the row that stands: the given one, or the one that was there before it. */
    claim(row: IdempotencyRow): Promise<IdempotencyRow>;
    /** A create that came to nothing frees its token. */
    releaseFor(sandboxId: SandboxId): Promise<void>;
    removeBefore(time: Date): Promise<void>;
  };
  readonly settings: {
    get(name: string): Promise<string | undefined>;
    /** Keeps what is there: resolves to the value that stands. */
    putIfAbsent(name: string, value: string): Promise<string>;
  };
  close(): Promise<void>;
}
