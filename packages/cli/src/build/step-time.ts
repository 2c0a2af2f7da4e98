import type { BuildStepInfo } from "@holdfast/protocol";

/** `0.1s`, `12.3s`, `2m05s`. */
export function seconds(ms: number): string {
  const total = Math.max(0, ms) / 1000;
  if (total < 59.95) return `${total.toFixed(1)}s`;
  const whole = Math.round(total);
  return `${Math.floor(whole / 60)}m${String(whole % 60).padStart(2, "0")}s`;
}

/** How long it took, or has taken until now. */
export function stepMs({ startedAt, endedAt }: BuildStepInfo, now: number): number {
  if (startedAt === null) return 0;
  return (endedAt === null ? now : Date.parse(endedAt)) - Date.parse(startedAt);
}
