/**
 * DNS messages, as far as a forwarder needs them. Pure. A question from inside is hostile: it is taken apart completely and
 * what goes out is written anew, so that no byte of a sandbox's reaches a nameserver unread.
 */

export const RCODE = { noError: 0, formatError: 1, serverFailure: 2, notImplemented: 4, refused: 5 } as const;
export const TYPE = { a: 1, aaaa: 28, opt: 41 } as const;

const HEADER_BYTES = 12;
const CLASS_IN = 1;
const FLAG = { response: 0x8000, truncated: 0x0200, recursionDesired: 0x0100, recursionAvailable: 0x0080 } as const;
const OPCODE_MASK = 0x7800;
const RCODE_MASK = 0x000f;
/** Recursion desired, authentic data, checking disabled: what a client may ask for. */
const ASKED_FLAGS = 0x0130;
const MAX_NAME_BYTES = 255;
const MAX_LABEL_BYTES = 63;
const OPT_BYTES = 11;
const SMALLEST_UDP_BYTES = 512;
const LARGEST_UDP_BYTES = 4096;
const DNSSEC_OK = 0x8000;
const LOCALHOST_TTL_S = 60;

export interface Question {
  readonly id: number;
  readonly flags: number;
  /** Name, type and class as the client wrote them. */
  readonly section: Buffer;
  /** Lower case, with dots; for comparing only. */
  readonly name: string;
  readonly type: number;
  readonly class: number;
  /** The client's OPT record, if it sent one. */
  readonly edns: { readonly udpBytes: number; readonly dnssecOk: boolean } | undefined;
}

/** What could not be asked, and what to say to that; undefined: nothing, it was no question. */
export interface Refusal {
  readonly refusal: Buffer | undefined;
}

/** The end of the name that begins there; undefined if it is none that we would ask for. Pointers are not followed. */
function skipName(bytes: Buffer, start: number): { readonly end: number; readonly name: string } | undefined {
  const labels: string[] = [];
  for (let at = start; at < bytes.length && at - start < MAX_NAME_BYTES; ) {
    const length = bytes.readUInt8(at);
    if (length === 0) return { end: at + 1, name: labels.join(".") };
    const label = bytes.subarray(at + 1, at + 1 + length);
    if (length > MAX_LABEL_BYTES || label.length < length) return undefined;
    // Whatever a host or service is called; no blanks, control characters or bytes above ASCII.
    if (label.some((byte) => byte <= 0x20 || byte >= 0x7f)) return undefined;
    labels.push(label.toString("latin1").toLowerCase());
    at += 1 + length;
  }
  return undefined;
}

function parseEdns(bytes: Buffer, at: number): Question["edns"] | "broken" {
  if (bytes.length - at < OPT_BYTES || bytes.readUInt8(at) !== 0 || bytes.readUInt16BE(at + 1) !== TYPE.opt) {
    return "broken";
  }
  if (bytes.length - at - OPT_BYTES !== bytes.readUInt16BE(at + 9)) return "broken";
  const udpBytes = Math.min(Math.max(bytes.readUInt16BE(at + 3), SMALLEST_UDP_BYTES), LARGEST_UDP_BYTES);
  return { udpBytes, dnssecOk: (bytes.readUInt16BE(at + 7) & DNSSEC_OK) !== 0 };
}

function refusal(bytes: Buffer, rcode: number): Refusal {
  const answer = Buffer.alloc(HEADER_BYTES);
  bytes.copy(answer, 0, 0, 2);
  const flags = bytes.readUInt16BE(2);
  answer.writeUInt16BE(FLAG.response | (flags & (OPCODE_MASK | FLAG.recursionDesired)) | rcode, 2);
  return { refusal: answer };
}

export function parseQuestion(bytes: Buffer): Question | Refusal {
  if (bytes.length < HEADER_BYTES) return { refusal: undefined };
  const flags = bytes.readUInt16BE(2);
  if ((flags & FLAG.response) !== 0) return { refusal: undefined };
  if ((flags & OPCODE_MASK) !== 0) return refusal(bytes, RCODE.notImplemented);
  const [questions, answers, authorities, additional] = [4, 6, 8, 10].map((at) => bytes.readUInt16BE(at));
  if (questions !== 1 || answers !== 0 || authorities !== 0 || (additional ?? 0) > 1) {
    return refusal(bytes, RCODE.formatError);
  }
  const found = skipName(bytes, HEADER_BYTES);
  if (found === undefined || bytes.length - found.end < 4) return refusal(bytes, RCODE.formatError);
  const end = found.end + 4;
  const edns = additional === 1 ? parseEdns(bytes, end) : bytes.length === end ? undefined : "broken";
  if (edns === "broken") return refusal(bytes, RCODE.formatError);
  return {
    id: bytes.readUInt16BE(0),
    flags,
    section: Buffer.from(bytes.subarray(HEADER_BYTES, end)),
    name: found.name,
    type: bytes.readUInt16BE(found.end),
    class: bytes.readUInt16BE(found.end + 2),
    edns,
  };
}

function header(id: number, flags: number, answers: number, additional: number): Buffer {
  const bytes = Buffer.alloc(HEADER_BYTES);
  bytes.writeUInt16BE(id, 0);
  bytes.writeUInt16BE(flags, 2);
  bytes.writeUInt16BE(1, 4);
  bytes.writeUInt16BE(answers, 6);
  bytes.writeUInt16BE(additional, 10);
  return bytes;
}

/** The question as we ask it ourselves, under an id of our own. Of the client's EDNS options none goes out. */
export function encodeQuestion(question: Question, id: number): Buffer {
  const { edns } = question;
  const parts = [header(id, question.flags & ASKED_FLAGS, 0, edns === undefined ? 0 : 1), question.section];
  if (edns !== undefined) {
    const opt = Buffer.alloc(OPT_BYTES);
    opt.writeUInt16BE(TYPE.opt, 1);
    opt.writeUInt16BE(edns.udpBytes, 3);
    opt.writeUInt16BE(edns.dnssecOk ? DNSSEC_OK : 0, 7);
    parts.push(opt);
  }
  return Buffer.concat(parts);
}

/**
 * A nameserver's answer as the client gets it: with its own id and its own spelling of the question. Undefined if it does
 * not answer what we asked under that id.
 */
export function matchAnswer(question: Question, id: number, bytes: Buffer): Buffer | undefined {
  if (bytes.length < HEADER_BYTES || bytes.readUInt16BE(0) !== id) return undefined;
  const flags = bytes.readUInt16BE(2);
  if ((flags & FLAG.response) === 0) return undefined;
  // Some servers refuse without repeating the question.
  if (bytes.readUInt16BE(4) === 0 && bytes.length === HEADER_BYTES && (flags & RCODE_MASK) !== 0) {
    return errorAnswer(question, flags & RCODE_MASK);
  }
  const end = HEADER_BYTES + question.section.length;
  if (bytes.readUInt16BE(4) !== 1 || bytes.length < end) return undefined;
  const asked = skipName(bytes, HEADER_BYTES);
  if (asked === undefined || asked.end + 4 !== end || asked.name !== question.name) return undefined;
  if (bytes.readUInt16BE(end - 4) !== question.type || bytes.readUInt16BE(end - 2) !== question.class) return undefined;
  const answer = Buffer.from(bytes);
  answer.writeUInt16BE(question.id, 0);
  question.section.copy(answer, HEADER_BYTES);
  return answer;
}

export function isTruncated(answer: Buffer): boolean {
  return (answer.readUInt16BE(2) & FLAG.truncated) !== 0;
}

function answerFlags(question: Question, rcode: number): number {
  return FLAG.response | (question.flags & FLAG.recursionDesired) | FLAG.recursionAvailable | rcode;
}

export function errorAnswer(question: Question, rcode: number): Buffer {
  return Buffer.concat([header(question.id, answerFlags(question, rcode), 0, 0), question.section]);
}

/** For an answer that is longer than the client takes in one datagram: it asks again over TCP. */
export function truncatedAnswer(question: Question): Buffer {
  return errorAnswer(question, FLAG.truncated);
}

/** What we answer ourselves; undefined for what is to be asked elsewhere. */
export function answerLocally(question: Question): Buffer | undefined {
  if (question.class !== CLASS_IN) return errorAnswer(question, RCODE.notImplemented);
  // There is no IPv6 way out: clients take the other address at once.
  if (question.type === TYPE.aaaa) return errorAnswer(question, RCODE.noError);
  if (question.name !== "localhost" && !question.name.endsWith(".localhost")) return undefined;
  if (question.type !== TYPE.a) return errorAnswer(question, RCODE.noError);
  const record = Buffer.alloc(16);
  // The name is the question's, at its place in the message.
  record.writeUInt16BE(0xc000 | HEADER_BYTES, 0);
  record.writeUInt16BE(TYPE.a, 2);
  record.writeUInt16BE(CLASS_IN, 4);
  record.writeUInt32BE(LOCALHOST_TTL_S, 6);
  record.writeUInt16BE(4, 10);
  record.set([127, 0, 0, 1], 12);
  return Buffer.concat([header(question.id, answerFlags(question, RCODE.noError), 1, 0), question.section, record]);
}

/** The longest answer that the client takes in one datagram. */
export function datagramLimit(question: Question): number {
  return question.edns?.udpBytes ?? SMALLEST_UDP_BYTES;
}
