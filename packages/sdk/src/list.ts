/** The list of sandboxes. */
import type { SandboxInfo, SandboxList } from "@holdfast/protocol";
import type { Waiting } from "./command.js";
import type { Transport } from "./transport.js";

export interface ListOptions extends Waiting {
  /** Default: all but those that have ended. */
  readonly status?: readonly ("creating" | "running" | "paused" | "ended")[] | undefined;
  /** Those that have all of these. */
  readonly metadata?: Readonly<Record<string, string>> | undefined;
  readonly template?: string | undefined;
}

export interface PageOptions extends ListOptions {
  /** At most 100, which is also the default. */
  readonly limit?: number | undefined;
  /** The `nextCursor` of the page before. */
  readonly cursor?: string | undefined;
}

export async function pageOfSandboxes(transport: Transport, options: PageOptions = {}): Promise<SandboxList> {
  const { status, metadata = {}, template, limit, cursor, signal } = options;
  const pairs = Object.entries(metadata).map(
    ([key, value]) => `${encodeURIComponent(key)}=${encodeURIComponent(value)}`,
  );
  return transport.json("GET", "/sandboxes", { query: { status, metadata: pairs, template, limit, cursor }, signal });
}

export async function* listSandboxes(transport: Transport, options: ListOptions = {}): AsyncGenerator<SandboxInfo> {
  let cursor: string | undefined;
  do {
    const page: SandboxList = await pageOfSandboxes(transport, { ...options, cursor });
    yield* page.sandboxes;
    cursor = page.nextCursor ?? undefined;
  } while (cursor !== undefined);
}
