import { createSandboxId, HoldfastError } from "@holdfast/protocol";
import { describe, expect, it } from "vitest";
import { formatPageToken, parsePageToken } from "./page-token.js";

describe("a page token", () => {
  it("comes back as what it was made from", () => {
    const end = { createdAt: new Date("2026-10-01T12:34:56.789Z"), id: createSandboxId() };
    const token = formatPageToken(end);
    expect(token).toMatch(/^[\w-]+$/);
    expect(parsePageToken(token)).toMatchObject(end);
  });

  it.each(["", "x", "..", Buffer.from("12.../etc").toString("base64url"), Buffer.from("1.A").toString("base64url")])(
    "is refused if it is %j",
    (token) => {
      expect(() => parsePageToken(token)).toThrow(HoldfastError);
      expect(() => parsePageToken(token)).toThrow(/^nextToken: /);
    },
  );
});
