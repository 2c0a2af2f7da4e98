/** The guest protocol: for whoever speaks to a guest. Apart from the rest because it needs Node's Buffer. */
export * from "./guest-frames.js";
export * from "./guest-wire.js";
