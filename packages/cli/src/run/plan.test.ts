import { dirname } from "node:path";
import { describe, expect, test } from "vitest";
import { parseEnvironment } from "../parse-flags.js";
import { type PlanSurroundings, parseMount, planRun, type RunFlags } from "./plan.js";

const flags: RunFlags = {};
const here: PlanSurroundings = { env: { TERM: "vt100", HOME: "/h" }, stdinIsTerminal: false, size: undefined };

describe("planRun", () => {
  test("turns flags with units into limits", () => {
    const given = { ...flags, memory: "256m", pids: "64", cpus: "1.5", disk: "2g", timeout: "30s", grace: "500ms" };
    const plan = planRun(["true"], given, here);
    expect(plan.asked).toMatchObject({
      memoryBytes: 256 * 1024 ** 2,
      pids: 64,
      cpuMillis: 1500,
      diskBytes: 2 * 1024 ** 3,
    });
    expect(plan.command).toMatchObject({ argv: ["true"], limits: { wallMs: 30_000 }, graceMs: 500, stdin: "closed" });
    expect(plan.sandbox.whenOwnerDies).toBe("end");
  });

  test.each<[string, Partial<RunFlags>, RegExp]>([
    ["--memory", { memory: "lots" }, /^--memory: expected a size such as "256m".*got "lots"/],
    ["--memory", { memory: "1k" }, /^--memory: expected .*from 8388608/],
    ["--pids", { pids: "-1" }, /^--pids: expected a whole number, got "-1"/],
    ["--pids", { pids: "2" }, /^--pids: expected .*from 8 /],
    ["--cpus", { cpus: "many" }, /^--cpus: expected a number of CPUs/],
    ["--cpus", { cpus: "0" }, /^--cpus: expected /],
    ["--disk", { disk: "x" }, /^--disk: expected a size/],
    ["--timeout", { timeout: "soon" }, /^--timeout: expected a time such as "30s"/],
    ["--timeout", { timeout: "0" }, /^--timeout: expected a time above zero/],
    ["--grace", { grace: "?" }, /^--grace: expected a time/],
    ["--env", { env: ["=x"] }, /^--env: expected NAME=VALUE/],
    ["--env", { env: ["NOT_HERE"] }, /^--env: .*NOT_HERE is not set here/],
    ["--mount", { mount: ["/tmp"] }, /^--mount: expected SRC:DST/],
    ["--pool", { pool: "zfs" }, /^--pool: expected one of btrfs, dir, got "zfs"/],
    ["--json-file", { jsonFile: "/nowhere/at/all" }, /^--json-file: .*there is no \/nowhere\/at/],
    ["--tty", { interactive: true, tty: true }, /^--tty with --interactive needs a terminal/],
  ])("names %s when its value is wrong", (_flag, wrong, message) => {
    expect(() => planRun(["true"], { ...flags, ...wrong }, here)).toThrow(message);
  });

  test("passes nothing of the caller's environment but the kind of terminal, and that only with --tty", () => {
    expect(planRun(["true"], flags, here).command.env).toEqual({});
    expect(planRun(["true"], { ...flags, tty: true }, here).command).toMatchObject({
      env: { TERM: "vt100" },
      pty: { columns: 80, rows: 24 },
    });
  });

  test("a relative image and state directory start here", () => {
    const plan = planRun(["true"], { ...flags, image: "./some/root", stateDir: "state" }, here);
    expect(plan.sandbox.image).toEqual({ kind: "rootfs", path: `${process.cwd()}/some/root` });
    expect(plan.engine.stateDirectory).toBe(`${process.cwd()}/state`);
  });

  test.each([
    ["/srv/root", "/srv/root"],
    ["..", dirname(process.cwd())],
    ["packages/cli", `${process.cwd()}/packages/cli`],
  ])("%s is a directory", (image, path) => {
    expect(planRun(["true"], { ...flags, image }, here)).toMatchObject({
      sandbox: { image: { kind: "rootfs", path } },
      named: undefined,
    });
  });

  test.each(["app", "team/app:1", "sha256:0123456789ab", "base"])("%s is the name of an image", (image) => {
    const { sandbox, named, asked } = planRun([], { ...flags, image, memory: "1g", strict: true }, here);
    expect(named).toEqual({ reference: image, strict: true, start: true });
    expect(asked).toEqual({ memoryBytes: 1024 ** 3 });
    expect(sandbox).not.toHaveProperty("image");
    expect(sandbox).not.toHaveProperty("limits");
  });

  test("only an image with a name may say what to run", () => {
    expect(() => planRun([], flags, here)).toThrow(/^the command is missing/);
    expect(() => planRun([], { ...flags, image: "/srv/root" }, here)).toThrow(/^the command is missing/);
  });
});

describe("parseMount", () => {
  test("is writable unless it says ro", () => {
    expect(parseMount("/tmp:/data")).toEqual({ source: "/tmp", target: "/data", readOnly: false });
    expect(parseMount("/tmp:/data:ro").readOnly).toBe(true);
    expect(parseMount("/tmp:/data:rw").readOnly).toBe(false);
    expect(parseMount(".:/data").source).toBe(process.cwd());
  });

  test.each(["/tmp:data", ":/data", "/tmp:/data:wo", "/tmp:/data:ro:x"])("refuses %s", (text) => {
    expect(() => parseMount(text)).toThrow(/^--mount: expected SRC:DST/);
  });

  test("refuses a source that is not there", () => {
    expect(() => parseMount("/not/here:/data")).toThrow(/there is no \/not\/here/);
  });
});

test("an environment entry may hold '=' and may be empty", () => {
  expect(parseEnvironment(["A=b=c", "B=", "HOME"], { HOME: "/h" })).toEqual({ A: "b=c", B: "", HOME: "/h" });
});
