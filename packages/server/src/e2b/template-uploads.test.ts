import type { IncomingMessage } from "node:http";
import { HoldfastError } from "@holdfast/protocol";
import { describe, expect, it } from "vitest";
import { originOf, TemplateUploads } from "./template-uploads.js";

const upload = { keyId: "k1", templateId: "t1", hash: "0".repeat(64) };
const NOW = Date.UTC(2026, 0, 1);

function proofOf(uploads: TemplateUploads, now = NOW) {
  const query = new URL(uploads.addressOf(upload, now), "http://x").searchParams;
  return { expires: Number(query.get("expires")), signature: String(query.get("signature")) };
}

describe("an address to send a file to", () => {
  const uploads = new TemplateUploads("secret");

  it("is good for an hour", () => {
    const proof = proofOf(uploads);
    expect(() => uploads.require(upload, proof, NOW + 3_599_000)).not.toThrow();
    expect(() => uploads.require(upload, proof, NOW + 3_601_000)).toThrow(/expired/);
  });

  it("is good for one file of one template of one key, and not for longer than it says", () => {
    const proof = proofOf(uploads);
    const others = [
      { ...upload, keyId: "k2" },
      { ...upload, templateId: "t2" },
      { ...upload, hash: "1".repeat(64) },
      { ...upload, keyId: 'k1","t1' },
    ];
    for (const other of others) expect(() => uploads.require(other, proof, NOW)).toThrow(HoldfastError);
    expect(() => uploads.require(upload, { ...proof, expires: proof.expires + 1 }, NOW)).toThrow(/API key is needed/);
    expect(() => uploads.require(upload, { ...proof, signature: "" }, NOW)).toThrow(/API key is needed/);
    expect(() => uploads.require(upload, proofOf(new TemplateUploads("another")), NOW)).toThrow(/API key is needed/);
  });
});

describe("the way a client came", () => {
  const request = (headers: object, socket: object = {}) => ({ headers, socket }) as unknown as IncomingMessage;

  it("is that of its request", () => {
    expect(originOf(request({ host: "localhost:3000" }))).toBe("http://localhost:3000");
    expect(originOf(request({ host: "api.box.test" }, { encrypted: true }))).toBe("https://api.box.test");
  });

  it("is what a proxy says, if that is a protocol", () => {
    expect(originOf(request({ host: "a", "x-forwarded-proto": "https" }))).toBe("https://a");
    expect(originOf(request({ host: "a", "x-forwarded-proto": "javascript" }))).toBe("http://a");
  });
});
