import { expect, test } from "vitest";
import { addExecOptions } from "../commands/exec-command.js";
import { addServerOptions } from "../commands/server-options.js";
import { type ExecFlags, planExec } from "./exec-plan.js";
import { parseExecWords } from "./exec-words.js";

const surroundings = { env: { TERM: "vt100", HOME: "/root" }, stdinIsTerminal: true, size: { columns: 120, rows: 40 } };
const plan = (flags: ExecFlags, changes = {}) => planExec(["ls", "-l"], flags, { ...surroundings, ...changes });
const words = (...given: string[]) =>
  parseExecWords(given, { env: ["A=1"] }, (to) => addServerOptions(addExecOptions(to)));

test("only what was asked for is sent", () => {
  expect(plan({})).toEqual({
    interactive: false,
    tty: false,
    detach: false,
    body: { argv: ["ls", "-l"], env: {}, stdin: "closed", whenReaderIsSlow: "block" },
  });
});

test("flags become the command's settings", () => {
  const flags = { env: ["A=1", "HOME"], cwd: "/tmp", user: "root", memory: "64m", pids: "9", timeout: "2s" };
  expect(plan(flags).body).toMatchObject({
    env: { A: "1", HOME: "/root" },
    cwd: "/tmp",
    user: "root",
    limits: { memoryBytes: 64 * 1024 ** 2, pids: 9, wallMs: 2000 },
  });
});

test("a terminal has our size and our kind, or a usual one", () => {
  expect(plan({ tty: true }).body).toMatchObject({ pty: { columns: 120, rows: 40 }, env: { TERM: "vt100" } });
  expect(plan({ tty: true }, { env: {}, size: undefined }).body).toMatchObject({
    pty: { columns: 80, rows: 24 },
    env: { TERM: "xterm" },
  });
});

test("what cannot be is refused by its flag", () => {
  expect(() => plan({ tty: true, interactive: true }, { stdinIsTerminal: false })).toThrow("needs a terminal on stdin");
  expect(() => plan({ detach: true, tty: true })).toThrow("--detach");
  expect(() => plan({ timeout: "0" })).toThrow(/^--timeout/);
  expect(() => plan({ pids: "x" })).toThrow(/^--pids/);
});

test("a detached command waits for no reader", () => {
  expect(plan({ detach: true }).body.whenReaderIsSlow).toBe("drop");
});

test("options may stand behind the sandbox, and those behind the program are the program's", () => {
  expect(words("-it", "--env", "B=2", "--", "bash", "-i", "--user", "x")).toEqual({
    argv: ["bash", "-i", "--user", "x"],
    flags: { interactive: true, tty: true, env: ["A=1", "B=2"] },
  });
  expect(words("ls", "-la")).toEqual({ argv: ["ls", "-la"], flags: { env: ["A=1"] } });
  expect(words("ls", "--", "-x").argv).toEqual(["ls", "--", "-x"]);
  expect(words("--", "-odd")).toMatchObject({ argv: ["-odd"] });
});

test("an unknown option and a missing program are refused", () => {
  expect(() => words("--bogus", "ls")).toThrow("unknown option '--bogus'");
  expect(() => words("--")).toThrow("missing required argument 'command'");
});
