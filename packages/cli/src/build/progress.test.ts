import type { BuildLogLine, BuildStepInfo } from "@holdfast/protocol";
import { afterEach, beforeEach, describe, expect, test, vi } from "vitest";
import { Screen } from "../testing/screen.js";
import { coloursFor } from "../text/colours.js";
import { LiveProgress } from "./live-progress.js";
import { PlainProgress } from "./plain-progress.js";
import { StepTracker } from "./step-tracker.js";

const START = Date.parse("2026-01-02T03:04:05.000Z");
const at = (ms: number): string => new Date(START + ms).toISOString();

type Times = readonly [startedMs?: number, endedMs?: number];

function step(name: string, title: string, state: BuildStepInfo["state"], [started, ended]: Times = []): BuildStepInfo {
  return {
    step: name,
    title,
    state,
    startedAt: started === undefined ? null : at(started),
    endedAt: ended === undefined ? null : at(ended),
    memoryPeakBytes: null,
  };
}

let seq = 0;
const said = (name: string, text: string, ms: number, stream: BuildLogLine["stream"] = "stdout"): BuildLogLine => ({
  seq: seq++,
  at: at(ms),
  step: name,
  stream,
  text,
});

const waiting = [
  step("base", "FROM tiny", "waiting"),
  step("1", "RUN make", "waiting"),
  step("2", "RUN true", "waiting"),
  step("finalize", "FINALIZE", "waiting"),
];

beforeEach(() => {
  vi.useFakeTimers({ now: START });
});
afterEach(() => {
  vi.useRealTimers();
});

describe("as lines", () => {
  test("steps begin, speak and end in order, and an end comes after the last line", () => {
    const written: string[] = [];
    const tracker = new StepTracker(new PlainProgress((text) => written.push(text)));
    tracker.update(waiting);
    tracker.update([
      step("base", "FROM tiny", "done", [0, 100]),
      step("1", "RUN make", "done", [100, 1300]),
      step("2", "RUN true", "running", [1300]),
      step("finalize", "FINALIZE", "waiting"),
    ]);
    tracker.log(said("1", "RUN make", 100, "info"));
    tracker.log(said("1", "cc \u001b[1mmain.c\u001b[0m", 223));
    tracker.log(said("1", "", 250));
    tracker.log(said("2", "RUN true", 1300, "info"));
    tracker.update([
      step("base", "FROM tiny", "done", [0, 100]),
      step("1", "RUN make", "done", [100, 1300]),
      step("2", "RUN true", "failed", [1300, 63_400]),
      step("finalize", "FINALIZE", "waiting"),
    ]);
    tracker.settle();
    tracker.settle();
    expect(written.join("").split("\n")).toEqual([
      "#1 FROM tiny",
      "#1 DONE 0.1s",
      "",
      "#2 [1/2] RUN make",
      "#2 0.123 cc main.c",
      "#2 0.150 ",
      "#2 DONE 1.2s",
      "",
      "#3 [2/2] RUN true",
      "#3 FAILED 1m02s",
      "",
    ]);
  });

  test("steps that are known are told as such", () => {
    const written: string[] = [];
    const tracker = new StepTracker(new PlainProgress((text) => written.push(text)));
    tracker.update([step("base", "FROM tiny", "done", [0, 0]), step("1", "RUN make", "cached")]);
    tracker.settle();
    expect(written.join("")).toBe("#1 FROM tiny\n#1 DONE 0.0s\n\n#2 [1/1] RUN make\n#2 CACHED\n");
  });

  test("the base's own build tells each phase once", () => {
    const written: string[] = [];
    const plain = new PlainProgress((text) => written.push(text));
    plain.bar({ phase: "fetching packages", share: 0.1 });
    plain.bar({ phase: "fetching packages", share: 0.1 });
    plain.bar({ phase: "unpacking", share: 0.5 });
    expect(written).toEqual(["#1 base: 10 % fetching packages\n", "#1 base: 50 % unpacking\n"]);
  });
});

describe("on a terminal", () => {
  function useLive(columns: number) {
    const screen = new Screen(columns);
    let tracker: StepTracker | undefined;
    const live = new LiveProgress({
      terminal: screen,
      colours: coloursFor({ isTTY: true }, { TERM: "xterm" }),
      waiting: () => tracker?.waiting ?? 0,
    });
    tracker = new StepTracker(live);
    tracker.update(waiting);
    return { screen, live, tracker };
  }

  const running = [
    step("base", "FROM tiny", "done", [0, 100]),
    step("1", "RUN make", "running", [100]),
    step("2", "RUN true", "waiting"),
    step("finalize", "FINALIZE", "waiting"),
  ];

  test("the last lines of the running step stand below it, and go when it is done", () => {
    const { screen, live, tracker } = useLive(40);
    tracker.update(running);
    for (let number = 1; number <= 8; number += 1) tracker.log(said("1", `line ${number}`, 200));
    vi.advanceTimersByTime(1100);
    expect(screen.text.replace(/[⠀-⣿]/g, "*")).toBe(
      [
        " ✓ FROM tiny                       0.1s",
        " * [1/2] RUN make                  1.0s",
        "   │ line 3",
        "   │ line 4",
        "   │ line 5",
        "   │ line 6",
        "   │ line 7",
        "   │ line 8",
        "   2 more steps                    1.1s",
      ].join("\n"),
    );
    expect(screen.cursorIsHidden).toBe(true);
    tracker.update([
      step("base", "FROM tiny", "done", [0, 100]),
      step("1", "RUN make", "done", [100, 1300]),
      step("2", "RUN true", "cached"),
      step("finalize", "FINALIZE", "failed", [1300, 2500]),
    ]);
    tracker.settle();
    live.close();
    expect(screen.text).toBe(
      [
        " ✓ FROM tiny                       0.1s",
        " ✓ [1/2] RUN make                  1.2s",
        " ✓ [2/2] RUN true                cached",
        " ✗ FINALIZE                        1.2s",
      ].join("\n"),
    );
    expect(screen.cursorIsHidden).toBe(false);
  });

  test("no line is wider than the terminal, whatever is written", () => {
    const { screen, live, tracker } = useLive(40);
    tracker.update([
      step("base", "FROM tiny", "done", [0, 100]),
      step("1", `RUN ${"very ".repeat(30)}long`, "running", [100]),
    ]);
    tracker.log(said("1", "x".repeat(500), 200));
    tracker.log(said("1", "日本語".repeat(100), 200));
    vi.advanceTimersByTime(300);
    const lines = screen.text.split("\n");
    expect(lines).toHaveLength(4);
    expect(Math.max(...lines.map((line) => line.length))).toBeLessThan(40);
    live.close();
  });

  test("a terminal that becomes narrower or wider keeps nothing of what was drawn before", () => {
    const { screen, live, tracker } = useLive(60);
    tracker.update(running);
    tracker.log(said("1", "a line of output that is rather long for a narrow one", 200));
    vi.advanceTimersByTime(200);
    screen.resize(30);
    vi.advanceTimersByTime(200);
    screen.resize(70);
    vi.advanceTimersByTime(200);
    const shown = screen.text;
    expect(shown.match(/RUN make/g)).toHaveLength(1);
    expect(shown.match(/a line of output/g)).toHaveLength(1);
    expect(shown.match(/more steps/g)).toHaveLength(1);
    live.close();
    expect(screen.text).not.toContain("RUN make");
  });

  test("a low terminal shows fewer lines", () => {
    const { screen, live, tracker } = useLive(40);
    screen.rows = 7;
    tracker.update(running);
    for (let number = 1; number <= 8; number += 1) tracker.log(said("1", `line ${number}`, 200));
    vi.advanceTimersByTime(200);
    expect(screen.text.match(/│/g)).toHaveLength(2);
    live.close();
  });

  test("the base's own build has a bar", () => {
    const { screen, live, tracker } = useLive(60);
    tracker.update([step("base", "FROM base", "running", [0])]);
    tracker.settle();
    live.bar({ phase: "unpacking", share: 0.5 });
    vi.advanceTimersByTime(200);
    expect(screen.text).toContain("[############............]  50 % unpacking");
    live.close();
  });

  test("what goes on before the first step is told until it begins", () => {
    const { screen, live, tracker } = useLive(60);
    live.status("reading what is declared");
    vi.advanceTimersByTime(200);
    expect(screen.text).toContain("reading what is declared");
    tracker.update(running);
    tracker.settle();
    vi.advanceTimersByTime(200);
    expect(screen.text).not.toContain("reading what is declared");
    live.close();
  });
});
