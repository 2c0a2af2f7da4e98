/** Rows for the tests of the store, with texts that are easily garbled. */
import { createSandboxId, type SandboxEnding, type SandboxId } from "@holdfast/protocol";
import type { NewEvent, SandboxRow } from "../../store.js";

export const STRANGE = [
  "plain",
  "",
  'it\'s "quoted"',
  "100%",
  "_under_",
  "back\\slash",
  "a\0b",
  "новый 新 🙂",
  "e\u0301",
  "é",
  "\ud800",
  "\ud801",
  "\ufffd",
  "__proto__",
  "line\nbreak",
  "null",
  '["a","b"]',
];

export const T0 = Date.UTC(2026, 0, 1);

export function sandboxRow(change: Partial<SandboxRow> = {}): SandboxRow {
  return {
    id: createSandboxId(),
    keyId: "k000000000001",
    template: "base",
    imageId: null,
    memory: { requestedBytes: null, effectiveBytes: 2 ** 29, floorBytes: null, reason: null },
    volumes: [],
    status: "creating",
    createdAt: new Date(T0),
    expiresAt: new Date(T0 + 300_000),
    timeoutMs: 300_000,
    onTimeout: "kill",
    autoResume: false,
    limits: {
      memoryBytes: 2 ** 29,
      pids: 512,
      cpuMillis: 2000,
      diskBytes: 2 ** 42,
      outputBytes: 2 ** 20,
      wallMs: undefined,
    },
    env: {},
    metadata: {},
    network: { allowInternetAccess: null, allowPublicTraffic: true, settings: null },
    memoryKept: null,
    boots: 1,
    endedAt: null,
    ending: null,
    ...change,
  };
}

export function sandboxEnding(sandboxId: SandboxId): SandboxEnding {
  return {
    sandboxId,
    cause: { kind: "killed", by: "the \0 caller" },
    usage: { memoryPeakBytes: null, cpuMs: 1.5, wallMs: 2, pidsPeak: 3 },
    message: "It was killed.",
  };
}

export function newEvent(kind: NewEvent["kind"], message = "it happened"): NewEvent {
  return { kind, message, data: { nested: { list: [1, null, "\0"] } } };
}
