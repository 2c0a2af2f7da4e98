/** The governor on its own, for whoever measures it without sandboxes. */
export { detectCgroups } from "../cgroups/index.js";
export { Governor } from "./governor.js";
export { readHostBudget } from "./host-budget.js";
export { ReservationFiles } from "./reservation-files.js";
