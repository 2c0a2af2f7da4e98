/** What the parts of the server are given. Passed by hand, made in one place. */
import type { Logger } from "pino";
import type { ServerConfig } from "./config/schema.js";
import type { KeyRing } from "./keys/key-ring.js";
import type { Sandboxes } from "./sandboxes/types.js";

export interface ServerParts {
  readonly config: ServerConfig;
  readonly keys: KeyRing;
  readonly sandboxes: Sandboxes;
  readonly log: Logger;
}
