import { expect, test } from "vitest";
import { createOomLog } from "./oom-log.js";

test("a log that cannot be read is not known, and no failure", () => {
  const log = createOomLog("/nonexistent/kmsg");
  expect(log.victimsOf("/holdfast/i1", { base: 1, sinceUsec: 0 })).toBeUndefined();
  log.close();
});
