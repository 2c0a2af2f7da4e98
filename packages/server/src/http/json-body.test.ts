import { PassThrough, Readable } from "node:stream";
import { HoldfastError } from "@holdfast/protocol";
import { afterEach, describe, expect, it, vi } from "vitest";
import { readJsonBody } from "./json-body.js";

const limits = { maxBytes: 1024, timeoutMs: 30_000 };

function read(body: string | Buffer): Promise<unknown> {
  return readJsonBody(Readable.from(body.length === 0 ? [] : [Buffer.from(body)]), limits);
}

async function refusal(reading: Promise<unknown>): Promise<HoldfastError> {
  const error: unknown = await reading.then(
    () => undefined,
    (reason: unknown) => reason,
  );
  if (error instanceof HoldfastError) return error;
  throw new Error("it was not refused");
}

describe("readJsonBody", () => {
  afterEach(() => {
    vi.useRealTimers();
  });

  it("puts the pieces together, wherever they were cut", async () => {
    const bytes = Buffer.from('{"a":"ü"}');
    const pieces = [...bytes].map((byte) => Buffer.from([byte]));
    expect(await readJsonBody(Readable.from(pieces), limits)).toEqual({ a: "ü" });
  });

  it("takes an empty body for none", async () => {
    expect(await read("")).toBeUndefined();
  });

  it.each([
    ["{", /expected JSON/],
    ["nope", /expected JSON/],
    [Buffer.from([0x22, 0xff, 0x22]), /not UTF-8/],
    ['{"__proto__":{"a":1}}', /__proto__/],
    ['{"a":[{"__proto__":1}]}', /__proto__/],
    ['{"constructor":{"prototype":{}}}', /constructor\.prototype/],
    ["[".repeat(200), /64 levels/],
    [`${'{"a":'.repeat(100)}1${"}".repeat(100)}`, /64 levels/],
  ])("refuses %s", async (body, message) => {
    const error = await refusal(read(body));
    expect(error.code).toBe("invalid_argument");
    expect(error.message).toMatch(message);
    expect(error.message).toMatch(/^body: /);
  });

  it("does not count brackets inside texts", async () => {
    const text = `${"[".repeat(100)}\\"${"{".repeat(100)}`;
    expect(await read(`{"a":"${text}"}`)).toEqual({ a: text.replace("\\", "") });
  });

  it("refuses what is announced too large before it is read", async () => {
    const source = new PassThrough();
    const error = await refusal(readJsonBody(source, { ...limits, announcedBytes: 1025 }));
    expect(error.code).toBe("request_too_large");
    expect(source.listenerCount("data")).toBe(0);
  });

  it("stops reading what is too large", async () => {
    const source = new PassThrough();
    const reading = refusal(readJsonBody(source, limits));
    source.write(Buffer.alloc(2048));
    expect((await reading).code).toBe("request_too_large");
    expect(source.isPaused()).toBe(true);
  });

  it("does not wait longer than it says", async () => {
    vi.useFakeTimers();
    const source = new PassThrough();
    const reading = refusal(readJsonBody(source, limits));
    source.write("{");
    await vi.advanceTimersByTimeAsync(30_000);
    expect((await reading).code).toBe("request_too_slow");
  });

  it("notices that the client has gone", async () => {
    const source = new PassThrough();
    const reading = refusal(readJsonBody(source, limits));
    source.destroy();
    expect((await reading).code).toBe("canceled");
  });
});
