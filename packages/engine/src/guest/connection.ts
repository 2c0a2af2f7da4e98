/**
 * One connection to a guest: frames in and out, streams, credit. Knows nothing of commands or files.
 *
 * The guest is hostile. Whatever breaks the protocol ends the connection with a ProtocolError, which the sandbox treats
 * as its own end; nothing a guest sends makes us hold more than the credit we gave it.
 */
import { connect, type Socket } from "node:net";
import { HoldfastError } from "@holdfast/protocol";
import {
  CHANNEL,
  encodeFields,
  encodeFrame,
  encodeHeader,
  FIELD,
  type FieldList,
  Fields,
  FRAME,
  type Frame,
  FrameReader,
  ProtocolError,
  WIRE_VERSION,
} from "@holdfast/protocol/guest";
import { errorFromGuest } from "./guest-error.js";

const HELLO_TIMEOUT_MS = 10_000;
const MAX_UNSENT_ANSWERS_BYTES = 1024 * 1024;
const SEND_CHUNK_BYTES = 64 * 1024;

export interface StreamHandlers {
  readonly onNote?: (fields: Fields, payloadBytes: number) => void;
  readonly onData?: (channel: number, bytes: Buffer) => void;
  readonly onEof?: (channel: number) => void;
  /** Exactly once: the fields of DONE, or the error. */
  readonly onEnd: (result: Fields | HoldfastError) => void;
}

function protocolFault(error: unknown): HoldfastError {
  const why = error instanceof Error ? error.message : String(error);
  return new HoldfastError("guest_fault", why, { cause: error, details: { protocol: true } });
}

export interface StreamOptions {
  /** The credit for each channel from the guest that the request itself grants. */
  readonly window?: number;
  /** LIST and WATCH: their notes are the payload, and are paid for like data. */
  readonly notesNeedCredit?: boolean;
}

export class GuestStream {
  readonly id: number;
  readonly #connection: GuestConnection;
  readonly #handlers: StreamHandlers;
  /** What the guest may still send us, by channel. */
  readonly #granted = new Map<number, number>();
  readonly #notesNeedCredit: boolean;
  /** What we may still send the guest, on the one channel towards it. */
  #credit = 0;
  #onCredit: (() => void) | undefined;
  #ended = false;
  #abandoned = false;

  constructor(connection: GuestConnection, id: number, handlers: StreamHandlers, options: StreamOptions) {
    this.#connection = connection;
    this.id = id;
    this.#handlers = handlers;
    this.#notesNeedCredit = options.notesNeedCredit ?? false;
    for (const channel of [CHANNEL.out, CHANNEL.err]) this.#granted.set(channel, options.window ?? 0);
  }

  get ended(): boolean {
    return this.#ended;
  }

  /**
   * Sends as the guest's credit and the socket allow. Resolves when all is sent or the stream is over, to how many bytes
   * went out: those before a reset still arrive.
   */
  async send(bytes: Uint8Array): Promise<number> {
    let at = 0;
    while (at < bytes.length && !this.#ended && !this.#abandoned) {
      if (this.#credit === 0) {
        await new Promise<void>((resolve) => {
          this.#onCredit = resolve;
        });
        continue;
      }
      const piece = bytes.subarray(at, at + Math.min(this.#credit, SEND_CHUNK_BYTES));
      this.#credit -= piece.length;
      at += piece.length;
      this.#connection.sendData(this.id, CHANNEL.in, piece);
      await this.#connection.drained();
    }
    return at;
  }

  sendEof(channel: number): void {
    if (!this.#ended && !this.#abandoned) this.#connection.sendFrame(FRAME.EOF, channel, this.id);
  }

  /** Lets the guest send so many bytes more on a channel. */
  grant(channel: number, bytes: number): void {
    if (this.#ended || bytes <= 0) return;
    this.#granted.set(channel, (this.#granted.get(channel) ?? 0) + bytes);
    const payload = Buffer.allocUnsafe(4);
    payload.writeUInt32LE(bytes);
    this.#connection.sendFrame(FRAME.WINDOW, channel, this.id, payload);
  }

  reset(): void {
    if (this.#ended || this.#abandoned) return;
    this.#abandoned = true;
    this.#connection.sendFrame(FRAME.RESET, 0, this.id);
    this.#onCredit?.();
  }

  receive(frame: Frame): void {
    switch (frame.type) {
      case FRAME.DATA:
        this.#spend(frame.channel, frame.payload.length);
        this.#handlers.onData?.(frame.channel, frame.payload);
        return;
      case FRAME.EOF:
        this.#handlers.onEof?.(frame.channel);
        return;
      case FRAME.WINDOW:
        if (frame.payload.length !== 4) throw new ProtocolError("a WINDOW frame has the wrong size");
        this.#credit += frame.payload.readUInt32LE();
        this.#onCredit?.();
        return;
      case FRAME.NOTE:
        if (this.#notesNeedCredit) this.#spend(CHANNEL.out, frame.payload.length);
        if (this.#handlers.onNote === undefined) throw new ProtocolError("the guest sent a note where none belongs");
        this.#handlers.onNote(new Fields(frame.payload), frame.payload.length);
        return;
      case FRAME.DONE:
        this.end(new Fields(frame.payload));
        return;
      case FRAME.FAIL:
        this.end(errorFromGuest(new Fields(frame.payload)));
        return;
      default:
        throw new ProtocolError(`the guest sent a frame of unknown type ${frame.type}`);
    }
  }

  #spend(channel: number, bytes: number): void {
    const left = (this.#granted.get(channel) ?? 0) - bytes;
    if (left < 0) throw new ProtocolError("the guest sent more than it may");
    this.#granted.set(channel, left);
  }

  end(result: Fields | HoldfastError): void {
    if (this.#ended) return;
    this.#ended = true;
    this.#onCredit?.();
    this.#handlers.onEnd(result);
  }
}

export class GuestConnection {
  readonly #socket: Socket;
  readonly #streams = new Map<number, GuestStream>();
  readonly #reader = new FrameReader();
  #nextStream = 1;
  #draining: Promise<void> | undefined;
  #greeted = false;
  #failure: HoldfastError | undefined;
  #expectedEnd: HoldfastError | undefined;
  readonly #closed: Promise<HoldfastError>;
  #settleClosed: (reason: HoldfastError) => void = () => {};
  #settleHello: { resolve: () => void; reject: (reason: HoldfastError) => void } | undefined;

  private constructor(socket: Socket) {
    this.#socket = socket;
    this.#closed = new Promise((resolve) => {
      this.#settleClosed = resolve;
    });
    socket.on("data", (chunk: Buffer) => this.#receive(chunk));
    socket.on("error", (error) => this.#fail(HoldfastError.from(error, "guest_fault")));
    socket.on("close", () => {
      this.#fail(this.#expectedEnd ?? new HoldfastError("guest_fault", "the guest closed the connection"));
    });
  }

  /** Connects and exchanges HELLO. */
  static async open(
    path: string,
    options: { signal?: AbortSignal; timeoutMs?: number } = {},
  ): Promise<GuestConnection> {
    const socket = connect(path);
    const connection = new GuestConnection(socket);
    const timeoutMs = options.timeoutMs ?? HELLO_TIMEOUT_MS;
    const onAbort = () => connection.close(new HoldfastError("canceled", "the operation was canceled"));
    if (options.signal?.aborted) onAbort();
    options.signal?.addEventListener("abort", onAbort, { once: true });
    const timer = setTimeout(() => {
      connection.close(new HoldfastError("guest_fault", `the guest did not say hello within ${timeoutMs} ms`));
    }, timeoutMs);
    try {
      await new Promise<void>((resolve, reject) => {
        connection.#settleHello = { resolve, reject };
        if (connection.#failure !== undefined) reject(connection.#failure);
        connection.sendFrame(FRAME.HELLO, 0, 0, encodeFields([[FIELD.VERSION, WIRE_VERSION]]));
      });
      return connection;
    } finally {
      clearTimeout(timer);
      options.signal?.removeEventListener("abort", onAbort);
    }
  }

  /** Resolves, with the reason, when the connection is over. */
  get closed(): Promise<HoldfastError> {
    return this.#closed;
  }

  get isOpen(): boolean {
    return this.#failure === undefined;
  }

  /** What is under way: requests without an answer yet, commands, connections, transfers, watches. */
  get openStreams(): number {
    return this.#streams.size;
  }

  /** Bytes that the kernel has not taken yet: senders of much data wait for `drained`. */
  get unsentBytes(): number {
    return this.#socket.writableLength;
  }

  drained(): Promise<void> {
    if (!this.#socket.writableNeedDrain || this.#failure !== undefined) return Promise.resolve();
    // One for all who wait: hundreds of streams may.
    this.#draining ??= new Promise((resolve) => {
      const done = () => {
        this.#socket.off("drain", done).off("close", done);
        this.#draining = undefined;
        resolve();
      };
      this.#socket.on("drain", done).on("close", done);
    });
    return this.#draining;
  }

  openStream(type: number, fields: FieldList, handlers: StreamHandlers, options: StreamOptions = {}): GuestStream {
    const id = this.#takeStreamId();
    const stream = new GuestStream(this, id, handlers, options);
    if (this.#failure !== undefined) {
      const failure = this.#failure;
      queueMicrotask(() => stream.end(failure));
      return stream;
    }
    this.#streams.set(id, stream);
    const window: FieldList = options.window === undefined ? [] : [[FIELD.WINDOW, options.window]];
    this.sendFrame(type, 0, id, encodeFields([...fields, ...window]));
    return stream;
  }

  /** A request with one answer. */
  request(type: number, fields: FieldList): Promise<Fields> {
    return new Promise((resolve, reject) => {
      this.openStream(type, fields, {
        onEnd: (result) => (result instanceof HoldfastError ? reject(result) : resolve(result)),
      });
    });
  }

  sendFrame(type: number, channel: number, stream: number, payload: Uint8Array = new Uint8Array(0)): void {
    if (this.#failure === undefined) this.#socket.write(encodeFrame(type, channel, stream, payload));
  }

  sendData(stream: number, channel: number, bytes: Uint8Array): void {
    if (this.#failure !== undefined) return;
    this.#socket.cork();
    this.#socket.write(encodeHeader(FRAME.DATA, channel, stream, bytes.length));
    this.#socket.write(bytes);
    this.#socket.uncork();
  }

  close(reason = new HoldfastError("canceled", "the connection was closed")): void {
    this.#fail(reason);
  }

  /** The guest is about to be ended: what is under way learns that, and not that a connection broke. */
  expectEnd(reason: HoldfastError): void {
    this.#expectedEnd ??= reason;
  }

  /** Reads an answer. One that makes no sense ends the connection like any other breach of the protocol. */
  understand<T>(read: () => T): T {
    try {
      return read();
    } catch (error) {
      if (!(error instanceof ProtocolError)) throw error;
      const reason = protocolFault(error);
      this.#fail(reason);
      throw reason;
    }
  }

  /** An idle connection to a guest must not keep a program alive that has nothing else to do. */
  unref(): void {
    this.#socket.unref();
  }

  #takeStreamId(): number {
    do {
      this.#nextStream = this.#nextStream >= 0x7fffffff ? 1 : this.#nextStream + 1;
    } while (this.#streams.has(this.#nextStream));
    return this.#nextStream;
  }

  #receive(chunk: Buffer): void {
    if (this.#failure !== undefined) return;
    try {
      for (const frame of this.#reader.push(chunk)) {
        this.#dispatch(frame);
        if (this.#failure !== undefined) return;
      }
    } catch (error) {
      this.#fail(protocolFault(error));
    }
  }

  #dispatch(frame: Frame): void {
    if (!this.#greeted) {
      if (frame.type !== FRAME.HELLO) throw new ProtocolError("the guest did not begin with HELLO");
      const version = new Fields(frame.payload).number(FIELD.VERSION);
      if (version !== WIRE_VERSION) throw new ProtocolError(`the guest speaks version ${version}, not ${WIRE_VERSION}`);
      this.#greeted = true;
      this.#settleHello?.resolve();
      return;
    }
    if (frame.stream === 0) {
      if (frame.type === FRAME.PING) {
        if (this.unsentBytes > MAX_UNSENT_ANSWERS_BYTES) throw new ProtocolError("the guest asks and does not listen");
        this.sendFrame(FRAME.PONG, 0, 0, frame.payload);
      } else if (frame.type !== FRAME.PONG) throw new ProtocolError(`frame type ${frame.type} on stream 0`);
      return;
    }
    const stream = this.#streams.get(frame.stream);
    if (stream === undefined) throw new ProtocolError(`a frame for stream ${frame.stream}, which is not open`);
    stream.receive(frame);
    if (stream.ended) this.#streams.delete(frame.stream);
  }

  #fail(reason: HoldfastError): void {
    if (this.#failure !== undefined) return;
    this.#failure = reason;
    this.#socket.destroy();
    this.#settleHello?.reject(reason);
    const streams = [...this.#streams.values()];
    this.#streams.clear();
    for (const stream of streams) stream.end(reason);
    this.#settleClosed(reason);
  }
}
