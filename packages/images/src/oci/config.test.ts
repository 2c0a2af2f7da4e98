import type { Digest } from "@holdfast/recipe";
import fc from "fast-check";
import { describe, expect, test } from "vitest";
import type { ImageConfig, ImageRecord } from "../types.js";
import { configOf, extrasFrom, FLOOR_LABEL, imageConfigFrom, parseConfig, START_LABEL } from "./config.js";

const DIGEST: Digest = `sha256:${"a".repeat(64)}`;
const bytes = (value: unknown) => Buffer.from(JSON.stringify(value));
const rootfs = { type: "layers", diff_ids: [DIGEST] };
const parse = (value: object) => parseConfig(bytes({ rootfs, architecture: "amd64", os: "linux", ...value }));

const CONFIG: ImageConfig = {
  env: { PATH: "/bin", EQUALS: "a=b=c", EMPTY: "", __proto__x: "1" },
  workdir: "/app",
  user: "user",
  entrypoint: ["/bin/env"],
  cmd: ["sh", "-c", "echo $A"],
  exposedPorts: ["53/udp", "8000/tcp"],
  labels: { one: "1", "dev.holdfast.base": "3" },
  start: { command: "node server.js", readyWhen: { kind: "port", port: 8000 } },
  architecture: "amd64",
  os: "linux",
};
const RECORD: Pick<ImageRecord, "config" | "createdAt" | "floor" | "limits"> = {
  config: CONFIG,
  createdAt: "2026-01-01T00:00:00.000Z",
  floor: { memoryBytes: 1 << 30, startPeakBytes: null, readyMs: 12 },
  limits: { memoryBytes: 5, diskBytes: 7 },
};
const LAYERS = [{ diffId: DIGEST, record: { createdAt: "2026-01-01T00:00:00.000Z", from: "RUN make" } }];

describe("a config", () => {
  test("is the same after it has been written and read, with our own facts in labels", () => {
    const read = parseConfig(bytes(configOf(RECORD, LAYERS)));
    expect(imageConfigFrom(read)).toEqual(CONFIG);
    expect(extrasFrom(read)).toEqual({ floor: RECORD.floor, limits: RECORD.limits });
    expect(read.history).toEqual([expect.objectContaining({ created_by: "RUN make" })]);
    expect(read.rootfs.diff_ids).toEqual([DIGEST]);
  });

  test("keeps every environment that a process can have", () => {
    const name = fc.string({ minLength: 1 }).filter((text) => !/[=\0]/.test(text));
    const value = fc.string().filter((text) => !text.includes("\0"));
    fc.assert(
      fc.property(fc.uniqueArray(fc.tuple(name, value), { selector: ([key]) => key }), (pairs) => {
        const env = Object.fromEntries(pairs);
        const config = { ...CONFIG, env };
        const read = imageConfigFrom(parseConfig(bytes(configOf({ ...RECORD, config }, LAYERS))));
        expect(Object.entries(read.env).sort()).toEqual(Object.entries(env).sort());
      }),
    );
  });

  test("has the last of several values of a variable, and an empty one without `=`", () => {
    expect(imageConfigFrom(parse({ config: { Env: ["A=1", "B", "A=2="] } })).env).toEqual({ B: "", A: "2=" });
  });

  test("may leave out everything but its layers, as Go writes it", () => {
    const empty = { Env: null, Cmd: null, Entrypoint: [], Labels: null, ExposedPorts: null, WorkingDir: "", User: "" };
    for (const config of [undefined, null, {}, empty]) {
      expect(imageConfigFrom(parse({ config }))).toMatchObject({
        env: {},
        workdir: null,
        user: null,
        entrypoint: null,
        cmd: null,
        exposedPorts: [],
        start: null,
      });
    }
    expect(imageConfigFrom(parse({ config: { WorkingDir: "app" } })).workdir).toBe("/app");
  });

  test.each([
    ["no layers", { rootfs: undefined }, "rootfs: expected an object"],
    ["other layers", { rootfs: { type: "windows", diff_ids: [] } }, "rootfs.type"],
    ["a digest that is none", { rootfs: { type: "layers", diff_ids: ["sha256:1"] } }, "rootfs.diff_ids[0]"],
    ["too many layers", { rootfs: { type: "layers", diff_ids: Array(129).fill(DIGEST) } }, "at most 128"],
    ["an environment that is an object", { config: { Env: { A: "1" } } }, "config.Env: expected a list"],
    ["a variable without a name", { config: { Env: ["=1"] } }, "Env[0]"],
    ["a zero byte", { config: { User: "a\0b" } }, "zero byte"],
    ["a port that is none", { config: { ExposedPorts: { "99999/tcp": {} } } }, "is not a port"],
    ["a label that is no string", { config: { Labels: { a: 1 } } }, "Labels.a"],
    ["a start command that is no JSON", { config: { Labels: { [START_LABEL]: "{" } } }, "not JSON"],
    ["a start command without one", { config: { Labels: { [START_LABEL]: "{}" } } }, "command: expected a string"],
    ["a floor below zero", { config: { Labels: { [FLOOR_LABEL]: '{"memoryBytes":-1}' } } }, "memoryBytes"],
  ])("is refused with %s, by its place", (_what, value, message) => {
    const read = () => {
      const parsed = parse(value);
      imageConfigFrom(parsed);
      extrasFrom(parsed);
    };
    expect(read).toThrow(expect.objectContaining({ code: "image_invalid", message: expect.stringContaining(message) }));
  });

  test("of any JSON is read or refused, never anything else", () => {
    fc.assert(
      fc.property(fc.jsonValue(), fc.jsonValue(), (config, labels) => {
        try {
          const parsed = parse({ config, history: labels });
          imageConfigFrom(parsed);
          extrasFrom(parsed);
        } catch (error) {
          expect(error).toMatchObject({ code: "image_invalid" });
        }
      }),
    );
  });
});
