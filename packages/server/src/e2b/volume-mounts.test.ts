import { HoldfastError } from "@holdfast/protocol";
import { describe, expect, it } from "vitest";
import { validate } from "../http/validate.js";
import type { Caller } from "../sandboxes/types.js";
import { resolveVolumeMounts, volumeMountsSchema } from "./volume-mounts.js";

const parse = (given: unknown) => validate(volumeMountsSchema, given, "volumeMounts");
const at = (...paths: unknown[]) => paths.map((path) => ({ name: "data", path }));

describe("the places of volumes", () => {
  it.each(["/data", "/home/user/data", "/mnt/a b", "/devices", "/procs/x", "/süß", "/tmp"])("may be %j", (path) => {
    expect(parse(at(path))).toEqual(at(path));
  });

  it.each([
    "",
    "data",
    "/",
    "//",
    "//data",
    "/data/",
    "/data/../etc",
    "/data/.",
    "/a//b",
    "/proc",
    "/proc/1",
    "/dev",
    "/dev/shm",
    "/sys",
    "/sys/fs",
    "/a\0b",
    "/\ud800",
    `/${"a".repeat(256)}`,
    "/a".repeat(513),
    7,
    null,
  ])("are refused by name: %j", (path) => {
    expect(() => parse(at("/other", path))).toThrow(/^\[1\]\.path: expected /);
  });

  it("are each their own", () => {
    expect(parse(at("/a", "/ab", "/b/a"))).toHaveLength(3);
    expect(() => parse(at("/a", "/b", "/a"))).toThrow(/path: expected a path that is not/);
    expect(() => parse(at("/a/b/c", "/a/b"))).toThrow(/^\[0\]\.path: .*"\/a\/b"/);
    expect(parse(at(...Array.from({ length: 16 }, (_, index) => `/v${index}`)))).toHaveLength(16);
    expect(() => parse(at(...Array.from({ length: 17 }, (_, index) => `/v${index}`)))).toThrow("at most 16 volumes");
  });

  it("come with a name and nothing else", () => {
    expect(() => parse([{ path: "/a" }])).toThrow("[0].name: expected the name of a volume");
    expect(() => parse([{ name: "", path: "/a" }])).toThrow("[0].name: expected the name of a volume");
    expect(() => parse([{ name: "x", path: "/a", readOnly: true }])).toThrow("[0].readOnly: expected no such field");
    expect(() => parse({ "/a": "x" })).toThrow("volumeMounts: expected a list of volumes");
  });
});

describe("the names of volumes", () => {
  const caller: Caller = { kind: "operator" };
  const volumes = {
    find: async (_caller: Caller, name: string) => {
      if (name !== "data") throw new HoldfastError("volume_not_found", `there is no volume "${name}"`);
      return { id: "v1", name, keyId: "k", createdAt: new Date(0) };
    },
  };

  it("are resolved in order", async () => {
    expect(await resolveVolumeMounts(volumes, caller, parse(at("/a", "/b")))).toEqual([
      { volumeId: "v1", name: "data", path: "/a" },
      { volumeId: "v1", name: "data", path: "/b" },
    ]);
  });

  it("that are unknown are refused with their field", async () => {
    const wanted = [...at("/a"), { name: "other", path: "/b" }];
    await expect(resolveVolumeMounts(volumes, caller, parse(wanted))).rejects.toMatchObject({
      code: "volume_not_found",
      message: expect.stringContaining("volumeMounts[1].name"),
      details: { field: "volumeMounts[1].name" },
    });
  });
});
