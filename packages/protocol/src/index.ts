/** The words that all share. Nothing here needs Node: the client uses it in a browser. */
export * from "./api.js";
export * from "./causes.js";
export * from "./errors.js";
export * from "./ids.js";
export * from "./image-api.js";
export * from "./limits.js";
export * from "./pressure.js";
export * from "./sentences.js";
export * from "./signals.js";
export * from "./units.js";
