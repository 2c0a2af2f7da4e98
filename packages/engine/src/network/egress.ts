/**
 * A sandbox's way out. The guest says who wants to go where; this process decides, connects, and lets the program have its
 * connection only then. What the guest says is hostile: it can ask for anything, and gets what the policy allows.
 */

import { connect, Socket } from "node:net";
import { constants } from "node:os";
import type { Duplex } from "node:stream";
import { HoldfastError } from "@holdfast/protocol";
import { CHANNEL, FIELD, type FieldList, type Fields, FRAME, NOTE, ProtocolError } from "@holdfast/protocol/guest";
import type { GuestConnection, GuestStream } from "../guest/connection.js";
import { acceptFromGuest } from "../guest/dial.js";
import { DnsForwarder } from "./dns-forwarder.js";
import { serveDnsOverTcp } from "./dns-over-tcp.js";
import { formatIpv4 } from "./ipv4.js";
import { hostNameservers, type Nameserver } from "./nameservers.js";
import { ownAddresses } from "./own-addresses.js";
import { NetworkPolicy } from "./policy.js";

const CONNECT_TIMEOUT_MS = 10_000;
/** A server that is gone without a word shall not hold a connection for ever. */
const KEEP_ALIVE_MS = 60_000;
const MAX_CONNECTIONS = 512;
/** What the guest may tell us before we have dealt with it: a thousand connections, or a dozen of the longest questions. */
const NOTES_WINDOW_BYTES = 64 * 1024;
const MAX_QUESTION_BYTES = 4096;
const DNS_PORT = 53;
/** What may lie here between a program that sends and a server that does not read; less for each if there are many. */
const WINDOW_BYTES = 256 * 1024;
const WINDOW_OF_MANY_BYTES = 32 * 1024;
const FEW_CONNECTIONS = 64;
/** Refused targets that are remembered, so that each is reported once. */
const MAX_REPORTED = 1000;

export interface EgressCounters {
  readonly connections: number;
  /** By the policy, or because there were too many. */
  readonly refused: number;
  /** Allowed, but nobody answered there. */
  readonly failed: number;
  readonly questions: number;
  readonly bytesOut: number;
  readonly bytesIn: number;
}

export interface EgressOptions {
  readonly connection: GuestConnection;
  readonly rules: { readonly allow: readonly string[]; readonly deny: readonly string[] };
  /** Who answers DNS questions; the host's own nameservers if absent. */
  readonly nameservers?: (() => readonly Nameserver[]) | undefined;
  /** Once for each address and port that was refused, up to a bound. */
  readonly onRefused?: ((target: string) => void) | undefined;
  /** The guest does not carry anything. */
  readonly onBroken?: ((reason: HoldfastError) => void) | undefined;
}

/** What the guest has told us and waits for. */
interface Note {
  readonly number: number;
  readonly bytes: number;
}

/** What a program inside shall see for what happened here. */
function errnoFor(error: NodeJS.ErrnoException): number {
  switch (error.code) {
    case "EHOSTUNREACH":
    case "EHOSTDOWN":
      return constants.errno.EHOSTUNREACH;
    case "ENETUNREACH":
      return constants.errno.ENETUNREACH;
    case "ETIMEDOUT":
      return constants.errno.ETIMEDOUT;
    default:
      return constants.errno.ECONNREFUSED;
  }
}

/** The other end shall not take it for a proper end. */
function breakOff(socket: Socket | Duplex): void {
  if (socket instanceof Socket && !socket.connecting) socket.resetAndDestroy();
  else socket.destroy();
}

export class Egress {
  readonly #connection: GuestConnection;
  readonly #policy: NetworkPolicy;
  readonly #forwarder: DnsForwarder;
  readonly #onRefused: (target: string) => void;
  readonly #stream: GuestStream;
  /** Numbers that the guest has told us of and we have not dealt with. */
  readonly #pending = new Set<number>();
  readonly #sockets = new Set<Socket | Duplex>();
  readonly #reported = new Set<string>();
  readonly #counters = { connections: 0, refused: 0, failed: 0, questions: 0, bytesOut: 0, bytesIn: 0 };
  #closed = false;

  constructor(options: EgressOptions) {
    this.#connection = options.connection;
    this.#policy = new NetworkPolicy(options.rules);
    this.#forwarder = new DnsForwarder(options.nameservers ?? hostNameservers);
    this.#onRefused = options.onRefused ?? (() => {});
    this.#stream = options.connection.openStream(
      FRAME.EGRESS,
      [],
      {
        onNote: (fields, bytes) => this.#onNote(fields, bytes),
        onEnd: (result) => {
          if (!this.#closed && this.#connection.isOpen) {
            options.onBroken?.(
              result instanceof HoldfastError
                ? result
                : new HoldfastError("guest_fault", "the guest ended its way out"),
            );
          }
          this.close();
        },
      },
      { window: NOTES_WINDOW_BYTES, notesNeedCredit: true },
    );
  }

  get counters(): EgressCounters {
    return { ...this.#counters };
  }

  /** Breaks what is connected. Programs inside that want out from now on wait for whoever comes next. */
  close(): void {
    if (this.#closed) return;
    this.#closed = true;
    this.#stream.reset();
    this.#forwarder.close();
    for (const socket of this.#sockets) breakOff(socket);
    this.#sockets.clear();
  }

  #onNote(fields: Fields, bytes: number): void {
    if (this.#closed) return;
    switch (fields.number(FIELD.NOTE_KIND)) {
      case NOTE.CONNECTION:
        this.#onConnection(fields, bytes);
        return;
      case NOTE.QUERY:
        this.#onQuery(fields, bytes);
        return;
      default:
        throw new ProtocolError("the guest sent a note of unknown kind about its way out");
    }
  }

  /**
   * Dealt with: the guest hears of it, and may tell us as much again. Not before it has read what went before, so that one
   * which asks and does not listen fills no memory.
   */
  async #settle(note: Note, type?: number, fields: FieldList = []): Promise<void> {
    await this.#connection.drained();
    this.#pending.delete(note.number);
    if (this.#closed) return;
    this.#stream.grant(CHANNEL.out, note.bytes);
    // It fails when the connection does, and then there is nobody to tell.
    if (type !== undefined) this.#connection.request(type, fields).catch(() => {});
  }

  #begin(number: number | undefined, bytes: number): Note {
    if (number === undefined || this.#pending.has(number)) throw new ProtocolError("the guest repeats a number");
    this.#pending.add(number);
    return { number, bytes };
  }

  #onQuery(fields: Fields, bytes: number): void {
    const datagram = fields.bytes(FIELD.DATAGRAM);
    if (datagram === undefined || datagram.length > MAX_QUESTION_BYTES) {
      throw new ProtocolError("the guest passed on a question that cannot be");
    }
    const note = this.#begin(fields.number(FIELD.QUERY), bytes);
    this.#counters.questions += 1;
    void this.#forwarder.answer(datagram, "udp").then((answer) =>
      this.#settle(note, FRAME.ANSWER, [
        [FIELD.QUERY, note.number],
        // To what was no question the answer is an empty datagram.
        [FIELD.DATAGRAM, answer ?? Buffer.alloc(0)],
      ]),
    );
  }

  #onConnection(fields: Fields, bytes: number): void {
    const address = fields.number(FIELD.ADDRESS);
    const port = fields.number(FIELD.PORT);
    if (address === undefined || address > 0xffffffff || port === undefined || port > 0xffff) {
      throw new ProtocolError("the guest named a target that cannot be");
    }
    const note = this.#begin(fields.number(FIELD.CONNECTION), bytes);
    if (this.#sockets.size >= MAX_CONNECTIONS) this.#deny(note);
    // Whoever it was meant for: the questions are answered here.
    else if (port === DNS_PORT) void this.#serveDns(note);
    else if (port === 0 || !this.#policy.allows(address, port, ownAddresses())) {
      this.#report(`${formatIpv4(address)}:${port}`);
      this.#deny(note);
    } else this.#dial(note, formatIpv4(address), port);
  }

  #report(target: string): void {
    if (this.#reported.has(target) || this.#reported.size >= MAX_REPORTED) return;
    this.#reported.add(target);
    this.#onRefused(target);
  }

  #deny(note: Note): void {
    this.#counters.refused += 1;
    void this.#refuse(note, constants.errno.ECONNREFUSED);
  }

  #refuse(note: Note, errno: number): Promise<void> {
    return this.#settle(note, FRAME.REFUSE, [
      [FIELD.CONNECTION, note.number],
      [FIELD.ERRNO, errno],
    ]);
  }

  async #accept(note: Note): Promise<Duplex | undefined> {
    const windowBytes = this.#sockets.size <= FEW_CONNECTIONS ? WINDOW_BYTES : WINDOW_OF_MANY_BYTES;
    try {
      const inside = await acceptFromGuest(this.#connection, note.number, { windowBytes });
      if (!this.#closed) return inside;
      inside.on("error", () => {}).destroy();
      return undefined;
    } catch {
      // The program gave up meanwhile.
      return undefined;
    } finally {
      void this.#settle(note);
    }
  }

  async #serveDns(note: Note): Promise<void> {
    const inside = await this.#accept(note);
    if (inside === undefined) return;
    this.#counters.connections += 1;
    this.#keep(inside);
    await serveDnsOverTcp(inside, this.#forwarder);
  }

  #keep(socket: Socket | Duplex): void {
    this.#sockets.add(socket);
    socket.on("error", () => {});
    socket.once("close", () => this.#sockets.delete(socket));
  }

  #dial(note: Note, host: string, port: number): void {
    const outside = connect({
      host,
      port,
      allowHalfOpen: true,
      noDelay: true,
      keepAlive: true,
      keepAliveInitialDelay: KEEP_ALIVE_MS,
    });
    outside.unref();
    this.#keep(outside);
    const timer = setTimeout(() => {
      outside.destroy(Object.assign(new Error("timed out"), { code: "ETIMEDOUT" }));
    }, CONNECT_TIMEOUT_MS);
    timer.unref();
    const onError = (error: NodeJS.ErrnoException) => {
      this.#counters.failed += 1;
      void this.#refuse(note, errnoFor(error));
    };
    outside.once("error", onError);
    outside.once("connect", () => {
      clearTimeout(timer);
      outside.off("error", onError);
      void this.#carry(note, outside);
    });
    outside.once("close", () => {
      clearTimeout(timer);
      this.#counters.bytesOut += outside.bytesWritten;
      this.#counters.bytesIn += outside.bytesRead;
    });
  }

  async #carry(note: Note, outside: Socket): Promise<void> {
    const inside = await this.#accept(note);
    if (inside === undefined) {
      breakOff(outside);
      return;
    }
    // What breaks on one side breaks on the other: neither shall take it for an end.
    inside.on("error", () => breakOff(outside));
    if (outside.destroyed) {
      inside.destroy();
      return;
    }
    this.#counters.connections += 1;
    inside.once("close", () => {
      if (!outside.destroyed) outside.destroySoon();
    });
    outside.once("close", (hadError) => {
      if (hadError || !outside.readableEnded) inside.destroy();
    });
    inside.pipe(outside);
    outside.pipe(inside);
  }
}
