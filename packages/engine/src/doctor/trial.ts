/** The row that proves the others: a real sandbox, on the state directory's own file system, and gone afterwards. */
import { existsSync, mkdtempSync, rmSync } from "node:fs";
import { dirname, join } from "node:path";
import { HoldfastError } from "@holdfast/protocol";
import { BubblewrapEngine } from "../bubblewrap/engine.js";
import type { SandboxSpec } from "../engine.js";
import type { PoolKind } from "../storage/pool.js";
import type { DoctorRow } from "./row.js";

/** The directory itself, or the nearest one above it that is there. */
export function nearestDirectory(path: string): string {
  return existsSync(path) || path === "/" ? path : nearestDirectory(dirname(path));
}

export async function tryRealSandbox(options: {
  readonly stateDirectory: string;
  readonly pool: PoolKind;
}): Promise<DoctorRow> {
  const name = "a real sandbox";
  let directory: string | undefined;
  try {
    directory = mkdtempSync(join(nearestDirectory(options.stateDirectory), "holdfast-doctor-"));
    const by = await runTrue(directory, options.pool);
    return { name, state: "ok", by, required: true };
  } catch (error) {
    const { message, hint } = HoldfastError.from(error);
    const remedy = hint ?? "See the rows above; HOLDFAST_DEBUG=1 holdfast run -- true shows more.";
    return { name, state: "missing", by: message, remedy, required: true };
  } finally {
    if (directory !== undefined) rmSync(directory, { recursive: true, force: true });
  }
}

/** A sandbox with a way out: what the kernel lacks for it shows in no other row. */
export async function tryEgress(options: {
  readonly stateDirectory: string;
  readonly pool: PoolKind;
}): Promise<DoctorRow> {
  const name = "network of builds";
  let directory: string | undefined;
  try {
    directory = mkdtempSync(join(nearestDirectory(options.stateDirectory), "holdfast-doctor-"));
    await runTrue(directory, options.pool, { network: { kind: "egress", allow: [], deny: [] } });
    return { name, state: "ok", by: "nf_tables, set up by the guest; decided and dialled by us", required: false };
  } catch (error) {
    const { message, hint } = HoldfastError.from(error);
    return {
      name,
      state: "weak",
      by: message,
      remedy: hint ?? "Builds can go without: --network off.",
      required: false,
    };
  } finally {
    if (directory !== undefined) rmSync(directory, { recursive: true, force: true });
  }
}

async function runTrue(stateDirectory: string, pool: PoolKind, spec: Partial<SandboxSpec> = {}): Promise<string> {
  const engine = await BubblewrapEngine.open({ stateDirectory, pool });
  try {
    const start = performance.now();
    const sandbox = await engine.create({ whenOwnerDies: "end", ...spec });
    const command = await sandbox.start({ argv: ["true"] });
    const ending = await command.ended;
    await sandbox.kill("doctor");
    const ms = Math.round(performance.now() - start);
    if (ending.cause.kind === "exited" && ending.cause.code === 0) return `made, ran true and was removed in ${ms} ms`;
    throw new HoldfastError("engine_fault", `true did not run well in it: ${ending.message}`);
  } finally {
    await engine.close({ sandboxes: "kill" });
  }
}
