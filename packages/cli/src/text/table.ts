/** Columns that line up, whatever colours are in the cells. */

// biome-ignore lint/suspicious/noControlCharactersInRegex: this is what a colour is made of.
const ESCAPES = /\u001b\[[0-9;]*m/g;

export function visibleWidth(text: string): number {
  return text.replace(ESCAPES, "").length;
}

function pad(text: string, width: number): string {
  return text + " ".repeat(Math.max(0, width - visibleWidth(text)));
}

/** Breaks at spaces; a word that is longer than the width stays whole, because it is a path or a command to copy. */
export function wrapText(text: string, width: number): string[] {
  const lines: string[] = [];
  let line = "";
  for (const word of text.split(" ")) {
    if (line !== "" && visibleWidth(line) + 1 + visibleWidth(word) > width) {
      lines.push(line);
      line = word;
    } else {
      line = line === "" ? word : `${line} ${word}`;
    }
  }
  return [...lines, line];
}

/** The last column wraps at `width`; the others are as wide as their widest cell. */
export function formatTable(rows: readonly (readonly string[])[], options: { readonly width?: number } = {}): string {
  const columns = Math.max(0, ...rows.map((row) => row.length));
  const widths = Array.from({ length: columns }, (_, column) =>
    Math.max(0, ...rows.map((row) => visibleWidth(row[column] ?? ""))),
  );
  const indent = widths.slice(0, -1).reduce((sum, width) => sum + width + 2, 0);
  const lastWidth = Math.max(24, (options.width ?? Number.POSITIVE_INFINITY) - indent);
  const lines = rows.flatMap((row) => {
    const fixed = row.slice(0, columns - 1).map((cell, column) => pad(cell, widths[column] ?? 0));
    const [first = "", ...more] = wrapText(row[columns - 1] ?? "", lastWidth);
    return [[...fixed, first].join("  "), ...more.map((line) => " ".repeat(indent) + line)];
  });
  return lines.map((line) => `${line.trimEnd()}\n`).join("");
}
