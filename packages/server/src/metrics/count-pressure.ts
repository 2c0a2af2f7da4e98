/** What happens under pressure, as numbers. */
import { PRESSURE_STAGES, type PressureStage } from "@holdfast/protocol";
import type { PressureHappening } from "../pressure/tally.js";
import type { Metrics } from "./metrics.js";

export function countPressure(metrics: Metrics): (happening: PressureHappening) => void {
  return (happening) => {
    switch (happening.kind) {
      case "crossing":
        if (happening.scope === "host" && happening.what === "memory") {
          metrics.pressureStage(PRESSURE_STAGES.indexOf(happening.to as PressureStage));
        }
        break;
      case "zombiesReaped":
        metrics.zombiesReaped(happening.count);
        break;
      case "orphansEnded":
      case "unownedEnded":
        metrics.orphansReaped(happening.count);
        break;
      case "cleanUpFailures":
        metrics.cleanUpFailed("sandbox", happening.count);
        break;
      case "frozen":
        metrics.frozen(happening.count);
        break;
      case "thawed":
        metrics.thawed(happening.count);
        break;
      case "refused":
        metrics.refused(happening);
        break;
    }
  };
}
