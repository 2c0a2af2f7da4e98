/** Times for tables: one unit, two at most, so that columns stay narrow. */

const UNITS: readonly (readonly [ms: number, name: string])[] = [
  [86_400_000, "d"],
  [3_600_000, "h"],
  [60_000, "m"],
  [1000, "s"],
];

/** "45s", "12m", "9m58s", "3h20m", "2d4h". */
export function shortDuration(ms: number): string {
  const total = Math.max(0, ms);
  const index = UNITS.findIndex(([unit]) => total >= unit);
  if (index === -1) return "0s";
  const [unit, name] = UNITS[index] ?? [1000, "s"];
  const whole = Math.floor(total / unit);
  const [smaller, smallerName] = UNITS[index + 1] ?? [unit, ""];
  const rest = Math.floor((total % unit) / smaller);
  return rest === 0 ? `${whole}${name}` : `${whole}${name}${rest}${smallerName}`;
}

/** Local, to the second. */
export function localTime(at: string): string {
  const date = new Date(at);
  if (Number.isNaN(date.getTime())) return "?";
  const pad = (value: number): string => String(value).padStart(2, "0");
  const day = `${date.getFullYear()}-${pad(date.getMonth() + 1)}-${pad(date.getDate())}`;
  return `${day} ${date.toTimeString().slice(0, 8)}`;
}
