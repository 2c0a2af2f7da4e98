/** What the parts of the server are given. Passed by hand, made in one place. */
import type { Images } from "@holdfast/images";
import type { Logger } from "pino";
import type { ServerConfig } from "./config/schema.js";
import type { KeyRing } from "./keys/key-ring.js";
import type { Metrics } from "./metrics/metrics.js";
import type { Sandboxes } from "./sandboxes/types.js";
import type { Store } from "./store/store.js";
import type { OpenedVolumes } from "./volumes/volumes.js";

export interface ServerParts {
  readonly config: ServerConfig;
  readonly keys: KeyRing;
  readonly sandboxes: Sandboxes;
  readonly images: Images;
  readonly volumes: OpenedVolumes;
  readonly store: Store;
  readonly log: Logger;
  readonly metrics: Metrics;
}
