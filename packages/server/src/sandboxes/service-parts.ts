/** What the service of all sandboxes is made of. */
import type { Engine } from "@holdfast/engine";
import type { Images } from "@holdfast/images";
import type { Logger } from "pino";
import type { ServerConfig } from "../config/schema.js";
import type { Metrics } from "../metrics/metrics.js";
import type { PressureHappening } from "../pressure/tally.js";
import type { Store } from "../store/store.js";
import type { Volumes } from "../volumes/volumes.js";

export interface ServiceParts {
  readonly config: ServerConfig;
  readonly engine: Engine;
  readonly images: Images;
  readonly volumes: Volumes;
  readonly store: Store;
  readonly log: Logger;
  readonly version: string;
  readonly metrics: Metrics;
  readonly onPressure?: ((happening: PressureHappening) => void) | undefined;
}
