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
        for (let i = 0; i < happening.count; i++) metrics.cleanUpFailed("sandbox");
        break;
      case "frozen":
      case "thawed":
      case "refused":
        break;
    }
  };
}
