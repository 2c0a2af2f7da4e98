import { expect, test } from "vitest";
import { type BuildFlags, parseBuildArgs, parseBuilderFlags } from "./build-flags.js";

test("what is not said is left to the image", () => {
  expect(parseBuilderFlags({})).toEqual({});
});

test("sizes become MiB, times seconds", () => {
  expect(
    parseBuilderFlags({
      builderMemory: "4g",
      runtimeMemory: "1536m",
      cpus: "1.5",
      disk: "20g",
      timeout: "30m",
      network: "off",
      retryOnOom: true,
    }),
  ).toEqual({
    memoryMb: 4096,
    runtimeMemoryMb: 1536,
    cpus: 1.5,
    diskMb: 20_480,
    timeoutS: 1800,
    network: "off",
    retryOnOom: true,
  });
});

test.each<[string, BuildFlags]>([
  ["--builder-memory", { builderMemory: "lots" }],
  ["--builder-memory", { builderMemory: "1m" }],
  ["--runtime-memory", { runtimeMemory: "0" }],
  ["--cpus", { cpus: "all" }],
  ["--cpus", { cpus: "0" }],
  ["--disk", { disk: "0" }],
  ["--timeout", { timeout: "0" }],
  ["--timeout", { timeout: "31d" }],
])("%s is named when its value is wrong", (flag, flags) => {
  expect(() => parseBuilderFlags(flags)).toThrow(new RegExp(`^${flag}: expected`));
});

test("a build argument takes the value it has here if it says none", () => {
  expect(parseBuildArgs(["A=1=2", "B"], { B: "here" })).toEqual({ A: "1=2", B: "here" });
  expect(() => parseBuildArgs(["C"], {})).toThrow(/^--build-arg: expected C=VALUE, because C is not set here/);
  expect(() => parseBuildArgs(["=x"], {})).toThrow(/^--build-arg/);
});
