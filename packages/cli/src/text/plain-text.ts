/** What a program has written for a terminal, as plain text: without colours, titles and whatever else is no character. */

// biome-ignore lint/suspicious/noControlCharactersInRegex: these are what terminals are told with.
const SEQUENCES = /\u001b(?:\[[0-?]*[ -/]*[@-~]|\][^\u0007\u001b]*(?:\u0007|\u001b\\)?|[@-Z\\^_])/g;

export function plainText(text: string): string {
  return text
    .replace(SEQUENCES, "")
    .replaceAll("\t", "    ")
    .replace(/[\p{Cc}\p{Cf}]/gu, "\uFFFD");
}
