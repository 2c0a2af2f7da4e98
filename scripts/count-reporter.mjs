// A vitest reporter that writes the totals of a run, as JSON, to the file that HOLDFAST_TEST_TOTALS names.
import { writeFileSync } from "node:fs";

export default class CountReporter {
  onTestRunEnd(modules, unhandledErrors) {
    const totals = { passed: 0, failed: unhandledErrors.length, skipped: 0 };
    for (const module of modules) {
      let failed = 0;
      for (const test of module.children.allTests()) {
        const { state } = test.result();
        if (state === "failed") failed++;
        else totals[state === "passed" ? "passed" : "skipped"]++;
      }
      // A file that does not load, or whose hooks fail, has failed even if none of its tests has.
      totals.failed += module.ok() ? failed : Math.max(failed, 1);
    }
    writeFileSync(process.env.HOLDFAST_TEST_TOTALS, JSON.stringify(totals));
  }
}
