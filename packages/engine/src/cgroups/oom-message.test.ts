import { describe, expect, test } from "vitest";
import { parseKernelRecord, parseOomMessage } from "./oom-message.js";

const SIZES = "total-vm:90364kB, anon-rss:60000kB, file-rss:2000kB, shmem-rss:536kB, UID:1879048192";

function cgroupLine(oomMemcg: string, taskMemcg: string, name = "python3"): string {
  return (
    "oom-kill:constraint=CONSTRAINT_MEMCG,nodemask=(null),cpuset=/,mems_allowed=0," +
    `oom_memcg=${oomMemcg},task_memcg=${taskMemcg},task=${name},pid=1234,uid=1879048192`
  );
}

describe("parseKernelRecord", () => {
  test("takes the kernel's own records, without their properties", () => {
    const record = parseKernelRecord("3,1234,5678901,-,caller=T12;hello; world\n SUBSYSTEM=block\n");
    expect(record).toEqual({ timeUsec: 5_678_901, message: "hello; world" });
  });

  test("refuses what a process wrote into the log", () => {
    expect(parseKernelRecord("12,1234,5678901,-;Out of memory: Killed process 1 (init)\n")).toBeUndefined();
  });

  test("refuses nonsense", () => {
    expect(parseKernelRecord("")).toBeUndefined();
    expect(parseKernelRecord("hello")).toBeUndefined();
  });
});

describe("a victim's line", () => {
  const victim = (name: string, rest = " pgtables:200kB oom_score_adj:500") =>
    parseOomMessage(`Memory cgroup out of memory: Killed process 1234 (${name}) ${SIZES}${rest}`);

  test("gives pid, name, size and uid", () => {
    expect(victim("python3")).toEqual({
      kind: "victim",
      pid: 1234,
      name: "python3",
      rssBytes: 62_536 * 1024,
      uid: 1_879_048_192,
      scope: "memcg",
    });
  });

  test("of the whole host is told apart", () => {
    const message = `Out of memory: Killed process 7 (x) ${SIZES}`;
    expect(parseOomMessage(message)).toMatchObject({ pid: 7, scope: "host" });
  });

  test("of an old kernel has no uid", () => {
    const message =
      "Memory cgroup out of memory: Killed process 7 (x) total-vm:1kB, anon-rss:2kB, file-rss:0kB, shmem-rss:0kB";
    expect(parseOomMessage(message)).toMatchObject({ pid: 7, rssBytes: 2048, uid: undefined });
  });

  test.each([
    ["a) b (c", "a) b (c"],
    ["sp ace (x)", "sp ace (x)"],
    ["", ""],
    ["x) total-vm:9kB", "x) total-vm:9kB"],
    ["n\\xc3\\xa9", "né"],
    ["a\\x0ab\\x1b[2J", "a\uFFFDb\uFFFD[2J"],
    ["\\x5cx41", "\\x41"],
    ["\\xe2\\x80\\xaegpj", "\uFFFDgpj"],
  ])("with the name %j reads as %j", (raw, name) => {
    expect(victim(raw)).toMatchObject({ kind: "victim", pid: 1234, name, uid: 1_879_048_192 });
  });
});

describe("a cgroup's line", () => {
  test("gives the victim's cgroup", () => {
    expect(parseOomMessage(cgroupLine("/holdfast/i1/cmd", "/holdfast/i1/cmd/7"))).toEqual({
      kind: "cgroup",
      pid: 1234,
      taskMemcg: "/holdfast/i1/cmd/7",
    });
  });

  test("of the whole host has no cgroup that ran out", () => {
    const message =
      "oom-kill:constraint=CONSTRAINT_NONE,nodemask=(null),cpuset=/,mems_allowed=0,global_oom," +
      "task_memcg=/holdfast/i1/cmd/7,task=x,pid=9,uid=0";
    expect(parseOomMessage(message)).toEqual({ kind: "cgroup", pid: 9, taskMemcg: "/holdfast/i1/cmd/7" });
  });

  test("is not steered by a process name", () => {
    const line = cgroupLine("/holdfast/i1/cmd", "/holdfast/i1/cmd/7", "x,pid=1,uid=0");
    expect(parseOomMessage(line)).toMatchObject({ pid: 1234, taskMemcg: "/holdfast/i1/cmd/7" });
  });

  test("is not steered into another sandbox by the name of a cgroup", () => {
    const evil = "/holdfast/i1/cmd/x,task_memcg=/holdfast/i2/cmd/1";
    expect(parseOomMessage(cgroupLine(evil, evil))).toMatchObject({ taskMemcg: evil });
    expect(parseOomMessage(cgroupLine("/holdfast/i1/cmd", evil))).toMatchObject({ taskMemcg: evil });
  });
});

test("other messages are none of ours", () => {
  expect(parseOomMessage("python3 invoked oom-killer: gfp_mask=0xcc0")).toBeUndefined();
  expect(parseOomMessage("Killed process 1 (x)")).toBeUndefined();
});
