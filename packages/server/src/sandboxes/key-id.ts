import type { Caller } from "./types.js";

/** Whose those things are that the operator makes without a key. */
export const OPERATOR_KEY_ID = "operator";

export const keyIdOf = (caller: Caller): string => (caller.kind === "operator" ? OPERATOR_KEY_ID : caller.keyId);
