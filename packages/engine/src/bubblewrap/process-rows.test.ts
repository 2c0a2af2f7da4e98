import { describe, expect, it } from "vitest";
import { formatCommandLine, parseProcessStatus } from "./process-rows.js";

const STATUS = `Name:\tpython3
Umask:\t0022
State:\tS (sleeping)
Tgid:\t4711
NSpid:\t4711\t12
VmPeak:\t   20000 kB
VmRSS:\t   10240 kB
`;

describe("a process's status", () => {
  it("gives its pid inside, state, name and memory", () => {
    expect(parseProcessStatus(STATUS)).toEqual({ pid: 12, state: "S", name: "python3", rssBytes: 10_485_760 });
  });

  it("of one that is on the host only has no pid inside", () => {
    expect(parseProcessStatus(STATUS.replace("4711\t12", "4711")).pid).toBeNull();
  });

  it("takes the sandbox's pid, not that of a namespace further in", () => {
    expect(parseProcessStatus(STATUS.replace("4711\t12", "4711\t12\t1")).pid).toBe(12);
  });

  it("of a zombie has no memory", () => {
    const zombie = "Name:\tsh\nState:\tZ (zombie)\nNSpid:\t5\t2\n";
    expect(parseProcessStatus(zombie)).toEqual({ pid: 2, state: "Z", name: "sh", rssBytes: 0 });
  });

  it("does not believe a name that looks like another line", () => {
    const status = STATUS.replace("python3", "x\\nNSpid:\t1\t1");
    expect(parseProcessStatus(status)).toMatchObject({ pid: 12, name: "x\\nNSpid:\uFFFD1\uFFFD1" });
  });
});

describe("a command line", () => {
  it.each([
    ["sleep\u00001000\u0000", "sleep 1000"],
    ["", ""],
    ["bad\u001b[31m\u0000\n\u0000", "bad\uFFFD[31m \uFFFD"],
    [`${"x".repeat(5000)}\u0000`, "x".repeat(512)],
  ])("%j is shown as %j", (text, shown) => {
    expect(formatCommandLine(text)).toBe(shown);
  });
});
