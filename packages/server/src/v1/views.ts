/** What is kept, as our own API shows it. */
import type { FileEntry, OutputEvent } from "@holdfast/engine";
import type { FileInfo, OutputLine, SandboxEvent, SandboxInfo, SandboxPressure } from "@holdfast/protocol";
import type { Caller } from "../sandboxes/types.js";
import type { EventRow, SandboxRow } from "../store/store.js";

/** Who did it, for causes and events. */
export function callerName(caller: Caller): string {
  return caller.kind === "operator" ? "the operator" : `API key ${caller.keyId}`;
}

export function sandboxInfo(row: SandboxRow, pressure: SandboxPressure | null): SandboxInfo {
  const { wallMs: _, ...limits } = row.limits;
  return {
    id: row.id,
    template: row.template,
    image: row.imageId,
    memory: row.memory,
    status: row.status,
    createdAt: row.createdAt.toISOString(),
    expiresAt: row.status === "ended" ? null : (row.expiresAt?.toISOString() ?? null),
    limits,
    metadata: row.metadata,
    onTimeout: row.onTimeout,
    autoResume: row.autoResume,
    memoryKept: row.status === "paused" ? row.memoryKept : null,
    boots: row.boots,
    ending: row.status === "ended" ? row.ending : null,
    endedAt: row.endedAt?.toISOString() ?? null,
    pressure: row.status === "running" ? pressure : null,
  };
}

export function outputLine(event: OutputEvent): OutputLine {
  const { stream, offset } = event;
  return event.kind === "data"
    ? { type: "data", stream, offset, base64: event.bytes.toString("base64") }
    : { type: "gap", stream, offset, length: event.length };
}

/** The guest chooses the time; one that no date can hold is shown as the nearest that can. */
function timeText(ns: bigint): string {
  const ms = Number(ns / 1_000_000n);
  return new Date(Math.max(-8.64e15, Math.min(8.64e15, ms))).toISOString();
}

export function fileInfo(entry: FileEntry): FileInfo {
  return {
    name: entry.name,
    path: entry.path,
    type: entry.type,
    sizeBytes: entry.sizeBytes,
    mode: entry.mode,
    owner: entry.owner,
    group: entry.group,
    uid: entry.uid,
    gid: entry.gid,
    modifiedAt: timeText(entry.modifiedNs),
    linkTarget: entry.link?.target ?? null,
  };
}

export function sandboxEvent(row: EventRow): SandboxEvent {
  return {
    seq: row.seq,
    at: row.at.toISOString(),
    sandboxId: row.sandboxId,
    kind: row.kind,
    message: row.message,
    data: row.data,
  };
}
