/** A Dockerfile as a list of instructions: comments gone, continued lines joined, heredocs taken out. */
import { dockerfileFault, type Place } from "./fault.js";
import { splitWords } from "./words.js";

export interface Heredoc {
  readonly name: string;
  /** With the newline of each line. */
  readonly content: string;
  /** `<<-`: tabs in front of its lines do not count. */
  readonly chomps: boolean;
}

export interface Instruction extends Place {
  /** In upper case. */
  readonly name: string;
  readonly rest: string;
  readonly heredocs: readonly Heredoc[];
}

export interface InstructionList {
  readonly instructions: readonly Instruction[];
  readonly escapeCharacter: string;
}

const DIRECTIVE = /^#\s*([A-Za-z][A-Za-z0-9]*)\s*=\s*(.+?)\s*$/;
const HEREDOC = /^\d*<<(-?)(?:([A-Za-z_][A-Za-z0-9_.-]*)|'([^']+)'|"([^"]+)")$/;
const MAY_HAVE_HEREDOCS = ["RUN", "COPY", "ADD"];

export function splitInstructions(text: string, file: string): InstructionList {
  const lines = text.replace(/^\uFEFF/, "").split(/\r?\n/);
  const escapeCharacter = readEscape(lines, file);
  const instructions: Instruction[] = [];
  let next = 0;
  while (next < lines.length) {
    const line = lines[next] as string;
    if (isBlankOrComment(line)) {
      next += 1;
      continue;
    }
    const joined = joinContinued(lines, next, escapeCharacter);
    const place = { file, line: next + 1 };
    const { name, rest } = splitName(joined.text, place);
    const heredocs = takeHeredocs(name, rest, { lines, next: joined.next, escapeCharacter, place });
    instructions.push({ ...place, name, rest, heredocs: heredocs.found });
    next = heredocs.next;
  }
  return { instructions, escapeCharacter };
}

function isBlankOrComment(line: string): boolean {
  return /^\s*(#|$)/.test(line);
}

/** Directives stand before everything else, other comments included. */
function readEscape(lines: readonly string[], file: string): string {
  for (const [index, line] of lines.entries()) {
    const [, name, value] = DIRECTIVE.exec(line.trim()) ?? [];
    if (name === undefined) return "\\";
    if (name.toLowerCase() !== "escape") continue;
    if (value === "\\" || value === "`") return value;
    throw dockerfileFault({ file, line: index + 1 }, "the escape directive must be \\ or `");
  }
  return "\\";
}

/** A line goes on in the next if it ends with the escape character, but not with two of them. */
function joinContinued(
  lines: readonly string[],
  first: number,
  escapeCharacter: string,
): { text: string; next: number } {
  const special = escapeCharacter === "\\" ? "\\\\" : escapeCharacter;
  const continued = new RegExp(`(^|[^${special}])${special}[ \\t]*$`);
  let text = (lines[first] as string).trimStart();
  let next = first + 1;
  while (continued.test(text)) {
    text = text.replace(continued, "$1");
    while (next < lines.length && isBlankOrComment(lines[next] as string)) next += 1;
    if (next >= lines.length) break;
    text += lines[next] as string;
    next += 1;
  }
  return { text, next };
}

function splitName(text: string, place: Place): { name: string; rest: string } {
  const [, name = "", rest = ""] = /^([^\s]+)\s*(.*)$/s.exec(text.trim()) ?? [];
  if (!/^[A-Za-z]+$/.test(name)) {
    throw dockerfileFault(place, `${JSON.stringify(name.slice(0, 40))} is not an instruction`);
  }
  return { name: name.toUpperCase(), rest };
}

function takeHeredocs(
  name: string,
  rest: string,
  from: { lines: readonly string[]; next: number; escapeCharacter: string; place: Place },
): { found: Heredoc[]; next: number } {
  const found: Heredoc[] = [];
  let { next } = from;
  if (!MAY_HAVE_HEREDOCS.includes(name) || !rest.includes("<<")) return { found, next };
  for (const word of splitWords(rest, from.escapeCharacter)) {
    const [whole, dash, plain, single, double] = HEREDOC.exec(word) ?? [];
    if (whole === undefined) continue;
    const end = plain ?? single ?? double ?? "";
    const chomps = dash === "-";
    let content = "";
    for (;;) {
      const line = from.lines[next];
      if (line === undefined) throw dockerfileFault(from.place, `${name}: the heredoc ${end} has no end`);
      next += 1;
      if ((chomps ? line.replace(/^\t+/, "") : line) === end) break;
      content += `${line}\n`;
    }
    found.push({ name: end, content, chomps });
  }
  return { found, next };
}
