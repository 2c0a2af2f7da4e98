/** Asks nameservers what a sandbox wants to know. */
import { randomInt } from "node:crypto";
import { createSocket } from "node:dgram";
import { setMaxListeners } from "node:events";
import { connect, isIPv6 } from "node:net";
import {
  answerLocally,
  datagramLimit,
  encodeQuestion,
  errorAnswer,
  isTruncated,
  matchAnswer,
  parseQuestion,
  type Question,
  RCODE,
  truncatedAnswer,
} from "./dns-message.js";
import type { Nameserver } from "./nameservers.js";

/** Of each server in turn; resolvers inside wait for five seconds. */
const TRY_MS = 2000;
const MAX_OUTSTANDING = 64;
/** Questions in a second, and how many may come at once. */
const RATE = 200;
const BURST = 400;

export class DnsForwarder {
  readonly #nameservers: () => readonly Nameserver[];
  readonly #closing = new AbortController();
  #outstanding = 0;
  #tokens = BURST;
  #tokensAtMs = performance.now();

  constructor(nameservers: () => readonly Nameserver[]) {
    this.#nameservers = nameservers;
    setMaxListeners(MAX_OUTSTANDING, this.#closing.signal);
  }

  /** The answer to a client's question, whatever that is; undefined if it was none. Never rejects. */
  async answer(bytes: Buffer, transport: "udp" | "tcp"): Promise<Buffer | undefined> {
    const question = parseQuestion(bytes);
    if ("refusal" in question) return question.refusal;
    const local = answerLocally(question);
    if (local !== undefined) return local;
    if (this.#outstanding >= MAX_OUTSTANDING || !this.#takeToken()) return errorAnswer(question, RCODE.refused);
    this.#outstanding += 1;
    try {
      const answer = (await this.#ask(question, transport)) ?? errorAnswer(question, RCODE.serverFailure);
      return transport === "udp" && answer.length > datagramLimit(question) ? truncatedAnswer(question) : answer;
    } finally {
      this.#outstanding -= 1;
    }
  }

  close(): void {
    this.#closing.abort();
  }

  #takeToken(): boolean {
    const now = performance.now();
    this.#tokens = Math.min(BURST, this.#tokens + ((now - this.#tokensAtMs) / 1000) * RATE);
    this.#tokensAtMs = now;
    if (this.#tokens < 1) return false;
    this.#tokens -= 1;
    return true;
  }

  async #ask(question: Question, transport: "udp" | "tcp"): Promise<Buffer | undefined> {
    for (const server of this.#nameservers()) {
      if (this.#closing.signal.aborted) return undefined;
      const answer = await askOverUdp(server, question, this.#closing.signal);
      if (answer === undefined) continue;
      // A client that asked over UDP is told so, and asks over TCP.
      if (!isTruncated(answer) || transport === "udp") return answer;
      const whole = await askOverTcp(server, question, this.#closing.signal);
      if (whole !== undefined) return whole;
    }
    return undefined;
  }
}

/** A socket and an id of its own for each question: whoever wants to forge an answer has to guess both. */
function askOverUdp(server: Nameserver, question: Question, signal: AbortSignal): Promise<Buffer | undefined> {
  const id = randomInt(0x10000);
  const socket = createSocket(isIPv6(server.address) ? "udp6" : "udp4");
  socket.unref();
  return new Promise((resolve) => {
    const finish = (answer: Buffer | undefined) => {
      clearTimeout(timer);
      signal.removeEventListener("abort", onAbort);
      socket.removeAllListeners().on("error", () => {});
      try {
        socket.close();
      } catch {
        // It was closed by its own failure.
      }
      resolve(answer);
    };
    const onAbort = () => finish(undefined);
    const timer = setTimeout(onAbort, TRY_MS);
    timer.unref();
    signal.addEventListener("abort", onAbort, { once: true });
    socket.on("error", onAbort);
    socket.on("message", (bytes) => {
      const answer = matchAnswer(question, id, bytes);
      if (answer !== undefined) finish(answer);
    });
    // Connected, the kernel lets nobody else's datagrams through.
    socket.connect(server.port, server.address, () => socket.send(encodeQuestion(question, id)));
  });
}

function askOverTcp(server: Nameserver, question: Question, signal: AbortSignal): Promise<Buffer | undefined> {
  const id = randomInt(0x10000);
  const socket = connect({ host: server.address, port: server.port });
  socket.unref();
  return new Promise((resolve) => {
    let received = Buffer.alloc(0);
    const finish = (answer: Buffer | undefined) => {
      clearTimeout(timer);
      signal.removeEventListener("abort", onAbort);
      socket.destroy();
      resolve(answer);
    };
    const onAbort = () => finish(undefined);
    const timer = setTimeout(onAbort, TRY_MS);
    timer.unref();
    signal.addEventListener("abort", onAbort, { once: true });
    socket.on("error", onAbort).on("close", onAbort);
    socket.on("data", (chunk: Buffer) => {
      // At most 65,537 bytes and a chunk: then there is a whole message.
      received = Buffer.concat([received, chunk]);
      const length = received.length < 2 ? undefined : received.readUInt16BE(0);
      if (length !== undefined && received.length >= 2 + length) {
        finish(matchAnswer(question, id, received.subarray(2, 2 + length)));
      }
    });
    socket.write(framed(encodeQuestion(question, id)));
  });
}

/** As it goes over TCP: its length first. */
export function framed(message: Buffer): Buffer {
  const length = Buffer.alloc(2);
  length.writeUInt16BE(message.length);
  return Buffer.concat([length, message]);
}
