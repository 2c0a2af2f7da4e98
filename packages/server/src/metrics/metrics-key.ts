/**
 * The operator's key for metrics, in a file that only root can read. API keys are their users': what all of them do together
 * is not for each of them to see.
 */
import { randomBytes } from "node:crypto";
import { readFileSync, renameSync, writeFileSync } from "node:fs";
import { HoldfastError } from "@holdfast/protocol";

const KEY = /^hfm_[0-9a-f]{40}$/;

/** Made when it is not there; whoever wants another removes the file and restarts the server. */
export function openMetricsKey(path: string): string {
  let found: string | undefined;
  try {
    found = readFileSync(path, "utf8").trim();
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code !== "ENOENT") throw HoldfastError.from(error);
  }
  if (found === undefined) {
    const key = `hfm_${randomBytes(20).toString("hex")}`;
    // Whole or not there: half a key after a sudden death would be refused for ever.
    writeFileSync(`${path}.new`, `${key}\n`, { mode: 0o600 });
    renameSync(`${path}.new`, path);
    return key;
  }
  if (!KEY.test(found)) {
    throw new HoldfastError("invalid_argument", `${path} does not hold a key for metrics`, {
      hint: "Remove the file: the next start makes a new one.",
      details: { field: "metricsAccess" },
    });
  }
  return found;
}
