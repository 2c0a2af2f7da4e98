/**
 * What the server remembers. One interface: SQLite implements it now, PostgreSQL can join. Everything is a promise for
 * its sake, and nothing here says how rows are stored.
 *
 * The event log is the truth about a sandbox's life. Each change of state is one event with its cause, and the sandbox's
 * row is what the events so far amount to: `sandboxes.apply` writes both in one transaction, so that neither is ever seen
 * without the other, whenever the process dies.
 */
import type {
  CommandEnding,
  EventKind,
  MemoryReport,
  Postmortem,
  SandboxEnding,
  SandboxId,
  SandboxLimits,
} from "@holdfast/protocol";

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

/** A volume that a sandbox sees at this path. */
export interface VolumeMount {
  readonly volumeId: string;
  readonly name: string;
  readonly path: string;
}

export type StoredStatus = "creating" | "running" | "paused" | "ended";

export interface SandboxRow {
  readonly id: SandboxId;
  readonly keyId: string;
  /** What it was made from, as it was called. */
  readonly template: string;
  /** The image it was made from; null for the host's own programs and root file systems. */
  readonly imageId: string | null;
  readonly memory: MemoryReport;
  readonly volumes: readonly VolumeMount[];
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
  /** The same, with whatever tag. */
  readonly templateName?: string | undefined;
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

export interface TemplateRow {
  /** `t` and 20 letters and digits. */
  readonly id: string;
  readonly keyId: string;
  /** One of a key's templates has it. Its tags are names of images. */
  readonly name: string;
  readonly createdAt: Date;
  /** When a build of it was last asked for. */
  readonly updatedAt: Date;
}

export interface TemplateFailure {
  readonly step: string;
  readonly message: string;
}

/** One build of a template: promised first, started later, and remembered longer than its log. */
export interface TemplateBuildRow {
  /** The id that the image builder knows it by, too. */
  readonly id: string;
  readonly templateId: string;
  readonly state: "waiting" | "building" | "ready" | "error";
  /** What its image is to be called. */
  readonly tags: readonly string[];
  /** What sandboxes get; null where the server's settings say. */
  readonly cpuCount: number | null;
  readonly memoryMb: number | null;
  readonly diskMb: number | null;
  /** How many steps its recipe has before the first of those that were asked for. */
  readonly leadingSteps: number;
  readonly createdAt: Date;
  readonly startedAt: Date | null;
  readonly endedAt: Date | null;
  readonly imageId: string | null;
  readonly failure: TemplateFailure | null;
}

export interface TemplateTagRow {
  readonly templateId: string;
  readonly tag: string;
  readonly buildId: string;
  readonly createdAt: Date;
}

/** An archive that a client has sent, by the client's own name for its content. */
export interface TemplateFileRow {
  readonly keyId: string;
  readonly hash: string;
  readonly digest: string;
  readonly uploadedAt: Date;
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
  readonly templates: {
    /** The key's template of this name, made if it is not there, with one more build. */
    request(template: TemplateRow, build: Omit<TemplateBuildRow, "templateId">): Promise<TemplateRow>;
    find(id: string): Promise<TemplateRow | undefined>;
    findByName(keyId: string, name: string): Promise<TemplateRow | undefined>;
    /** Newest first. */
    list(keyId: string): Promise<TemplateRow[]>;
    /** With its builds and tags. */
    remove(id: string): Promise<boolean>;
    findBuild(id: string): Promise<TemplateBuildRow | undefined>;
    /** Newest first. */
    builds(
      templateId: string,
      options: {
        readonly limit: number;
        readonly after?: { readonly createdAt: Date; readonly id: string } | undefined;
      },
    ): Promise<TemplateBuildRow[]>;
    countBuilds(templateId: string): Promise<number>;
    /** Those that have been started and have no end. */
    unendedBuilds(): Promise<TemplateBuildRow[]>;
    /** Whoever gets true starts it. */
    claimBuild(id: string, change: { readonly leadingSteps: number; readonly startedAt: Date }): Promise<boolean>;
    /** It could not be started after all, and waits again. */
    releaseBuild(id: string): Promise<void>;
    /** Its end; if its image is there, its tags are its own from then on. False if its end was known already. */
    endBuild(
      id: string,
      ending: {
        readonly endedAt: Date;
        readonly imageId: string | null;
        readonly failure: TemplateFailure | null;
      },
    ): Promise<boolean>;
    /** Takes away those that nobody can need: all but the newest, the tagged and those under way. */
    forgetBuilds(templateId: string, options: { readonly keep: number }): Promise<void>;
    tags(templateId: string): Promise<TemplateTagRow[]>;
    assignTags(templateId: string, tags: readonly string[], buildId: string, at: Date): Promise<void>;
    removeTags(templateId: string, tags: readonly string[]): Promise<void>;
    findFile(keyId: string, hash: string): Promise<TemplateFileRow | undefined>;
    putFile(row: TemplateFileRow): Promise<void>;
  };
  readonly settings: {
    get(name: string): Promise<string | undefined>;
    /** Keeps what is there: resolves to the value that stands. */
    putIfAbsent(name: string, value: string): Promise<string>;
  };
  close(): Promise<void>;
}
