/**
 * After a start: brings together what the store believes and what the host really has. Nothing that has ended is shown
 * as running, nothing that runs is forgotten, and what was cut off in the middle leaves nothing behind.
 */
import type { Engine, Sandbox } from "@holdfast/engine";
import { HoldfastError, type SandboxId } from "@holdfast/protocol";
import type { Logger } from "pino";
import type { SandboxRow, Store } from "../store/store.js";
import type { SandboxLife } from "./sandbox-life.js";

const PAGE = 500;
const OUR_NAME = "the restarted server";

export interface Recovery {
  /** Running sandboxes that were taken over. */
  readonly adopted: number;
  readonly paused: number;
  readonly lost: number;
  /** Stopped ones that the store does not know. */
  readonly strays: readonly SandboxId[];
  /** Those that nobody answered for and that were removed. */
  readonly orphans: number;
}

async function unendedRows(store: Store): Promise<SandboxRow[]> {
  const rows: SandboxRow[] = [];
  for (;;) {
    const last = rows.at(-1);
    const page = await store.sandboxes.list({
      statuses: ["creating", "running", "paused"],
      limit: PAGE,
      ...(last === undefined ? {} : { after: { createdAt: last.createdAt, id: last.id } }),
    });
    rows.push(...page);
    if (page.length < PAGE) return rows;
  }
}

/** `keep` makes a life of a row; it is in the list from then on. */
export async function recover(
  parts: { readonly engine: Engine; readonly store: Store; readonly log: Logger },
  keep: (row: SandboxRow) => SandboxLife,
): Promise<Recovery> {
  const { engine, store, log } = parts;
  const alive = new Map<SandboxId, Sandbox>((await engine.adopt()).map((sandbox) => [sandbox.id, sandbox]));
  const stopped = new Set(engine.stopped());
  const counts = { adopted: 0, paused: 0, lost: 0 };
  for (const row of await unendedRows(store)) {
    const sandbox = alive.get(row.id);
    alive.delete(row.id);
    const hasFiles =
      stopped.delete(row.id) || (sandbox === undefined && row.status === "paused" && engine.salvage(row.id));
    let life: SandboxLife | undefined;
    try {
      if (row.status === "creating") {
        // Nobody was told of it.
        await sandbox?.kill(OUR_NAME);
        if (hasFiles) await engine.discard(row.id);
        await store.idempotency.releaseFor(row.id);
        await store.sandboxes.remove(row.id);
        continue;
      }
      life = keep(row);
      if (row.ending !== null) await life.endAsIntended(sandbox, row.ending, hasFiles);
      else if (sandbox !== undefined) await life.adopt(sandbox);
      else if (hasFiles) await life.adoptFiles("the server or the host was restarted, and its processes with it");
      else await life.lost("it ended while no server was running");
      if (life.row.status === "running") counts.adopted += 1;
      else if (life.row.status === "paused") counts.paused += 1;
      else counts.lost += 1;
    } catch (error) {
      const { message } = HoldfastError.from(error);
      log.error({ sandbox: row.id, error: message }, "a sandbox could not be taken over");
      await sandbox?.kill(OUR_NAME);
      await life?.lost(`it could not be taken over: ${message}`);
      counts.lost += 1;
    }
  }
  for (const sandbox of alive.values()) {
    log.warn({ sandbox: sandbox.id }, "a sandbox that the store does not know was ended");
    await sandbox.kill(OUR_NAME);
  }
  // The state directory is ours alone: what nobody answers for now, nobody will ever come back for.
  const swept = await engine.sweep({ which: "all" });
  return { ...counts, strays: [...stopped], orphans: alive.size + swept.length };
}
