import { errorSpecs, HoldfastError } from "@holdfast/protocol";
import { describe, expect, it } from "vitest";
import { e2bFailure } from "./error-body.js";

const context = { requestId: "req-1", sandboxId: "iabc" };

describe("e2bFailure", () => {
  it("gives every code a body whose code is its status", () => {
    for (const code of Object.keys(errorSpecs) as (keyof typeof errorSpecs)[]) {
      const { status, body } = e2bFailure(new HoldfastError(code, "why"), context);
      expect(body.code, code).toBe(status);
      expect(Number.isInteger(status), code).toBe(true);
      expect(status, code).toBeGreaterThanOrEqual(400);
    }
  });

  it("uses E2B's own words for a sandbox that is not there", () => {
    const { body } = e2bFailure(new HoldfastError("sandbox_not_found", "no"), context);
    expect(body).toEqual({
      code: 404,
      message: `Sandbox "iabc" doesn't exist or you don't have access to it`,
      error_code: "sandbox_not_found",
    });
  });

  it("says how an ended sandbox ended", () => {
    const cause = { kind: "killed", by: "API key k1" };
    const ending = { cause, message: "Killed by API key k1." };
    const error = new HoldfastError("sandbox_ended", "It ended at 2026-10-01T00:00:00.000Z: Killed by API key k1.", {
      details: { endedAt: "2026-10-01T00:00:00.000Z", cause, ending },
    });
    expect(e2bFailure(error, context).body).toEqual({
      code: 404,
      message: `Sandbox "iabc" doesn't exist or you don't have access to it. It ended at 2026-10-01T00:00:00.000Z: Killed by API key k1.`,
      error_code: "sandbox_ended",
      state: "ended",
      endedAt: "2026-10-01T00:00:00.000Z",
      cause,
      ending,
    });
  });

  it("says when to come back, in whole seconds", () => {
    const soon = new HoldfastError("rate_limited", "slow down", { details: { retryAfterSeconds: 0.2 } });
    expect(e2bFailure(soon, context)).toMatchObject({ status: 429, retryAfterSeconds: 1 });
    expect(e2bFailure(new HoldfastError("limit_reached", "full"), context).retryAfterSeconds).toBe(1);
    const later = new HoldfastError("host_capacity", "full", { details: { retryAfterSeconds: 4.1 } });
    expect(e2bFailure(later, context).retryAfterSeconds).toBe(5);
    expect(e2bFailure(new HoldfastError("sandbox_paused", "paused"), context).retryAfterSeconds).toBeUndefined();
  });

  it("adds what to do", () => {
    const error = new HoldfastError("limit_reached", "this key may have 1 sandbox", { hint: "Kill one." });
    expect(e2bFailure(error, context).body.message).toBe("this key may have 1 sandbox. Kill one.");
  });

  it.each([
    new HoldfastError("engine_fault", "EACCES /var/lib/holdfast/secret"),
    new HoldfastError("host_unsupported", "no cgroup at /sys/fs/cgroup/x", { hint: "mount it" }),
    new Error("SELECT * FROM keys"),
    Object.assign(new Error("odd"), { statusCode: 302 }),
    "a text",
    undefined,
  ])("keeps inner matters inside: %s", (reason) => {
    const { status, body } = e2bFailure(reason, context);
    expect(status).toBe(500);
    expect(body).toEqual({
      code: 500,
      message: "The server failed (request req-1); its log says why.",
      error_code: "engine_fault",
    });
  });

  it("names what was wrong when the framework refuses", () => {
    const media = Object.assign(new Error("Unsupported Media Type"), {
      code: "FST_ERR_CTP_INVALID_MEDIA_TYPE",
      statusCode: 415,
    });
    expect(e2bFailure(media, { requestId: "r", contentType: "text/plain" }).body).toEqual({
      code: 415,
      message: 'content-type: expected application/json, got "text/plain"',
      error_code: "invalid_argument",
    });
  });
});
