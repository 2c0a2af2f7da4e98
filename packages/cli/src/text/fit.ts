/** How much room a text takes on a terminal, and what of it has room. */

/** Rather too many than too few: a line that is a little short does no harm, one that wraps does. */
const WIDE =
  /[\u1100-\u115f\u2e80-\ua4cf\ua960-\ua97f\uac00-\ud7a3\uf900-\ufaff\ufe30-\ufe6f\uff00-\uff60\uffe0-\uffe6\u{1f000}-\u{3fffd}]/u;
const NONE = /[\p{Mn}\p{Me}\p{Cf}]/u;

function cellsOf(character: string): number {
  if (character >= " " && character <= "~") return 1;
  return NONE.test(character) ? 0 : WIDE.test(character) ? 2 : 1;
}

export function displayWidth(text: string): number {
  let cells = 0;
  for (const character of text) cells += cellsOf(character);
  return cells;
}

/** The beginning of it, with an ellipsis where something is left out. */
export function fit(text: string, width: number): string {
  if (width <= 0) return "";
  let cells = 0;
  let kept = "";
  let shorter = "";
  for (const character of text) {
    cells += cellsOf(character);
    if (cells > width) return `${shorter}…`;
    kept += character;
    if (cells <= width - 1) shorter = kept;
  }
  return kept;
}

/** Fills the line up, so that what follows ends at the right. */
export function justify(left: string, right: string, width: number): string {
  const room = Math.max(1, width - displayWidth(right) - 1);
  const fitting = fit(left, room);
  return `${fitting}${" ".repeat(Math.max(1, width - displayWidth(fitting) - displayWidth(right)))}${right}`;
}
