import { HoldfastError } from "@holdfast/protocol";
import { expect, test } from "vitest";
import { coloursFor } from "../text/colours.js";
import { failureText } from "./failure-text.js";

const MIB = 1024 * 1024;
const colours = coloursFor({});
const steps = [
  {
    step: "3",
    title: "RUN make -j4",
    state: "failed",
    startedAt: "2026-01-02T03:04:05.000Z",
    endedAt: "2026-01-02T03:04:17.300Z",
    memoryPeakBytes: null,
  },
] as const;

test("says the step, its last lines, the cause, the numbers and what to do", () => {
  const error = new HoldfastError("build_failed", "step 3 (RUN make -j4) ran out of memory", {
    hint: "Give the build more: builder({ memoryMb: 2048 }) or --builder-memory 2g.",
    details: {
      step: "3",
      cause: { kind: "out_of_memory" },
      limitBytes: 1024 * MIB,
      peakBytes: 1000 * MIB,
      suggestedMemoryMb: 2048,
      tail: [
        { stream: "info", text: "RUN make -j4" },
        { stream: "stdout", text: "cc \u001b[1ma.c\u001b[0m" },
        { stream: "stderr", text: "Killed" },
      ],
    },
  });
  expect(failureText(error, { steps, colours })).toBe(`The last lines of step 3:
  │ cc a.c
  │ Killed

holdfast: step 3 (RUN make -j4) ran out of memory [build_failed]
  after 12.3s, cause out_of_memory, limit 1 GiB, peak 1000 MiB, next size to try 2g
  Give the build more: builder({ memoryMb: 2048 }) or --builder-memory 2g.
`);
});

test("speaks of this command line's flags", () => {
  const late = new HoldfastError("build_failed", "late", {
    hint: "builder({ timeoutS: 120 })",
    details: { step: "3", cause: { kind: "timed_out", limitMs: 60_000 } },
  });
  expect(failureText(late, { steps, colours })).toContain("--timeout 120s.");
  const full = new HoldfastError("build_failed", "full", {
    hint: "Give the build more: builder({ diskMb: 20480 }).",
    details: { step: "3", cause: { kind: "out_of_disk", limitBytes: 5 } },
  });
  expect(failureText(full, { steps, colours })).toContain("--disk 20g.");
});

test("makes do with a failure that says nothing", () => {
  expect(failureText(new HoldfastError("build_failed", "it failed"), { steps: [], colours })).toBe(
    "holdfast: it failed [build_failed]\n",
  );
});
