/** Sizes for tables: three figures and a letter. */

const LETTERS = ["B", "K", "M", "G", "T"];

/** "512M", "1.5G", "0". */
export function shortSize(bytes: number): string {
  let value = Math.max(0, bytes);
  let letter = 0;
  while (value >= 999.5 && letter < LETTERS.length - 1) {
    value /= 1024;
    letter += 1;
  }
  if (letter === 0) return value === 0 ? "0" : `${Math.round(value)}B`;
  const digits = value >= 9.95 || Number.isInteger(value) ? 0 : 1;
  return `${value.toFixed(digits)}${LETTERS[letter]}`;
}
