import type { Postmortem, SandboxEvent, SandboxId, SandboxInfo, SandboxUsage } from "@holdfast/protocol";
import { expect, test } from "vitest";
import { coloursFor } from "../text/colours.js";
import { eventLine } from "./event-line.js";
import { hostText } from "./host-text.js";
import { lastLines, postmortemText } from "./postmortem-text.js";
import { sandboxTable } from "./sandbox-table.js";
import { sortByLoad, usageTable } from "./usage-table.js";

const MIB = 1024 ** 2;
const colours = coloursFor({ isTTY: false });
const now = Date.parse("2026-01-02T03:10:00.000Z");

function info(id: string, changes: Partial<SandboxInfo> = {}): SandboxInfo {
  return {
    id: id.padEnd(21, "0"),
    template: "base",
    image: null,
    memory: { requestedBytes: null, effectiveBytes: 512 * MIB, floorBytes: null, reason: null },
    status: "running",
    createdAt: "2026-01-02T03:04:05.000Z",
    expiresAt: "2026-01-02T03:12:05.000Z",
    limits: { memoryBytes: 512 * MIB, pids: 256, cpuMillis: 1000, diskBytes: 1024 * MIB, outputBytes: MIB },
    metadata: {},
    onTimeout: "kill",
    autoResume: false,
    memoryKept: null,
    boots: 1,
    ending: null,
    endedAt: null,
    pressure: null,
    ...changes,
  };
}

const ending = {
  sandboxId: "iend" as SandboxId,
  cause: { kind: "killed", by: "the operator" },
  usage: { memoryPeakBytes: 40 * MIB, cpuMs: 1200, wallMs: 61_000, pidsPeak: 7 },
  message: "Killed by the operator.",
} as const;

const usage: SandboxUsage = {
  at: "2026-01-02T03:10:00.000Z",
  memoryBytes: 500 * MIB,
  memoryPeakBytes: 510 * MIB,
  memoryCeilingBytes: 512 * MIB,
  memoryLimitBytes: 512 * MIB,
  pids: 12,
  pidsLimit: 256,
  cpuMs: 1000,
  cpuMillis: 999,
  cpuLimitMillis: 1000,
  diskBytes: 17 * MIB,
  diskLimitBytes: 1024 * MIB,
};

test("ps shows what runs, how long yet, and how the others ended", () => {
  const text = sandboxTable(
    [
      info("iaa", { metadata: { agent: "writer", evil: "a\u001b[2Jb" } }),
      info("ibb", { status: "paused", memoryKept: false, expiresAt: null }),
      info("icc", { status: "ended", ending, expiresAt: null }),
    ],
    { colours, now, width: undefined },
  );
  expect(text).toMatchInlineSnapshot(`
    "ID                     TEMPLATE  STATUS   AGE    LEFT  MEMORY  ABOUT
    iaa000000000000000000  base      running  5m55s  2m5s  512M    agent=writer evil=a�[2Jb
    ibb000000000000000000  base      paused   5m55s  -     512M    files only
    icc000000000000000000  base      ended    5m55s  -     512M    Killed by the operator.
    "
  `);
});

test("top fits 80 columns and shows the busiest first", () => {
  const rows = [
    { sandbox: info("ipaused", { status: "paused", expiresAt: null }), usage: null },
    { sandbox: info("iidle"), usage: { ...usage, cpuMillis: 3, memoryBytes: 3 * MIB } },
    { sandbox: info("ibusy"), usage },
    {
      sandbox: info("igrows", { pressure: { memory: "throttle", processes: "calm", frozen: false } }),
      usage: { ...usage, cpuMillis: 1200, memoryLimitBytes: 640 * MIB, memoryCeilingBytes: 1023 * MIB, pids: 512 },
    },
  ];
  const order = sortByLoad(rows).map(({ sandbox }) => sandbox.id.replace(/0+$/, ""));
  expect(order).toEqual(["igrows", "ibusy", "iidle", "ipaused"]);
  const text = usageTable(rows, now, colours);
  expect(Math.max(...text.split("\n").map((line) => line.length))).toBeLessThanOrEqual(80);
  expect(text).toMatchInlineSnapshot(`
    "ID                     STATE     CPU           MEMORY     PIDS  STAGE     LEFT
    igrows000000000000000  running  120%  500M/640M..1.0G  512/256  throttle  2m5s
    ibusy0000000000000000  running  100%        500M/512M   12/256  -         2m5s
    iidle0000000000000000  running  0.3%          3M/512M   12/256  -         2m5s
    ipaused00000000000000  paused      -           -/512M        -  -         -
    "
  `);
});

const event: SandboxEvent = {
  seq: 17,
  at: "2026-01-02T03:04:05.000Z",
  sandboxId: "iend",
  kind: "ended",
  message: "Killed by\u0007 the operator.",
  data: {},
};

test("an event is one line without control characters", () => {
  expect(eventLine(event, colours)).toMatch(
    /^ {3}17 {2}2026-01-0\d \d\d:\d\d:05 {2}iend {2}ended {12}Killed by\uFFFD the operator\.$/,
  );
});

const postmortem: Postmortem = {
  sandbox: info("iend", { status: "ended", ending, endedAt: "2026-01-02T03:05:06.000Z" }),
  ending,
  processes: [
    {
      pid: 2,
      hostPid: 99,
      state: "S",
      name: "python3",
      commandLine: "python3 -m\u001b]0;x",
      rssBytes: 30 * MIB,
      commandId: 1,
    },
  ],
  counters: { oom_kill: 0, pids_refused: null },
  commands: [
    {
      id: 1,
      pid: 2,
      argv: ["python3", "-m", "http.server"],
      cwd: null,
      user: null,
      tag: null,
      pty: false,
      startedAt: "2026-01-02T03:04:06.000Z",
      endedAt: null,
      ending: null,
      stdoutTail: Buffer.from("one\r\ntwo\u001b[2J\n").toString("base64"),
      stderrTail: "",
    },
  ],
  events: [event],
};

test("a post-mortem has the cause, the numbers, the last output and the processes", () => {
  const text = postmortemText(postmortem, colours);
  for (const part of [
    "Killed by the operator.",
    "peak 40 MiB of 512 MiB",
    "peak 7 of 256",
    "1.2 s of up to 1 CPUs",
    "#1 python3 -m http.server",
    "was running",
    "| two\uFFFD[2J",
    "python3 -m\uFFFD]0;x",
    "oom_kill  0",
  ]) {
    expect(text).toContain(part);
  }
  // biome-ignore lint/suspicious/noControlCharactersInRegex: these are what must not be there.
  expect(text).not.toMatch(/[\u0000-\u0009\u000b-\u001f\u007f]/);
});

test("of long output the last lines are shown", () => {
  const base64 = Buffer.from(Array.from({ length: 100 }, (_, index) => `line ${index}\n`).join("")).toString("base64");
  expect(lastLines(base64, 2)).toBe("| line 98\n| line 99");
  expect(lastLines("")).toBe("");
});

test("host shows what is promised beside what is there", () => {
  const text = hostText(
    {
      version: "0.1.0",
      engine: "bubblewrap",
      memory: {
        totalBytes: 8192 * MIB,
        reserveBytes: 512 * MIB,
        mostBytes: 7680 * MIB,
        roomBytes: 5120 * MIB,
        promisedBytes: 1024 * MIB,
        usedBytes: 40 * MIB,
        pausedBytes: 0,
        availableBytes: 6000 * MIB,
        capacityBytes: 8192 * MIB,
      },
      cpus: 2,
      pids: {
        total: 30_000,
        reserve: 1000,
        most: 29_000,
        room: 28_000,
        promised: 512,
        used: 20,
        capacity: 30_000,
      },
      disk: {
        totalBytes: 100 * 1024 * MIB,
        reserveBytes: 2048 * MIB,
        mostBytes: 98 * 1024 * MIB,
        roomBytes: 97 * 1024 * MIB,
        promisedBytes: 4096 * MIB,
        usedBytes: 1024 * MIB,
        heldBytes: 512 * MIB,
        capacityBytes: 100 * 1024 * MIB,
      },
      reservations: [],
      waiting: 3,
      pressure: {
        memory: { stage: "freeze", from: "psi", stall: { some: 80, full: 61.5 }, usedPercent: 93.1 },
        processes: { stage: "calm", used: 900, limit: 30_000, live: 12, zombies: 3, orphans: 1 },
        frozen: 2,
        events: [],
        totals: {
          crossings: 4,
          zombiesReaped: 0,
          orphansEnded: 0,
          unownedEnded: 0,
          cleanUpFailures: 0,
          frozen: 2,
          thawed: 0,
          refused: 0,
        },
      },
      sandboxes: { running: 2, paused: 0 },
      warm: {
        ready: 2,
        promisedBytes: 1024 * MIB,
        promisedPids: 1040,
        usedBytes: 2 * MIB,
        usedPids: 4,
        made: 9,
        hits: 5,
        misses: 1,
        waste: { age: 1, unwanted: 0, evicted: 1, unhealthy: 0, drained: 0, closed: 0 },
      },
    },
    colours,
  );
  expect(text).toMatchInlineSnapshot(`
    "holdfast    0.1.0, engine bubblewrap
    sandboxes   2 running, 0 paused
    memory      8 GiB, of which 512 MiB are kept for the host; available now 5.9 GiB
      promised  1 GiB of 5 GiB that can be now
      in use    40 MiB by running sandboxes, 0 B by paused ones
    CPUs        2
    processes   20 in use, 512 promised of 28000
    disk        1 GiB in use of the pool's 100 GiB, 4 GiB promised of 97 GiB
    ready       2, holding 2 MiB and 4 processes, 1 GiB promised; 5 handed out, 1 missed, unused: age 1, evicted 1
    waiting     3 for room
    pressure    memory freeze (93.1 % in use, 61.5 % of the time lost to waiting for it); processes calm (12 live, 3 dead, 1 orphaned); 2 sandboxes stand still
    "
  `);
});
