/** Hands the result over: on stdout after the command's own output, or in a file that is either whole or not there. */
import { randomBytes } from "node:crypto";
import { renameSync, rmSync, statSync, writeFileSync } from "node:fs";
import type { OutputPump } from "./output-pump.js";
import type { RunReport } from "./report.js";

export async function writeReport(
  report: RunReport,
  to: { readonly json?: boolean | undefined; readonly jsonFile?: string | undefined },
  pump: Pick<OutputPump, "write" | "stdoutEndsLine">,
): Promise<void> {
  const line = `${JSON.stringify(report)}\n`;
  if (to.jsonFile !== undefined) writeWhole(to.jsonFile, line);
  // On a line of its own, also after output that did not end its last one.
  else if (to.json === true) await pump.write("stdout", Buffer.from(pump.stdoutEndsLine ? line : `\n${line}`));
}

export function writeWhole(path: string, text: string): void {
  const existing = statSync(path, { throwIfNoEntry: false });
  // A pipe, a terminal, /dev/fd/3: these are written to, not replaced.
  if (existing !== undefined && !existing.isFile()) {
    writeFileSync(path, text);
    return;
  }
  const fresh = `${path}.${randomBytes(6).toString("hex")}.new`;
  try {
    writeFileSync(fresh, text, { flag: "wx" });
    renameSync(fresh, path);
  } catch (error) {
    rmSync(fresh, { force: true });
    throw error;
  }
}
