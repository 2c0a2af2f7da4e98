export { BubblewrapEngine, type BubblewrapEngineOptions, DEFAULT_STATE_DIRECTORY } from "./bubblewrap/engine.js";
export type { Log } from "./bubblewrap/host-parts.js";
export { type InspectHostOptions, inspectHost } from "./doctor/inspect-host.js";
export { DOCTOR_STATES, type DoctorReport, type DoctorRow, type DoctorState } from "./doctor/row.js";
export * from "./engine.js";
export { POOL_KINDS, type PoolKind } from "./storage/pool.js";
