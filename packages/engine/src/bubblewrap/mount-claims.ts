/**
 * Which directories sandboxes have mounted. A sandbox that is being made says so in a file of its directory, before it looks
 * whether they are there; from then on its record does.
 */
import { readFileSync } from "node:fs";
import type { SandboxId } from "@holdfast/protocol";
import type { SandboxSpec } from "../engine.js";
import type { SandboxRecords } from "./records.js";

const CLAIM_FILE = "mounts";

/** To be in a sandbox's directory from the moment there is one. */
export function mountClaimFiles(spec: Pick<SandboxSpec, "mounts">): Readonly<Record<string, string>> {
  if (spec.mounts.length === 0) return {};
  return { [CLAIM_FILE]: JSON.stringify(spec.mounts.map(({ source }) => source)) };
}

/** Sandboxes of whatever process, those being made and stopped ones too. */
export function usersOfMount(records: SandboxRecords, source: string): SandboxId[] {
  return records.list().filter((id) => sourcesOf(records, id).includes(source));
}

function sourcesOf(records: SandboxRecords, id: SandboxId): readonly string[] {
  const record = records.read(id);
  if (record !== undefined) return record.spec.mounts.map(({ source }) => source);
  try {
    return JSON.parse(readFileSync(records.pathOf(id, CLAIM_FILE), "utf8")) as string[];
  } catch {
    // It has none, or is gone.
    return [];
  }
}
