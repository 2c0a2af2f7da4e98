/** One line of what a host can do. */

export const DOCTOR_STATES = ["ok", "weak", "missing"] as const;
/** `weak`: works, but less well than it could, in the way that `by` says. */
export type DoctorState = (typeof DOCTOR_STATES)[number];

export interface DoctorRow {
  readonly name: string;
  readonly state: DoctorState;
  /** What it is enforced or offered by, or what is in the way. */
  readonly by: string;
  /** What to do about it; absent if there is nothing to do. */
  readonly remedy?: string;
  /** The default engine cannot hold its promises without it. */
  readonly required: boolean;
}

export interface DoctorReport {
  readonly ok: boolean;
  readonly rows: readonly DoctorRow[];
}

export function reportOf(rows: readonly DoctorRow[]): DoctorReport {
  return { ok: rows.every((row) => !row.required || row.state !== "missing"), rows };
}
