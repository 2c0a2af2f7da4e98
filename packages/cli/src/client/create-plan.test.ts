import { expect, test } from "vitest";
import { planCreate } from "./create-plan.js";

test("without flags the server's defaults hold", () => {
  expect(planCreate({}, {})).toEqual({ limits: {}, env: {}, metadata: {} });
});

test("flags become what the server is asked for", () => {
  expect(
    planCreate(
      {
        template: "python",
        memory: "1g",
        cpus: "1.5",
        pids: "64",
        disk: "2g",
        timeout: "2h",
        onTimeout: "pause",
        autoResume: true,
        env: ["A=b=c", "HOME"],
        metadata: ["agent=writer", "empty="],
      },
      { HOME: "/root" },
    ),
  ).toEqual({
    template: "python",
    limits: { memoryBytes: 1024 ** 3, cpuMillis: 1500, pids: 64, diskBytes: 2 * 1024 ** 3 },
    timeoutMs: 7_200_000,
    onTimeout: "pause",
    autoResume: true,
    env: { A: "b=c", HOME: "/root" },
    metadata: { agent: "writer", empty: "" },
  });
});

test("an image takes the place of a template", () => {
  expect(planCreate({ image: "team/app:1", strict: true }, {})).toMatchObject({ image: "team/app:1", strict: true });
  expect(() => planCreate({ image: "app", template: "base" }, {})).toThrow(/^--image: .* not from both/);
});

test("mistakes are named by their flag", () => {
  expect(() => planCreate({ cpus: "all" }, {})).toThrow(/^--cpus/);
  expect(() => planCreate({ timeout: "400d" }, {})).toThrow(/^--timeout/);
  expect(() => planCreate({ metadata: ["alone"] }, {})).toThrow(/^--metadata/);
  expect(() => planCreate({ env: ["UNSET"] }, {})).toThrow(/^--env/);
});
