export { BubblewrapEngine, type BubblewrapEngineOptions, DEFAULT_STATE_DIRECTORY } from "./bubblewrap/engine.js";

export { type InspectHostOptions, inspectHost } from "./doctor/inspect-host.js";
export { DOCTOR_STATES, type DoctorReport, type DoctorRow, type DoctorState } from "./doctor/row.js";
export * from "./engine.js";
export { type Amounts, GUEST_SHARE, type Resource } from "./governor/amounts.js";
export type { BudgetSettings } from "./governor/host-budget.js";
export { describeWaiting } from "./governor/resource-words.js";
export * from "./governor/types.js";
export { findProgram } from "./host/find-program.js";
export { withHostLock } from "./host/host-lock.js";
export type { Log } from "./host/log.js";
export { bootId, identifyProcess, isAlive, ourIdentity, type ProcessIdentity } from "./host/processes.js";
export * from "./layers.js";
export { POOL_KINDS, type PoolKind } from "./storage/pool.js";
export type { Volumes } from "./volumes.js";
