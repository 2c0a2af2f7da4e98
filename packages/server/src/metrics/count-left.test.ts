import type { LogFacts } from "@holdfast/engine";
import { expect, test } from "vitest";
import { countLeft } from "./count-left.js";
import { Metrics } from "./metrics.js";

test("what is left is counted by its kind, and everything is still said once", async () => {
  const said: [level: string, facts: LogFacts, message: string][] = [];
  const say = (level: string) => (facts: LogFacts, message: string) => void said.push([level, facts, message]);
  const metrics = new Metrics();
  const log = countLeft({ info: say("info"), warn: say("warn"), error: say("error") }, metrics);
  log.info({ left: "layer" }, "one");
  log.warn({ sandbox: "s" }, "two");
  log.warn({ left: "volume", volume: "v" }, "three");
  log.warn({ left: "volume" }, "four");
  log.error({}, "five");
  expect(said.map(([level, , message]) => `${level} ${message}`)).toEqual([
    "info one",
    "warn two",
    "warn three",
    "warn four",
    "error five",
  ]);
  expect(said[2]?.[1]).toEqual({ left: "volume", volume: "v" });
  const text = await metrics.registry.metrics();
  expect(text.match(/^holdfast_clean_up_failures_total.* [1-9].*$/gm)).toEqual([
    'holdfast_clean_up_failures_total{what="volume"} 2',
  ]);
});
