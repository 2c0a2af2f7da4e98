import { type EventKind, parseSandboxId } from "@holdfast/protocol";
import { describe, expect, it } from "vitest";
import type { EventRow } from "../store/store.js";
import { logEntry, logLine } from "./log-entries.js";

function event(kind: EventKind, data: Record<string, unknown>): EventRow {
  return {
    seq: 1,
    at: new Date("2026-10-01T00:00:00Z"),
    sandboxId: parseSandboxId("iabc"),
    keyId: "k1",
    kind,
    message: "What happened.",
    data,
  };
}

describe("a log entry", () => {
  it("holds the event's data as texts", () => {
    const entry = logEntry(
      event("command_started", { commandId: 3, argv: ["ls", "-l"], note: "x", nothing: undefined }),
    );
    expect(entry).toEqual({
      timestamp: "2026-10-01T00:00:00.000Z",
      level: "info",
      message: "What happened.",
      fields: { commandId: "3", argv: '["ls","-l"]', note: "x", event: "command_started", logger: "holdfast" },
    });
    expect(JSON.parse(logLine(entry).line)).toMatchObject({ level: "info", message: "What happened.", commandId: "3" });
  });

  it("does not repeat network settings, which hold secrets", () => {
    expect(logEntry(event("network_changed", { network: { settings: {} } })).fields).not.toHaveProperty("network");
  });

  it.each([
    ["ended", { cause: { kind: "killed", by: "x" } }, "info"],
    ["ended", { cause: { kind: "out_of_memory" } }, "error"],
    ["command_ended", { cause: { kind: "exited", code: 1 }, incidents: [] }, "info"],
    ["command_ended", { cause: { kind: "exited", code: 0 }, incidents: [{ kind: "out_of_pids" }] }, "warn"],
    ["command_ended", { cause: { kind: "timed_out", limitMs: 1 } }, "warn"],
    ["command_ended", { cause: { kind: "out_of_memory" } }, "error"],
    ["created", {}, "info"],
  ] as const)("of %s %j has the level %s", (kind, data, level) => {
    expect(logEntry(event(kind, data)).level).toBe(level);
  });
});
