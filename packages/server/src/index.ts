export { configFields } from "./config/fields.js";
export { loadConfig } from "./config/load.js";
export { printConfig } from "./config/print.js";
export type { ServerConfig } from "./config/schema.js";
export { createKeyRing, type KeyRing } from "./keys/key-ring.js";
export {
  databasePath,
  defaultKeyLimits,
  operatorSocketPath,
  type RunningServer,
  serverDirectory,
  startServer,
} from "./server.js";
export { openSqliteStore } from "./store/sqlite/open-sqlite-store.js";
export type { ApiKey, KeyLimits, Store } from "./store/store.js";
