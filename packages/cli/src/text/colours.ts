/** Colours for a terminal, and plain text for everything else. */

export interface Colours {
  bold(text: string): string;
  dim(text: string): string;
  red(text: string): string;
  green(text: string): string;
  yellow(text: string): string;
}

const plain = (text: string): string => text;
const paint = (code: number) => (text: string) => `\u001b[${code}m${text}\u001b[0m`;

const PLAIN: Colours = { bold: plain, dim: plain, red: plain, green: plain, yellow: plain };
const PAINTED: Colours = { bold: paint(1), dim: paint(2), red: paint(31), green: paint(32), yellow: paint(33) };

/** https://no-color.org: any value that is not empty means no. */
export function coloursFor(
  stream: { readonly isTTY?: boolean | undefined },
  env: Readonly<Record<string, string | undefined>> = process.env,
): Colours {
  const wanted = stream.isTTY === true && (env.NO_COLOR ?? "") === "" && env.TERM !== "dumb";
  return wanted ? PAINTED : PLAIN;
}
