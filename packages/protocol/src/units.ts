/** Numbers with units, both ways. Sizes are powers of 1024, as the kernel counts them. */
import { invalidArgument } from "./errors.js";

const SIZE_UNITS: Record<string, number> = { b: 1, k: 1024, m: 1024 ** 2, g: 1024 ** 3, t: 1024 ** 4 };
const DURATION_UNITS: Record<string, number> = { ms: 1, s: 1000, m: 60_000, h: 3_600_000, d: 86_400_000 };

/** "256m", "1.5g", "64MiB", "4096" (bytes). */
export function parseSize(text: string, field = "size"): number {
  const match = /^(\d+(?:\.\d+)?)\s*(?:([bkmgt])(?:i?b)?)?$/i.exec(text.trim());
  const number = match?.[1];
  if (number === undefined) throw invalidArgument(field, text, 'a size such as "256m", "1.5g" or a number of bytes');
  const bytes = Number(number) * (SIZE_UNITS[(match?.[2] ?? "b").toLowerCase()] ?? 1);
  return Math.round(bytes);
}

/** "256m", or "128m..1g": where it starts, and how far it may grow. */
export function parseSizeRange(text: string, field = "size"): { readonly bytes: number; readonly maxBytes?: number } {
  const [start = "", max, ...rest] = text.split("..");
  if (rest.length > 0) throw invalidArgument(field, text, 'a size such as "256m", or two such as "128m..1g"');
  const bytes = parseSize(start, field);
  if (max === undefined) return { bytes };
  const maxBytes = parseSize(max, field);
  if (maxBytes < bytes) throw invalidArgument(field, text, "a second size that is not below the first");
  return { bytes, maxBytes };
}

/** "30s", "500ms", "1.5h", "90" (seconds). */
export function parseDuration(text: string, field = "duration"): number {
  const match = /^(\d+(?:\.\d+)?)\s*(ms|s|m|h|d)?$/i.exec(text.trim());
  const number = match?.[1];
  if (number === undefined) throw invalidArgument(field, text, 'a time such as "30s", "500ms" or a number of seconds');
  return Math.round(Number(number) * (DURATION_UNITS[(match?.[2] ?? "s").toLowerCase()] ?? 1000));
}

export function formatBytes(bytes: number): string {
  const units = ["B", "KiB", "MiB", "GiB", "TiB"];
  let value = bytes;
  let unit = 0;
  while (value >= 1024 && unit < units.length - 1) {
    value /= 1024;
    unit += 1;
  }
  const digits = unit === 0 || value >= 100 || Number.isInteger(value) ? 0 : 1;
  return `${value.toFixed(digits)} ${units[unit]}`;
}

export function formatDuration(ms: number): string {
  if (ms < 1000) return `${Math.round(ms)} ms`;
  if (ms < 60_000) return `${Number((ms / 1000).toFixed(1))} s`;
  const minutes = Math.floor(ms / 60_000);
  if (minutes < 60) return `${minutes} min ${Math.round((ms % 60_000) / 1000)} s`;
  return `${Math.floor(minutes / 60)} h ${minutes % 60} min`;
}

/** The way a size is written on our command line: the largest unit that divides it. */
export function sizeFlag(bytes: number): string {
  for (const [unit, factor] of [
    ["g", 1024 ** 3],
    ["m", 1024 ** 2],
    ["k", 1024],
  ] as const) {
    if (bytes % factor === 0) return `${bytes / factor}${unit}`;
  }
  return String(bytes);
}

const LONGEST_PRINTED = 1000;

/** Text that others chose (names, messages, reasons), made fit for a terminal: no control characters, no endless lines. */
export function printable(text: string): string {
  return text.replace(/[\p{Cc}\p{Cf}]/gu, "\uFFFD").slice(0, LONGEST_PRINTED);
}
