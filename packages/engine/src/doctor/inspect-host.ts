/** `holdfast doctor`: what this host can enforce, by what, and the remedy for what it cannot. */
import type { InspectHostOptions } from "./probe-host.js";
import type { DoctorReport } from "./row.js";

export type { InspectHostOptions };

/** The probes are loaded when they are asked for: whoever only starts a sandbox does not wait for them. */
export async function inspectHost(options: InspectHostOptions = {}): Promise<DoctorReport> {
  const { probeHost } = await import("./probe-host.js");
  return probeHost(options);
}
